//! Whatever is not a creation reaches the low-level runtime unchanged.

use std::{ffi::OsString, os::unix::ffi::OsStringExt as _, process::Command};

use crate::support::{HOOK, Host};

/// Calls that were recorded with engines, creations of a request-free bundle among them.
const LINES: [&str; 16] = [
    "--root /r --log @/log.json --log-format json start ID",
    "--root /r --log @/log.json --log-format json --systemd-cgroup create --bundle @/bundle \
     --pid-file @/bundle/init.pid ID",
    "--debug --root /r --log @/l --log-format json delete --force ID",
    "--root /r kill --all ID 9",
    "--root /r exec --process /f --pid-file create ID",
    "--root /r update --resources=- ID",
    "--root /r events --stats ID",
    "--root /r ps --format json ID",
    "--root=/run/x --systemd-cgroup create --bundle @/bundle --pid-file F ID",
    "--root /run/x state ID",
    "--log-format=json --log @/l --cgroup-manager cgroupfs create --bundle=@/bundle ID",
    "restore --bundle /nonexistent ID",
    "features",
    "--version",
    "run -b @/bundle create",
    "start create",
];

#[test]
fn the_runtime_cannot_tell_the_shim_from_the_engine() {
    let host = Host::new("[handlers.divvy-runtime]\nengine = 'ctr'");
    let config = host.bundle("containerd", |_| {});
    for line in LINES {
        let words: Vec<String> = line.split_whitespace().map(|word| host.word(word)).collect();
        let bare = host.call(Command::new(host.path("runtime")).args(&words), b"{\"cpu\":{}}");
        let bare_seen = host.seen().unwrap();
        let mut args = vec!["runtime".to_owned()];
        args.extend(words);
        let shim = host.hook(&args, b"{\"cpu\":{}}");
        assert_eq!(host.seen().unwrap(), bare_seen, "{line}");
        assert_eq!((shim.status, &shim.stdout), (bare.status, &bare.stdout), "{line}");
        assert_eq!((shim.status, &shim.stderr), (7, &bare.stderr), "{line}");
        assert!(!host.path("log.json").exists(), "{line}");
    }
    assert_eq!(host.read("bundle/config.json"), config);
}

#[test]
fn open_files_and_odd_arguments_survive() {
    let host = Host::new("");
    let line = format!("exec 3</dev/null 5>&1; exec {HOOK} \"$@\"");
    let mut command = Command::new("/bin/sh");
    command.args(["-c", &line, "sh", "--config"]).arg(host.path("config.toml")).arg("runtime");
    let odd = OsString::from_vec(b"\xff\xfe\n \"'$".to_vec());
    command.args([odd.clone(), "".into(), "start".into()]);
    assert_eq!(host.call(&mut command, b"").status, 7);
    let seen = host.seen().unwrap();
    assert_eq!(seen.files, "0\n1\n2\n3\n5\n");
    assert_eq!(seen.args, b"\xff\xfe\n \"'$\0\0start\0");
}

/// An engine may ignore or block signals; the runtime must find them so.
#[test]
fn signals_survive() {
    let host = Host::new("");
    let out = host.path("signals");
    host.script("runtime", &format!("grep -E 'Sig(Ign|Blk)' /proc/self/status >{}", out.display()));
    let mut seen = Vec::new();
    for program in [
        format!("{:?}", host.path("runtime")),
        format!("{HOOK:?} --config {:?} runtime", host.path("config.toml")),
    ] {
        let line = format!("trap '' PIPE USR1; exec {program} start ID");
        let outcome = host.call(Command::new("/bin/sh").args(["-c", &line]), b"");
        assert_eq!(outcome.status, 7, "{}", outcome.stderr);
        seen.push(host.read("signals"));
    }
    assert_eq!(seen[0], seen[1]);
    let ignored = seen[0].lines().find_map(|line| line.strip_prefix("SigIgn:\t")).unwrap();
    // SIGUSR1 is 10, SIGPIPE 13; whoever runs the tests may ignore more.
    assert_eq!(u64::from_str_radix(ignored, 16).unwrap() & 0x1200, 0x1200);
}

#[test]
fn a_broken_configuration_stops_nobody_who_needs_none() {
    // The built-in candidates are those of this machine, which may have none: the call may fail for
    // that or in the runtime, but never for the configuration.
    for broken in ["run_dri = '/x'", "\u{0}", "handlers = 7", "log = 'x'", "= ["] {
        let host = Host::new("");
        host.write("config.toml", &host.settings(broken));
        for line in ["--version", "state nonexistent-divvy-test"] {
            let outcome = host.shim(line);
            assert!(!outcome.stderr.contains("CONFIG-"), "{broken}: {}", outcome.stderr);
        }
        // The log goes where the file says. What is no TOML says nothing.
        if broken.contains(['\0', '[']) {
            continue;
        }
        let log = host.read("run/hook.log");
        assert!(
            log.contains(" CONFIG-INVALID: configuration ") && log.contains("config.toml"),
            "{log}"
        );
    }
}

#[test]
fn a_runtime_that_is_not_there_is_an_error_with_what_was_looked_at() {
    let host = Host::new("");
    let settings = host.settings("").replace("/runtime\"", "/absent\"");
    host.write("config.toml", &settings);
    let outcome = host.shim("--log @/log.json --log-format json start ID");
    let line = outcome.error("RUNTIME-NOT-FOUND");
    assert!(line.contains("/absent (not there)") && line.contains("config.toml"), "{line}");
    let entry: serde_json::Value = serde_json::from_str(&host.read("log.json")).unwrap();
    assert_eq!(entry["msg"], line);
}

#[test]
fn we_never_execute_ourselves() {
    let host = Host::new("");
    for runtime in [HOOK.to_owned(), host.word("@/copy"), host.word("@/link")] {
        if runtime.ends_with("/copy") {
            std::fs::copy(HOOK, &runtime).unwrap();
        }
        if runtime.ends_with("/link") {
            std::os::unix::fs::symlink(HOOK, &runtime).unwrap();
        }
        host.write("config.toml", &format!("runtimes = [{runtime:?}]"));
        let line = host.shim("start ID").error("RUNTIME-LOOP").to_owned();
        assert!(line.contains(&runtime), "{line}");
    }
}

#[test]
fn usage_and_version() {
    let host = Host::new("");
    for (args, status) in
        [(&["--version"][..], 0), (&["--help"], 0), (&[], 2), (&["bogus"], 2), (&["--config"], 2)]
    {
        assert_eq!(host.hook(args, b"").status, status, "{args:?}");
    }
    let help = host.hook(&["--help"], b"").stdout;
    let text = String::from_utf8(help.clone()).unwrap();
    for face in ["runtime", "precreate", "verify", "report"] {
        assert!(text.contains(&format!("\n{face} ")), "{text}");
        if face != "runtime" {
            for option in ["--help", "-h"] {
                let outcome = host.hook(&[face, option], b"");
                assert_eq!((outcome.status, &outcome.stdout), (0, &help), "{face} {option}");
            }
        }
    }
    for (args, wrong) in [
        (&["bogus"][..], "bogus"),
        (&["precreate", "--bogus"], "--bogus"),
        (&["precreate", "more"], "more"),
        (&["verify", "--bogus"], "--bogus"),
        (&["verify", "handler", "--bogus"], "--bogus"),
        (&["report", "--bogus"], "--bogus"),
        (&["report", "--txt", "text"], "--txt"),
    ] {
        let outcome = host.hook(args, b"");
        let says = format!("divvy-hook: {wrong} is not understood; see divvy-hook --help\n");
        assert_eq!((outcome.status, outcome.stderr), (2, says), "{args:?}");
        assert!(outcome.stdout.is_empty());
    }
    // A text is a text, whatever it looks like.
    let outcome = host.hook(&["report", "--text", "--help"], b"");
    assert_eq!((outcome.status, outcome.stderr.as_str()), (1, "--help\n"));
}

/// What asks for help of the low-level runtime is answered by it.
#[test]
fn the_runtimes_help_is_the_runtimes() {
    let host = Host::new("");
    for line in ["--help", "-h", "help", "--bogus", "verify --help"] {
        let outcome = host.shim(line);
        assert_eq!((outcome.status, outcome.stdout), (7, b"out\n".to_vec()), "{line}");
        let args = host.seen().unwrap().args;
        assert_eq!(args, format!("{}\0", line.replace(' ', "\0")).into_bytes());
    }
}
