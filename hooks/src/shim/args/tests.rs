use std::{ffi::OsString, os::unix::ffi::OsStringExt as _};

use super::*;

fn bundle(line: &str) -> Option<String> {
    let args: Vec<&str> = line.split_whitespace().collect();
    let call = Call::parse(&args);
    match call.command {
        Command::Create => Some(call.config_path().to_str().unwrap().to_owned()),
        Command::Other => None,
    }
}

/// Every form that was recorded with an engine, and the config it means.
#[test]
fn the_forms_of_the_engines() {
    for (line, config) in [
        // containerd and docker, runtimeArgs before the flags
        (
            "--debug --root /r --log /b/log.json --log-format json --systemd-cgroup create \
             --bundle /b --pid-file /b/init.pid --console-socket /s --no-pivot --no-new-keyring \
             --preserve-fds 3 ID",
            Some("/b/config.json"),
        ),
        ("--root /r --log /b/log.json --log-format json start ID", None),
        ("--root /r kill --all ID 9", None),
        ("--root /r delete --force ID", None),
        ("--root /r exec --process /f --pid-file create ID", None),
        ("--root /r update --resources=- ID", None),
        ("--root /r events --stats ID", None),
        ("--root /r restore --bundle /b ID", None),
        ("features", None),
        ("--version", None),
        ("", None),
        // conmon for CRI-O and podman
        (
            "--root=/run/x --systemd-cgroup create --bundle /b --pid-file F ID",
            Some("/b/config.json"),
        ),
        ("--root /run/x state ID", None),
        (
            "--log-format=json --log F --cgroup-manager cgroupfs create --bundle /b ID",
            Some("/b/config.json"),
        ),
        // people
        ("run -b /b ID", Some("/b/config.json")),
        ("run -b=/b ID", Some("/b/config.json")),
        ("run -b/b ID", Some("/b/config.json")),
        ("run -bundle /b ID", Some("/b/config.json")),
        ("run --bundle=/b ID", Some("/b/config.json")),
        ("create ID", Some("./config.json")),
        ("run --bundle= ID", Some("./config.json")),
        ("run -f other.json --bundle /b ID", Some("/b/other.json")),
        ("run --config=/abs.json ID", Some("/abs.json")),
    ] {
        assert_eq!(bundle(line).as_deref(), config, "{line}");
    }
}

/// NVIDIA's wrapper takes any argument `create` for the command, and never edits `run`.
#[test]
fn a_container_may_be_named_create() {
    assert_eq!(bundle("--root /r start create"), None);
    assert_eq!(bundle("--root create state ID"), None);
    assert_eq!(bundle("create --bundle /b create").as_deref(), Some("/b/config.json"));
    let call = Call::parse(&["run", "-b", "create", "create"]);
    assert_eq!(call.id, Some(OsStr::new("create")));
    assert_eq!(call.bundle, Some(OsStr::new("create")));
}

#[test]
fn a_flag_of_a_future_runtime_hides_no_create() {
    for line in [
        "--future create --bundle /b ID",
        "--future value create --bundle /b ID",
        "--future=value create --bundle /b ID",
        "-future value --root /r create --bundle /b ID",
        "create --future --bundle /b ID",
        "create --future value --bundle /b ID",
        "-- create --bundle /b ID",
        "create --bundle /b -- ID",
    ] {
        assert_eq!(bundle(line).as_deref(), Some("/b/config.json"), "{line}");
    }
}

#[test]
fn the_last_flag_counts() {
    assert_eq!(bundle("create --bundle /a -b /b ID").as_deref(), Some("/b/config.json"));
}

/// runc creates with `--help=false`.
#[test]
fn a_flag_for_help_hides_no_create() {
    for help in ["--help", "-h", "--help=false", "-h=false", "--help=0", "-help=true"] {
        for command in ["create", "run"] {
            let line = format!("{command} {help} -b /b ID");
            assert_eq!(bundle(&line).as_deref(), Some("/b/config.json"), "{line}");
            let line = format!("{help} {command} -b /b ID");
            assert_eq!(bundle(&line).as_deref(), Some("/b/config.json"), "{line}");
        }
    }
}

#[test]
fn the_log_of_the_runtime() {
    let call = |line: &'static str| {
        let args: Vec<&str> = line.split(' ').collect();
        let call = Call::parse(&args);
        (call.log.map(|log| log.to_str().unwrap().to_owned()), call.json)
    };
    assert_eq!(call("--log /l --log-format json create x"), (Some("/l".into()), true));
    assert_eq!(call("--log=/l create x"), (Some("/l".into()), false));
    assert_eq!(call("-log-format text -log /l create x"), (Some("/l".into()), false));
    assert_eq!(call("--log journald:x create x"), (Some("journald:x".into()), false));
    assert_eq!(call("create --log x"), (None, false));
}

#[test]
fn any_bytes_are_read() {
    let hostile: Vec<OsString> = [&b"\xff\xfe"[..], b"-\xff=\xfe", b"--", b"", b"-", b"--=", b"-="]
        .iter()
        .map(|bytes| OsString::from_vec(bytes.to_vec()))
        .collect();
    let word = |text: &str| OsString::from(text);
    for first in &hostile {
        for second in &hostile {
            let args = [first.clone(), word("create"), second.clone(), word("--bundle")];
            let _call = Call::parse(&args);
            let _call = Call::parse(&args[1..]);
        }
    }
    let name = OsString::from_vec(b"/\xff".to_vec());
    let args = [word("create"), word("-b"), name.clone(), word("ID")];
    assert_eq!(Call::parse(&args).bundle, Some(name.as_os_str()));
}
