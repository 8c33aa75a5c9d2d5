//! A crash may come at any moment: what it leaves is ended or brought back by whoever comes next.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader},
    os::unix::process::ExitStatusExt,
    process::Child,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::support::{SMALL, WHOLE, World, claim, time_slicing};

/// Waits, at most ten seconds, for something that must come.
#[track_caller]
fn soon(what: &str, mut is: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is() {
        assert!(start.elapsed() < Duration::from_secs(10), "{what} did not come");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The one journal entry, once it is there.
fn entry(world: &World) -> Option<Value> {
    let listing = fs::read_dir(world.path("state/claims")).ok()?;
    let mut paths = listing.map(|entry| entry.unwrap().path());
    let path = paths.find(|path| path.extension().is_some_and(|e| e == "json"))?;
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

/// `divvy prepare`, stopped where it wants to change the simulated node: its lock is taken.
fn stopped_before_the_first_step(world: &World) -> (Child, File) {
    let lock = File::options().append(true).create(true).open(world.path("node.lock")).unwrap();
    lock.lock().unwrap();
    let child = world.spawn(&mut world.command(&["prepare", "-f", "c.yaml"]));
    soon("a journal entry", || entry(world).is_some());
    (child, lock)
}

/// Kills `child` while it waits, then lets the lock go.
fn kill(mut child: Child, lock: File) {
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(9));
    drop(lock);
}

fn world() -> World {
    let world = World::new();
    world.write("c.yaml", claim("a", SMALL, ""));
    world
}

#[test]
fn killed_before_the_first_step_it_is_prepared_anew() {
    let world = world();
    let (child, lock) = stopped_before_the_first_step(&world);
    assert_eq!(entry(&world).unwrap()["stage"], "started");
    kill(child, lock);
    let answer = world.json(&["prepare", "-f", "c.yaml"]);
    assert_eq!(answer["claims"][0]["fresh"], true);
    world.divvy(&["unprepare", "a"]).ok();
    assert_eq!(world.left(), Vec::<String>::new());
}

#[test]
fn killed_before_the_first_step_it_can_be_ended() {
    let world = world();
    let (child, lock) = stopped_before_the_first_step(&world);
    kill(child, lock);
    assert_eq!(world.divvy(&["unprepare", "a"]).ok(), "claim default/a: ended\n");
    assert_eq!(world.left(), Vec::<String>::new());
}

#[test]
fn killed_after_a_partition_was_made_but_not_noted_it_is_ended() {
    let world = world();
    world.json(&["prepare", "-f", "c.yaml"]);
    // As it was between making the partition and noting its UUID.
    let path = format!("state/claims/{}.json", entry(&world).unwrap()["uid"].as_str().unwrap());
    let mut half = entry(&world).unwrap();
    half["stage"] = "started".into();
    half["steps"][0]["partition"]["uuid"] = Value::Null;
    world.write(&path, half.to_string());
    for dir in ["cdi", "run"] {
        fs::remove_dir_all(world.path(dir)).unwrap();
    }
    let once = world.node(&["--once"]).output().unwrap();
    assert!(once.status.success());
    let said = String::from_utf8(once.stderr).unwrap();
    assert_eq!(said, "claim default/a: was left half done, and is ended\n");
    assert_eq!(world.left(), Vec::<String>::new());
}

#[test]
fn killed_before_it_was_said_to_be_done_it_is_prepared_anew() {
    let world = world();
    world.json(&["prepare", "-f", "c.yaml"]);
    let mut half = entry(&world).unwrap();
    half["stage"] = "started".into();
    let path = format!("state/claims/{}.json", half["uid"].as_str().unwrap());
    world.write(&path, half.to_string());
    let again = world.json(&["prepare", "-f", "c.yaml"]);
    assert_eq!(again["claims"][0]["fresh"], true);
    assert_eq!(entry(&world).unwrap()["stage"], "done");
    let devices = world.json(&["devices"]);
    assert_eq!(devices["node"]["gpus"][1]["partitions"].as_array().unwrap().len(), 1);
}

#[test]
fn killed_while_ending_it_is_ended_by_the_next() {
    let world = world();
    world.json(&["prepare", "-f", "c.yaml"]);
    let lock = File::options().append(true).open(world.path("node.lock")).unwrap();
    lock.lock().unwrap();
    let child = world.spawn(&mut world.command(&["unprepare", "a"]));
    soon("the stage", || entry(&world).is_some_and(|entry| entry["stage"] == "started"));
    soon("the spec's end", || fs::read_dir(world.path("cdi")).unwrap().count() == 0);
    kill(child, lock);
    assert!(world.node(&["--once"]).status().unwrap().success());
    assert_eq!(world.left(), Vec::<String>::new());
}

#[test]
fn what_fails_half_way_is_undone() {
    // What stands in the way of the last steps, and is in nobody's way before: root or not.
    let uid = "d3e7a1f0-5f6c-4e57-8a5b-0d4d8e0b2c11";
    let spec = format!("cdi/gpu.divvy.dev-claim_{uid}.json/in-the-way");
    for (blocked, doing) in [(&*spec, "writing the CDI spec"), ("run/claims", "writing the record")]
    {
        let world = World::new();
        world.write(blocked, "");
        let small = claim("a", SMALL, "").replace("{name: a}", &format!("{{name: a, uid: {uid}}}"));
        world.write("c.yaml", small + &claim("b", WHOLE, &time_slicing("Short")));
        let ended = world.divvy(&["prepare", "-f", "c.yaml"]);
        assert_eq!(ended.code, Some(1), "{ended:?}");
        // The first cause stands first.
        let first = ended.err.lines().next().unwrap_or_default();
        assert!(first.contains(&format!("claim default/a: {doing}")), "{ended:?}");
        assert!(first.contains("cannot") && !first.contains("removing"), "{ended:?}");
        fs::remove_file(world.path(blocked)).unwrap();
        if blocked == spec {
            fs::remove_dir(world.path(blocked).parent().unwrap()).unwrap();
            // A directory where the spec goes cannot be removed as one, so the claim is still to be
            // ended; its devices are free already.
            assert!(ended.err.contains("removing the CDI spec failed"), "{ended:?}");
            world.divvy(&["unprepare", "a"]).ok();
        }
        assert_eq!(world.left(), Vec::<String>::new(), "{blocked}");
        world.json(&["prepare", "-f", "c.yaml"]);
    }
}

#[test]
fn two_at_once_wait_for_each_other() {
    let world = World::new();
    world.write("a.yaml", claim("a", WHOLE, ""));
    world.write("b.yaml", claim("b", WHOLE, ""));
    let lock = File::options().append(true).create(true).open(world.path("node.lock")).unwrap();
    lock.lock().unwrap();
    let spawn = |file: &str| world.spawn(&mut world.command(&["prepare", "-f", file]));
    let children = [spawn("a.yaml"), spawn("b.yaml"), spawn("a.yaml"), spawn("b.yaml")];
    drop(lock);
    let codes = children.map(|child| child.wait_with_output().unwrap().status.code());
    let (a, b) = ([codes[0], codes[2]], [codes[1], codes[3]]);
    // One claim has the GPU, whichever came first; the other never does.
    assert!(a == [Some(0); 2] && b == [Some(1); 2] || a == [Some(1); 2] && b == [Some(0); 2]);
}

/// The files of damaged entries that were kept.
fn kept(world: &World) -> Vec<String> {
    let names = |dir: fs::ReadDir| {
        dir.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    };
    fs::read_dir(world.path("state/damaged")).map(names).unwrap_or_default()
}

#[test]
fn a_damaged_entry_stops_what_would_have_its_gpu_and_is_made_anew() {
    let world = World::new();
    world.write("a.yaml", claim("a", SMALL, ""));
    world.write("b.yaml", claim("b", WHOLE, &time_slicing("Long")));
    let beside = SMALL.replace("1g10gb-0", "1g10gb-1");
    world.write("c.yaml", claim("c", &beside, ""));
    let before = world.json(&["prepare", "-f", "a.yaml"]);
    world.json(&["prepare", "-f", "b.yaml"]);
    let names = |answer: &Value| answer["claims"][0]["devices"].clone();
    let uid = |name: &str| {
        let target = fs::read_link(world.path("run/local/default").join(name)).unwrap();
        target.file_stem().unwrap().to_str().unwrap().to_owned()
    };
    let entry_of = |name: &str| format!("state/claims/{}.json", uid(name));
    let whole: Vec<Value> =
        ["a", "b"].map(|name| serde_json::from_str(&world.read(&entry_of(name))).unwrap()).into();
    for damage in ["{", ""] {
        world.write(&entry_of("a"), damage);
        world.write(&entry_of("b"), damage);
        world.divvy(&["prepare", "-f", "c.yaml"]).failed(1, "JOURNAL-INVALID", &entry_of("a"));
        let once = world.node(&["--once"]).output().unwrap();
        let said = String::from_utf8(once.stderr).unwrap();
        assert_eq!(once.status.code(), Some(0), "{said}");
        for name in ["a", "b"] {
            assert!(
                said.contains(&format!("claim default/{name}: its entry was made anew")),
                "{said}"
            );
        }
        for (name, whole) in ["a", "b"].iter().zip(&whole) {
            let anew: Value = serde_json::from_str(&world.read(&entry_of(name))).unwrap();
            assert_eq!(anew, *whole);
        }
    }
    assert_eq!(kept(&world).len(), 4);
    // It is the same claim, for whoever asks for it again.
    let again = world.json(&["prepare", "-f", "a.yaml"]);
    assert_eq!((&again["claims"][0]["fresh"], names(&again)), (&false.into(), names(&before)));
    world.json(&["prepare", "-f", "c.yaml"]);
    world.write(&entry_of("c"), "damaged");
    for name in ["a", "b"] {
        world.divvy(&["unprepare", name]).ok();
    }
    world.divvy(&["unprepare", "c"]).failed(1, "JOURNAL-INVALID", "`divvy-node --once`");
    assert!(world.node(&["--once"]).status().unwrap().success());
    world.divvy(&["unprepare", "c"]).ok();
    fs::remove_dir_all(world.path("state/damaged")).unwrap();
    assert_eq!(world.left(), Vec::<String>::new());
}

#[test]
fn what_tells_nothing_is_set_aside_and_stops_nobody() {
    let world = world();
    world.json(&["prepare", "-f", "c.yaml"]);
    for (name, damage) in [("x.json", "{"), ("stray", "")] {
        world.write(&format!("state/claims/{name}"), damage);
    }
    let once = world.node(&["--once"]).output().unwrap();
    let said = String::from_utf8(once.stderr).unwrap();
    assert_eq!(once.status.code(), Some(0), "{said}");
    assert!(said.contains("x.json: the journal entry is damaged: EOF"), "{said}");
    assert!(said.contains("no container gets its claim any more"), "{said}");
    assert!(said.contains("claim default/a: in step"), "{said}");
    let mut kept = kept(&world);
    kept.sort();
    assert_eq!(kept, ["stray", "x.json"]);
}

#[test]
fn what_an_entry_that_is_lost_leaves_on_the_gpus_is_named() {
    let world = world();
    let before = world.json(&["prepare", "-f", "c.yaml"]);
    let uuid = before["claims"][0]["devices"][0]["uuid"].as_str().unwrap().to_owned();
    let path = format!("state/claims/{}.json", entry(&world).unwrap()["uid"].as_str().unwrap());
    let says = format!("its claim had partition 1g.10gb at 0:1 ({uuid}) of GPU-");
    let spec = fs::read_dir(world.path("cdi")).unwrap().next().unwrap().unwrap().path();
    let (whole, bytes) = (world.read(&path), fs::read_to_string(&spec).unwrap());
    for once in [true, false] {
        world.write(&path, "{");
        let _gone_before = fs::remove_dir_all(world.path("run"));
        let said = match once {
            true => world.node(&["--once"]).output().unwrap(),
            false => world.command(&["prepare", "-f", "c.yaml"]).output().unwrap(),
        };
        let said = String::from_utf8(said.stderr).unwrap();
        assert!(said.contains(&says), "{said}");
        assert!(!spec.exists() && !world.path(&path).exists());
        world.write(&path, &whole);
        world.write(spec.to_str().unwrap(), &bytes);
    }
}

#[test]
fn an_entry_of_a_newer_divvy_stays_and_stops_what_would_have_its_gpu() {
    let world = world();
    world.write("w.yaml", claim("w", WHOLE, ""));
    world.json(&["prepare", "-f", "c.yaml"]);
    let path = format!("state/claims/{}.json", entry(&world).unwrap()["uid"].as_str().unwrap());
    let newer = world.read(&path).replace("\"version\": 1", "\"version\": 2");
    world.write(&path, &newer);
    world.json(&["prepare", "-f", "w.yaml"]);
    world.write("d.yaml", claim("d", SMALL, ""));
    world.divvy(&["prepare", "-f", "d.yaml"]).failed(1, "JOURNAL-NEWER", "a newer one wrote it");
    let once = world.node(&["--once"]).output().unwrap();
    assert_eq!(once.status.code(), Some(1), "{once:?}");
    world.divvy(&["unprepare", "a"]).failed(1, "JOURNAL-NEWER", "a newer one wrote it");
    assert_eq!(world.read(&path), newer);
}

#[test]
fn whoever_waits_says_for_whom() {
    let world = world();
    let (mut child, lock) = stopped_before_the_first_step(&world);
    let mut said = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut said).unwrap();
    drop(lock);
    assert!(child.wait().unwrap().success());
    let (path, me) = (world.path("node.lock"), std::process::id());
    let says = format!("waiting for {}, held by process {me} (", path.display());
    assert!(said.starts_with(&says), "{said}");
}

#[test]
fn what_was_half_written_is_swept_away() {
    let world = world();
    let dirs = ["cdi", "run/claims", "run/pods", "state/claims", ""];
    let plant = || {
        for dir in dirs {
            // No process has the largest number that there can be.
            let path = world.path(dir).join(".divvy-2147483647-0.tmp");
            world.write(&path.display().to_string(), "half");
        }
    };
    let left = || {
        let there = |dir: &&str| world.path(dir).join(".divvy-2147483647-0.tmp").exists();
        dirs.iter().filter(|dir| there(dir)).count()
    };
    plant();
    world.json(&["prepare", "-f", "c.yaml"]);
    assert_eq!(left(), 0, "prepare");
    plant();
    assert!(world.node(&["--once"]).status().unwrap().success());
    // The simulated node's own is swept when something changes on it.
    assert_eq!(left(), 1, "the daemon");
    plant();
    world.divvy(&["unprepare", "a"]).ok();
    assert_eq!(left(), 0, "unprepare");
}
