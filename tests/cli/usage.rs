use std::{io::Read, process::Stdio};

use crate::support::World;

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
    world.write("c.yaml", crate::support::claim("a", "b", ""));
    let run = |more: &[&str]| -> crate::support::Ended {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_divvy"));
        command.current_dir(world.path("")).args(["prepare", "-f", "c.yaml"]).args(more);
        command.output().unwrap().into()
    };
    run(&[]).failed(2, "NO-GPUS", "--gpus sim:FILE");
    run(&["--gpus", "nvml"]).failed(2, "NO-GPUS", "this version has sim:FILE");
    run(&["--gpus", "sim:"]).failed(2, "NO-GPUS", "the file is missing behind sim:");
    run(&["--gpus", "h100x2.toml"]).failed(2, "NO-GPUS", "did you mean sim:h100x2.toml");
    run(&["--gpus", "sim:none.toml"]).failed(1, "UNREADABLE", "none.toml: no such file");
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
