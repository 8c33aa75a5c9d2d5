use std::fs;

use crate::support::{SMALL, WHOLE, World, claim, time_slicing};

fn prepared() -> World {
    let world = World::new();
    world.write("c.yaml", claim("a", SMALL, "") + &claim("b", WHOLE, &time_slicing("Short")));
    world.json(&["prepare", "-f", "c.yaml"]);
    world
}

#[test]
fn nothing_is_left() {
    let world = prepared();
    world.divvy(&["unprepare", "a"]).ok();
    world.divvy(&["unprepare", "default/b"]).ok();
    assert_eq!(world.left(), Vec::<String>::new());
    let world = prepared();
    assert_eq!(
        world.divvy(&["unprepare", "-f", "c.yaml"]).ok(),
        "claim default/a: ended\nclaim default/b: ended\n"
    );
    assert_eq!(world.left(), Vec::<String>::new());
}

#[test]
fn it_can_be_repeated_and_says_what_there_is() {
    let world = prepared();
    world.divvy(&["unprepare", "a"]).ok();
    let again = world.divvy(&["unprepare", "a"]);
    assert_eq!(again.ok(), "claim default/a: was not prepared (prepared: default/b)\n");
    let json = world.json(&["unprepare", "a"]);
    assert_eq!(json["claims"][0]["ended"], false);
}

#[test]
fn the_journal_is_all_it_needs() {
    let world = prepared();
    fs::remove_file(world.path("c.yaml")).unwrap();
    for dir in ["cdi", "run"] {
        fs::remove_dir_all(world.path(dir)).unwrap();
    }
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_divvy"));
    command.args(["unprepare", "a", "--state-dir"]).arg(world.path("state"));
    command.arg("--run-dir").arg(world.path("run")).arg("--cdi-dir").arg(world.path("cdi"));
    assert!(command.status().unwrap().success(), "without --gpus");
    world.divvy(&["unprepare", "b"]).ok();
    assert_eq!(world.left(), Vec::<String>::new());
}

#[test]
fn where_the_gpus_are_gone_the_rest_is_ended_and_the_entry_stays() {
    let world = prepared();
    fs::rename(world.path("node.toml"), world.path("away")).unwrap();
    let ended = world.divvy(&["unprepare", "a"]);
    ended.failed(1, "GPUS-MISSING", "node.toml: no such file");
    assert!(
        ended.err.contains("its GPUs still hold what it was given: the GPUs sim:/"),
        "{ended:?}"
    );
    assert!(ended.err.contains("\n  help: bring them back"), "{ended:?}");
    assert_eq!(ended.err.lines().count(), 2, "{ended:?}");
    assert_eq!(fs::read_dir(world.path("cdi")).unwrap().count(), 1, "only b's spec is left");
    fs::rename(world.path("away"), world.path("node.toml")).unwrap();
    world.divvy(&["unprepare", "a"]).ok();
    world.divvy(&["unprepare", "b"]).ok();
    assert_eq!(world.left(), Vec::<String>::new());
}

#[test]
fn a_partition_that_is_no_longer_ours_stays() {
    let world = prepared();
    let state = world.read("node.state.json").replace("MIG-", "MIG-x");
    world.write("node.state.json", state);
    world.divvy(&["unprepare", "a"]).ok();
    world.divvy(&["unprepare", "b"]).ok();
    assert_eq!(world.left(), [format!("\"{SMALL}\"")]);
}

#[test]
fn a_claim_of_the_api_is_never_reached_by_name() {
    let world = prepared();
    let entry = fs::read_dir(world.path("state/claims")).unwrap().map(|e| e.unwrap().path());
    let entry = entry
        .filter(|path| path.extension().is_some())
        .find(|path| fs::read_to_string(path).unwrap().contains("\"name\": \"a\""));
    let name = entry.unwrap().display().to_string();
    let text = fs::read_to_string(&name).unwrap().replace("\"local\"", "\"api\"");
    world.write(&name, text);
    assert!(world.divvy(&["unprepare", "a"]).ok().contains("was not prepared"));
    assert!(world.divvy(&["unprepare", "-f", "c.yaml"]).ok().contains("a: was not prepared"));
}

#[test]
fn it_is_ended_where_it_was_prepared() {
    let world = World::new();
    world.write("c.yaml", claim("a", SMALL, ""));
    let mut elsewhere = std::process::Command::new(env!("CARGO_BIN_EXE_divvy"));
    elsewhere.current_dir(world.path("")).args(["prepare", "-f", "c.yaml", "--gpus"]);
    elsewhere.args(["sim:node.toml", "--state-dir", "state", "--run-dir", "r", "--cdi-dir", "c"]);
    assert!(elsewhere.output().unwrap().status.success());
    let specs = || fs::read_dir(world.path("c")).unwrap().count();
    let records = || fs::read_dir(world.path("r/claims")).unwrap().count();
    assert_eq!((specs(), records()), (1, 1));
    // Not a second time somewhere else.
    world.divvy(&["prepare", "-f", "c.yaml"]).failed(1, "CLAIM-PREPARED", "--cdi-dir has changed");
    assert!(world.node(&["--once"]).status().unwrap().success());
    assert_eq!((specs(), records()), (1, 1));
    world.divvy(&["unprepare", "a"]).ok();
    assert_eq!((specs(), records()), (0, 0));
    assert_eq!(world.left(), Vec::<String>::new());
}

#[test]
fn what_was_ended_is_said_though_another_failed() {
    let world = World::new();
    world.write("away.toml", crate::support::NODE);
    world.write("c.yaml", claim("a", SMALL, "") + &claim("b", WHOLE, ""));
    world.json(&["prepare", "-f", "c.yaml", "--name", "a"]);
    let mut other = std::process::Command::new(env!("CARGO_BIN_EXE_divvy"));
    other.current_dir(world.path("")).args(["prepare", "-f", "c.yaml", "--name", "b", "--gpus"]);
    other.arg("sim:away.toml");
    for dir in ["cdi", "run", "state"] {
        other.arg(format!("--{dir}-dir")).arg(world.path(dir));
    }
    assert!(other.output().unwrap().status.success());
    fs::remove_file(world.path("node.toml")).unwrap();
    let ended = world.divvy(&["unprepare", "-f", "c.yaml"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert_eq!(ended.out, "claim default/b: ended\n");
    assert!(ended.err.contains("claim default/a"), "{ended:?}");
}

#[test]
fn a_slip_in_the_name_does_not_look_like_success() {
    let world = World::new();
    let other = claim("two-halves", SMALL, "")
        .replace("name: two-halves}", "name: two-halves, namespace: team-a}");
    world.write("c.yaml", other + &claim("train-1", WHOLE, ""));
    world.json(&["prepare", "-f", "c.yaml"]);
    let before = world.snapshot();
    for (name, meant) in [
        ("two-halves", "did you mean team-a/two-halves?"),
        ("trian-1", "did you mean default/train-1?"),
        ("team-a/two-halvs", "did you mean team-a/two-halves?"),
    ] {
        world.divvy(&["unprepare", name]).failed(1, "CLAIM-NOT-PREPARED", meant);
    }
    // Each of these may have been ended before, and is none of the others.
    for name in ["train-2", "train-10", "train-x", "team-b/two-halves", "other"] {
        assert!(world.divvy(&["unprepare", name]).ok().contains("was not prepared"), "{name}");
    }
    assert_eq!(world.snapshot(), before);
}
