//! What a daemon is told: its users, its limits, its GPUs' compute modes, its name.

use divvy::{
    gpu::{ComputeMode, Gpus},
    mps::Mps,
};
use divvy_fake_nvml::mps::Script;

use super::{PATIENCE, SHORT, World, fails};
use crate::{Outcome, support::eventually};

pub(super) fn one_user() -> Outcome {
    let world = world!();
    let running = world.start();
    let (mut first, mut second) = (world.client(1000), world.client(1000));
    assert!(first.given().starts_with("user=1000"));
    assert!(second.given().starts_with("user=1000"));
    let mut other = world.client(2000);
    eventually("the other user's wait", || world.log().contains("push client to pending list"));
    first.end();
    assert!(other.runs());
    second.end();
    assert!(other.given().starts_with("user=2000"));
    other.end();
    world.stop(Some(running.process));
    Outcome::Done
}

pub(super) fn all_users() -> Outcome {
    let mut world = world!();
    world.setup.multi_user = true;
    let running = world.start();
    let (mut one, mut other) = (world.client(1000), world.client(2000));
    assert!(one.given().starts_with("user=0 "));
    assert!(other.given().starts_with("user=0 "));
    world.stop(Some(running.process));
    Outcome::Done
}

pub(super) fn no_multi_user() -> Outcome {
    let mut world = world!();
    world.setup.multi_user = true;
    world.script(&Script { single_user: true, ..Script::default() });
    let started = world.with(PATIENCE, |mps| mps.start(&world.setup));
    fails(started, "MPS-START", &["multiUser needs a driver"]);
    world.nothing_left();
    Outcome::Done
}

pub(super) fn no_cgroup() -> Outcome {
    let world = world!();
    let (gpus, dir, empty) = (&world.host.fake.nvml, world.dir(), tempfile::tempdir().unwrap());
    let mps = Mps { gpus, dir: &dir, cgroups: empty.path(), patience: PATIENCE };
    let mut running = mps.start(&world.setup).unwrap();
    let why = running.no_cgroup.clone().unwrap();
    assert!(why.contains("no cgroups are mounted at"), "{why}");
    assert_eq!(world.cgroups(), [""; 0]);
    // Where they can be had later, it gets one.
    assert!(!world.ensure(&mut running).unwrap());
    assert_eq!(running.no_cgroup, None);
    assert_ne!(world.cgroups(), [""; 0]);
    world.stop(Some(running.process));
    Outcome::Done
}

pub(super) fn compute_mode() -> Outcome {
    let mut world = world!();
    let gpu = world.host.fake.uuid(0);
    let mode = |world: &World| world.host.fake.inventory().gpus[0].compute_mode;
    for before in [ComputeMode::Default, ComputeMode::Prohibited] {
        world.host.fake.nvml.set_compute_mode(&gpu, before).unwrap();
        world.setup.modes = [(gpu.clone(), before)].into();
        let mut running = world.start();
        assert_eq!(mode(&world), ComputeMode::ExclusiveProcess);
        // Set back by somebody.
        world.host.fake.nvml.set_compute_mode(&gpu, ComputeMode::Default).unwrap();
        world.with(PATIENCE, |mps| mps.exclude(&world.setup)).unwrap();
        assert_eq!(mode(&world), ComputeMode::ExclusiveProcess);
        assert!(!world.ensure(&mut running).unwrap());
        world.stop(Some(running.process));
        assert_eq!(mode(&world), before);
        world.script(&Script { never_ready: true, ..Script::default() });
        let started = world.with(SHORT, |mps| mps.start(&world.setup));
        fails(started, "MPS-START", &["not ready"]);
        assert_eq!(mode(&world), before);
        world.script(&Script::default());
    }
    // What is left says how they were.
    let running = world.start();
    let left = world.with(PATIENCE, |mps| mps.left(&world.setup.name)).unwrap();
    assert_eq!(left, world.setup);
    world.stop(Some(running.process));
    Outcome::Done
}

pub(super) fn names() -> Outcome {
    let mut world = world!();
    for (name, says) in [
        ("../x", "is no name"),
        ("a/b", "is no name"),
        ("", "is no name"),
        (".", "is no name"),
        (&"x".repeat(90), "has at most 107 bytes"),
    ] {
        name.clone_into(&mut world.setup.name);
        let error = world.with(PATIENCE, |mps| mps.start(&world.setup)).unwrap_err();
        let source = std::error::Error::source(&error).unwrap().to_string();
        assert!(source.contains(says), "{name}: {error}: {source}");
        assert_eq!(error.code(), "UNWRITABLE");
    }
    Outcome::Done
}

pub(super) fn log() -> Outcome {
    let world = world!();
    let mut running = world.start();
    let logs = ["control.log", "server.log"].map(|name| world.place().join("log").join(name));
    for log in &logs {
        let mut options = std::fs::OpenOptions::new();
        options.append(true).create(true).open(log).unwrap().set_len(2 << 20).unwrap();
    }
    assert!(!world.ensure(&mut running).unwrap());
    assert!(!world.ensure(&mut running).unwrap());
    for log in &logs {
        assert!(std::fs::metadata(log).unwrap().len() < 1 << 20, "{}", log.display());
    }
    assert!(world.log().ends_with("2G\n"), "{}", world.log());
    world.stop(Some(running.process));
    Outcome::Done
}
