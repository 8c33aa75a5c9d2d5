use std::{
    io::Read,
    process::{Command, Stdio},
};

use crate::support::{Ended, SMALL, World, claim};

#[test]
fn a_wrong_command_line_ends_with_2() {
    let world = World::new();
    for args in [
        &[][..],
        &["unknown"],
        &["prepare"],
        &["unprepare"],
        &["unprepare", "a", "-f", "b"],
        &["lint"],
        &["devices", "-o", "xml"],
    ] {
        let ended = world.divvy(args);
        assert_eq!(ended.code, Some(2), "{args:?}: {ended:?}");
        assert_eq!(ended.out, "");
    }
}

#[test]
fn gpus_that_are_not_named_or_not_known() {
    let world = World::new();
    world.write("c.yaml", claim("a", "b", ""));
    let run = |more: &[&str]| -> Ended {
        let mut command = Command::new(env!("CARGO_BIN_EXE_divvy"));
        command.current_dir(world.path("")).args(["prepare", "-f", "c.yaml"]).args(more);
        command.output().unwrap().into()
    };
    run(&[]).failed(2, "NO-GPUS", "--gpus sim:FILE");
    run(&["--gpus", "cuda"]).failed(2, "NO-GPUS", "nvml are this machine's GPUs, and sim:FILE");
    run(&["--gpus", "nvml:host"]).failed(2, "NO-GPUS", "an absolute path is wanted");
    let empty = format!("nvml:{}", world.path("").display());
    let ended = run(&["--gpus", &empty]);
    ended.failed(1, "NO-DRIVER", "run/nvidia/driver");
    ended.failed(1, "NO-DRIVER", "usr/lib/x86_64-linux-gnu");
    ended.failed(1, "NO-DRIVER", "--gpus sim:FILE works without hardware");
    run(&["--gpus", &empty, "--driver-root", "/x"]).failed(1, "NO-DRIVER", "below /x, ");
    run(&["--gpus", "sim:"]).failed(2, "NO-GPUS", "the file is missing behind sim:");
    run(&["--gpus", "h100x2.toml"]).failed(2, "NO-GPUS", "did you mean sim:h100x2.toml");
    run(&["--gpus", "sim:none.toml"]).failed(1, "UNREADABLE", "none.toml: no such file");
}

#[test]
fn what_is_wrong_with_a_name_is_said() {
    let world = World::new();
    for (name, says) in [
        ("", "the name is empty"),
        ("/a", "the namespace is empty"),
        ("team-a/Train", "the name has 'T' in it"),
        ("Team/train", "the namespace has 'T' in it"),
        ("a/b/c", "the name has '/' in it"),
        ("a..b", "the name has - or . at an end or beside a dot"),
        ("a-", "the name has - or . at an end or beside a dot"),
        (&"x".repeat(254), "the name has more than 253 characters"),
    ] {
        world.divvy(&["unprepare", name]).failed(2, "USAGE", says);
        world.divvy(&["prepare", "-f", "none", "--name", name]).failed(2, "USAGE", says);
    }
    world.divvy(&["unprepare", &"x".repeat(253)]).ok();
}

#[test]
fn help_and_version_go_to_stdout() {
    let world = World::new();
    for args in [&["--help"][..], &["prepare", "--help"], &["inject", "--help"], &["--version"]] {
        let ended = world.divvy(args);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert!(!ended.out.is_empty() && ended.err.is_empty());
    }
    assert!(world.divvy(&["--help"]).out.contains("Exit codes:"));
    assert!(world.divvy(&["lint", "--help"]).out.contains("Examples:"));
}

#[test]
fn a_reader_who_has_seen_enough_is_no_failure() {
    let world = World::new();
    let mut text = "cdiVersion: 0.3.0\nkind: v.com/x\ndevices:\n".to_owned();
    for n in 0..20_000 {
        text.push_str(&format!("- {{name: d{n}, containerEdits: {{env: [A=b]}}}}\n"));
    }
    world.write("cdi/x.yaml", text);
    let mut command = world.command(&["devices", "--spec-dir", "cdi"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut few = [0; 16];
    child.stdout.take().unwrap().read_exact(&mut few).unwrap();
    // The pipe is closed here.
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

/// The options that the help lists, but for --help and --version.
fn listed(help: &str) -> Vec<&str> {
    let words = help.lines().filter(|line| line.starts_with("  ")).map(str::trim_start);
    let options = words.filter(|line| line.starts_with('-'));
    let long =
        options.filter_map(|line| line.split([' ', ',']).find(|word| word.starts_with("--")));
    long.filter(|option| !["--help", "--version"].contains(option)).collect()
}

/// The options of places and devices, in their order.
const PLACES: [&str; 12] = [
    "--gpus",
    "--devices",
    "--driver-root",
    "--dev-root",
    "--hook",
    "--switch-mig",
    "--adopt-mig",
    "--shares",
    "--device-metadata",
    "--cdi-dir",
    "--run-dir",
    "--state-dir",
];

#[test]
fn each_command_lists_the_options_that_it_uses_and_no_others() {
    let but = |unused: &[&str]| -> Vec<&str> {
        PLACES.into_iter().filter(|place| !unused.contains(place)).collect()
    };
    let world = World::new();
    for (command, options) in [
        (None, [&["--output"][..], &PLACES].concat()),
        (Some("prepare"), [&["--file", "--name", "--output"][..], &PLACES].concat()),
        (
            Some("unprepare"),
            [
                &["--file", "--output"][..],
                &but(&[
                    "--gpus",
                    "--devices",
                    "--hook",
                    "--switch-mig",
                    "--adopt-mig",
                    "--shares",
                    "--device-metadata",
                ]),
            ]
            .concat(),
        ),
        (Some("inject"), vec!["--spec-dir", "--device", "--verbose"]),
        (
            Some("devices"),
            [
                &["--spec-dir", "--config", "--output"][..],
                &but(&[
                    "--hook",
                    "--switch-mig",
                    "--adopt-mig",
                    "--shares",
                    "--device-metadata",
                    "--run-dir",
                ]),
            ]
            .concat(),
        ),
        (
            Some("generate"),
            [
                &["--write", "--names", "--kind", "--cdi-version", "--output"][..],
                &["--gpus", "--driver-root", "--dev-root", "--hook"],
            ]
            .concat(),
        ),
        (Some("lint"), vec!["--output"]),
    ] {
        for help in ["--help", "-h"] {
            let args: Vec<&str> = command.into_iter().chain([help]).collect();
            let ended = world.divvy(&args);
            assert_eq!(listed(ended.ok()), options, "{args:?}: {}", ended.out);
        }
    }
    let daemon = Ended::from(world.node(&["--help"]).output().unwrap());
    let cluster = [
        "--node-name",
        "--kubeconfig",
        "--kubelet-dir",
        "--pod-uid",
        "--beside-other-driver",
        "--broken-gpu-effect",
        "--ignore-xids",
        "--http",
    ];
    let options = [&["--once", "--interval", "--log", "--traces"][..], &cluster, &PLACES].concat();
    assert_eq!(listed(daemon.ok()), options);
}

/// `divvy` as root of a user namespace: not as root, for which the machine's directories are.
fn without_root(world: &World, args: &[&str], env: &[(&str, &str)]) -> Ended {
    let mut command = Command::new("unshare");
    command.env_clear().env("PATH", "/usr/bin:/bin").envs(env.iter().copied());
    command.current_dir(world.path("")).args(["--map-root-user", env!("CARGO_BIN_EXE_divvy")]);
    command.args(args).output().unwrap().into()
}

#[test]
fn without_root_what_only_reads_needs_no_directory_of_ones_own() {
    let world = World::new();
    world.write("config.json", "{\"ociVersion\":\"1.0.2\",\"process\":{\"cwd\":\"/\"}}");
    let spec =
        "cdiVersion: 0.3.0\nkind: v.com/x\ndevices:\n- name: a\n  containerEdits: {env: [A=b]}\n";
    world.write("specs/x.yaml", spec);
    let reads: [(&[&str], &str); 4] = [
        (&["devices"], "/etc/cdi"),
        (&["devices", "--spec-dir", "specs"], "v.com/x=a"),
        (&["lint", "specs"], "0 errors"),
        (&["inject", "--spec-dir", "specs", "--device", "v.com/x=a", "config.json"], "A=b"),
    ];
    for (args, says) in reads {
        let ended = without_root(&world, args, &[]);
        assert!(ended.ok().contains(says), "{args:?}: {ended:?}");
    }
    let devices = without_root(&world, &["devices", "--gpus", "sim:node.toml"], &[]);
    devices.failed(2, "USAGE", "neither XDG_STATE_HOME nor HOME is set to an absolute path");
    assert!(!devices.err.contains("XDG_RUNTIME_DIR"), "{devices:?}");
}

#[test]
fn without_root_each_directory_that_is_missing_is_named() {
    let world = World::new();
    world.write("c.yaml", claim("a", SMALL, ""));
    let path = |name: &str| world.path(name).display().to_string();
    let (home, run) = (path("home"), path("run"));
    let prepare = |env: &[(&str, &str)]| {
        without_root(&world, &["prepare", "-f", "c.yaml", "--gpus", "sim:node.toml"], env)
    };
    let all = prepare(&[]);
    all.failed(2, "USAGE", "$HOME/.local/state/divvy");
    assert_eq!(all.err.lines().count(), 3, "{all:?}");
    for (name, value, lacking) in
        [("HOME", &home, &["run", "cdi"][..]), ("XDG_RUNTIME_DIR", &run, &["state"])]
    {
        let ended = prepare(&[(name, value)]);
        assert_eq!(ended.err.lines().count(), lacking.len(), "{ended:?}");
        for dir in lacking {
            ended.failed(2, "USAGE", &format!("--{dir}-dir is needed"));
        }
        // Another is missing, not this one.
        assert!(!ended.err.contains(&format!("{name} ")), "{ended:?}");
    }
    prepare(&[("HOME", "relative"), ("XDG_RUNTIME_DIR", &run)]).failed(2, "USAGE", "HOME");
    prepare(&[("HOME", &home), ("XDG_RUNTIME_DIR", &run)]).ok();
    for own in ["home/.local/state/divvy", "run/divvy/claims", "run/divvy/cdi"] {
        assert!(world.path(own).is_dir(), "{own}");
    }
}
