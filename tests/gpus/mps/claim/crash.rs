//! Killed at every change that it makes to the journal, a spec, a record or a daemon's directories:
//! whoever comes next finds the claim whole, with its daemon, or nothing of it.

use std::fs;

use super::{DIVVY, NODE, UID, WHOLE, World};
use crate::{
    Outcome,
    trace::{self, Fate},
};

pub(super) fn preparing() -> Outcome {
    at_each_change(|_| {}, &["prepare", "-f", "claim.yaml"])
}

pub(super) fn ending() -> Outcome {
    at_each_change(|world| drop(world.prepare()), &["unprepare", "c"])
}

fn at_each_change(make: fn(&World), act: &[&str]) -> Outcome {
    if !cfg!(target_arch = "x86_64") {
        return Outcome::Skipped("calls are watched by the registers of x86_64".to_owned());
    }
    let mut changes = usize::MAX;
    let mut at = 0;
    while at < changes {
        let world = world!();
        world.claim(WHOLE, "GpuConfig", "{defaultActiveThreadPercentage: 20}");
        make(&world);
        let fate = if changes == usize::MAX { Fate::Runs } else { Fate::Killed(at) };
        let ended = trace::run(&world.command(DIVVY, act), &world.host.path("divvy"), fate);
        if let Fate::Runs = fate {
            assert_eq!(ended.code, Some(0), "{ended:?}");
            assert!(ended.changes > 20, "{ended:?}");
            changes = ended.changes;
        } else {
            at += 1;
        }
        let when = format!("{fate:?}");
        world.run(NODE, &["--once"], true);
        if is_there(&world, &when) {
            let mut container = world.container(0);
            assert!(container.given().contains("percentage=20"), "{when}");
            container.end();
            world.run(DIVVY, &["unprepare", "c"], true);
        }
        world.nothing_left();
        assert!(!is_there(&world, &when), "{when}");
    }
    Outcome::Done
}

/// Whether the claim is there, with all that belongs to it.
#[track_caller]
fn is_there(world: &World, when: &str) -> bool {
    let entry = world.host.path("divvy/state/claims").join(format!("{UID}.json")).exists();
    let spec = fs::read_dir(world.host.path("divvy/cdi")).map_or(0, Iterator::count);
    let record = world.host.path("divvy/run/claims").join(format!("{UID}.json")).exists();
    let daemons = super::daemons(world).len();
    match (entry, spec, record, daemons, world.mode(0)) {
        (true, 1, true, 1, 3) => true,
        (false, 0, false, 0, 0) => false,
        there => panic!("{when}: {there:?}"),
    }
}
