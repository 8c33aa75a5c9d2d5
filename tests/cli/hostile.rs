//! Any bytes at all: a clear error, an exit code, no panic, no hang, and nothing changed.

use std::{
    os::unix::fs::symlink,
    process::Command,
    time::{Duration, Instant},
};

use crate::support::{WHOLE, World, claim};

/// Runs `divvy` with these arguments; it must end soon and on its own, with a code of the table.
#[track_caller]
fn ends(world: &World, args: &[&str]) {
    let mut child = world.spawn(&mut world.command(args));
    let start = Instant::now();
    let code = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status.code();
        }
        if start.elapsed() > Duration::from_secs(20) {
            child.kill().unwrap();
            panic!("{args:?} does not end");
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let output = child.wait_with_output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(matches!(code, Some(1 | 3 | 4)), "{args:?}: {code:?} {err}");
    assert!(!err.contains("panicked"), "{err}");
    assert!(args[0] == "lint" || err.starts_with("error["), "{err}");
    assert!(err.len() < 20_000, "{} bytes of error", err.len());
}

/// Everything that a file can be.
fn files(world: &World) -> Vec<String> {
    world.write("empty", "");
    world.write("binary", (0..=255u8).cycle().take(5000).collect::<Vec<_>>());
    world.write("nul", "kind: \0\n");
    world.write("deep", "[".repeat(100_000));
    world.write("deeper", format!("a: {}", "{b: ".repeat(50_000)));
    world.write("lines", "- ".repeat(30_000));
    world.write("huge", vec![b'x'; 5 << 20]);
    world.write("bomb", bomb());
    world.write("bom", "\u{feff}kind: ResourceClaim\n");
    world.write("twice", claim("a", WHOLE, "").replace("kind:", "kind: Pod\nkind:"));
    world.write("loop", "a: &a [*a]\n");
    world.write("list", "kind: List\napiVersion: v1\nitems: 3\n");
    symlink("itself", world.path("itself")).unwrap();
    assert!(Command::new("mkfifo").arg(world.path("fifo")).status().unwrap().success());
    let made = [
        "empty", "binary", "nul", "deep", "deeper", "lines", "huge", "bomb", "bom", "twice",
        "loop", "list",
    ];
    let others = ["itself", "fifo", ".", "/dev/zero", "none/none"];
    made.iter().chain(&others).map(|name| (*name).to_owned()).collect()
}

/// Nine levels of nine aliases each.
fn bomb() -> String {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..9 {
        let one = format!("*a{}", level - 1);
        text.push_str(&format!("a{level}: &a{level} [{}]\n", [one.as_str(); 9].join(", ")));
    }
    text
}

#[test]
fn as_a_manifest() {
    let world = World::new();
    for file in files(&world) {
        ends(&world, &["prepare", "-f", &file]);
        ends(&world, &["unprepare", "-f", &file]);
    }
    assert_eq!(world.snapshot(), []);
}

#[test]
fn as_a_config_or_a_spec() {
    let world = World::new();
    world.write("specs/x.json", r#"{"cdiVersion":"0.3.0","kind":"v.com/x","devices":[{"name":"a","containerEdits":{"env":["A=b"]}}]}"#);
    for file in files(&world) {
        ends(&world, &["inject", "--spec-dir", "specs", "--device", "v.com/x=a", &file]);
        // A directory is no bad thing to lint.
        if file != "." {
            ends(&world, &["lint", &file]);
        }
    }
}

#[test]
fn as_a_node_file() {
    let world = World::new();
    world.write("c.yaml", claim("a", WHOLE, ""));
    for file in files(&world) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_divvy"));
        command.current_dir(world.path("")).args(["prepare", "-f", "c.yaml", "--gpus"]);
        command.arg(format!("sim:{file}"));
        for dir in ["cdi", "run", "state"] {
            command.arg(format!("--{dir}-dir")).arg(world.path(dir));
        }
        let ended: crate::support::Ended = command.output().unwrap().into();
        assert!(matches!(ended.code, Some(1 | 4)), "{file}: {ended:?}");
        assert!(ended.err.starts_with("error["), "{file}: {ended:?}");
    }
    assert_eq!(world.snapshot(), []);
}

#[test]
fn names_that_reach_for_other_files() {
    let world = World::new();
    world.write("c.yaml", claim("a", WHOLE, ""));
    world.json(&["prepare", "-f", "c.yaml"]);
    let before = world.snapshot();
    for name in [
        "../a",
        "default/../a",
        "/",
        "",
        "default/a/b",
        "..",
        "a\nb",
        "%2e",
        "x".repeat(2000).as_str(),
    ] {
        let ended = world.divvy(&["unprepare", name]);
        ended.failed(2, "USAGE", "names no claim");
        assert!(ended.err.lines().count() == 1 && ended.err.len() < 400, "{ended:?}");
        // Before anything is read.
        let prepared = world.divvy(&["prepare", "-f", "none", "--name", name]);
        assert_eq!((prepared.code, prepared.err), (Some(2), ended.err));
    }
    assert_eq!(world.snapshot(), before);
}

#[test]
fn what_a_terminal_would_take_for_commands_is_shown_as_text() {
    let world = World::new();
    let escape = "\u{1b}[2J\u{7}";
    world.write(
        "kind",
        format!("apiVersion: v1\nkind: {}\n", serde_json::to_string(escape).unwrap()),
    );
    world.write(
        "key",
        claim("a", WHOLE, &crate::support::time_slicing("Short")).replace(
            "kind: GpuConfig",
            &format!(
                "kind: GpuConfig, {}: 1",
                serde_json::to_string(&format!("{escape}\n{}", "x".repeat(9000))).unwrap()
            ),
        ),
    );
    for file in ["kind", "key", escape] {
        let ended = world.divvy(&["prepare", "-f", file]);
        assert!(ended.err.starts_with("error["), "{ended:?}");
        assert!(!ended.err.contains(['\u{1b}', '\u{7}']), "{ended:?}");
        assert!(ended.err.len() < 5000, "{} bytes", ended.err.len());
        assert!(ended.err.lines().count() <= 2, "{ended:?}");
    }
}

#[test]
fn arguments_that_are_no_text() {
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt};
    let world = World::new();
    let odd = OsStr::from_bytes(b"\xff\xfe");
    for (args, code) in [
        (&["prepare", "-f"][..], 1),
        (&["lint"], 1),
        (&["lint", "-o", "json"], 1),
        (&["devices", "-o", "json", "--spec-dir"], 0),
        (&["unprepare"], 2),
        (&["inject", "--device", "v.com/x=a", "--spec-dir"], 2),
        (&["inject", "--device"], 2),
        (&[], 2),
    ] {
        let output = world.command(&[]).args(args).arg(odd).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {output:?}");
        assert!(!output.stderr.is_empty() || !output.stdout.is_empty());
    }
}

#[test]
fn directories_that_others_can_write_are_not_used() {
    use std::{fs, os::unix::fs::PermissionsExt};
    let world = World::new();
    world.write("c.yaml", claim("a", WHOLE, ""));
    fs::create_dir(world.path("state")).unwrap();
    let set = |dir: &str, mode| {
        fs::set_permissions(world.path(dir), fs::Permissions::from_mode(mode)).unwrap();
    };
    for (dir, shown) in [("state", "state"), ("", "not trusted")] {
        set(dir, 0o777);
        world.divvy(&["prepare", "-f", "c.yaml"]).failed(1, "UNTRUSTED", shown);
        set(dir, 0o755);
    }
    assert_eq!(world.left(), Vec::<String>::new());
    world.json(&["prepare", "-f", "c.yaml"]);
    set("state", 0o777);
    world.divvy(&["unprepare", "a"]).failed(1, "UNTRUSTED", "everybody can write it");
}
