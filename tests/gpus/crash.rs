//! Killed, or out of disk, at every change that it makes to the journal, a spec, a record or a lock:
//! whoever comes next finds the claim whole or nothing of it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use nix::errno::Errno;

use super::{
    Outcome, Test, named,
    support::{self, Fake, Gpu, fake},
    trace::{self, Ended, Fate},
};

const GPUS: &[Gpu] = &[("H100-80GB", false), ("H100-80GB", true)];

/// Every kind of step, one of them twice.
const CLAIM: &str = "
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: c}
spec:
  devices:
    requests:
    - {name: a, exactly: {deviceClassName: mig.gpu.divvy.dev, count: 2}}
    - {name: b, exactly: {deviceClassName: gpu.divvy.dev}}
    config:
    - requests: [b]
      opaque:
        driver: gpu.divvy.dev
        parameters: {apiVersion: gpu.divvy.dev/v1alpha1, kind: GpuConfig, sharing: {timeSlicing: {interval: Long}}}
";

pub(crate) fn tests() -> Vec<Test> {
    named(
        "crash",
        &[
            ("a prepare that is killed anywhere", killed_preparing),
            ("an unprepare that is killed anywhere", killed_ending),
            ("bringing back, killed anywhere", killed_bringing_back),
            ("a prepare on a disk that is full from anywhere on", full_preparing),
            ("an unprepare on a disk that is read-only from anywhere on", read_only_ending),
        ],
    )
}

struct World {
    fake: Fake,
}

/// What is there of the claim.
#[derive(Debug, PartialEq, Eq)]
enum There {
    Whole,
    Nothing,
}

impl World {
    fn new() -> Self {
        let world = Self { fake: fake(GPUS) };
        support::write(&world.path("claim.yaml"), CLAIM);
        support::hook(world.fake.host.root());
        world
    }

    fn path(&self, name: &str) -> PathBuf {
        self.fake.host.root().join(name)
    }

    fn command(&self, program: &str, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.fake.host.root()).args(args);
        command.arg("--gpus").arg(format!("nvml:{}", self.fake.host.root().display()));
        command.arg("--hook").arg(self.path("divvy-hook"));
        for place in ["state", "cdi", "run"] {
            command.arg(format!("--{place}-dir")).arg(self.path("divvy").join(place));
        }
        command
    }

    fn traced(&self, act: Act, fate: Fate) -> Ended {
        let (program, args) = act;
        trace::run(&self.command(program, args), &self.path("divvy"), fate)
    }

    #[track_caller]
    fn run(&self, act: Act) -> String {
        let output = self.command(act.0, act.1).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{act:?}: {said}");
        said
    }

    fn files(&self, dir: &str) -> Vec<PathBuf> {
        let mut found = Vec::new();
        walk(&self.path("divvy").join(dir), &mut found);
        found
    }

    /// Whole, or nothing at all; anything between is told.
    #[track_caller]
    fn there(&self, when: &str) -> There {
        let state = self.fake.host.state().unwrap();
        let partitions: Vec<&str> = state.gpus[1]
            .instances
            .iter()
            .map(|instance| instance.compute.first().expect(when).uuid.as_str())
            .collect();
        let slice = self.fake.host.time_slice(&self.fake.uuid(0)).unwrap();
        let entries = self.files("state/claims");
        let (specs, records) = (self.files("cdi"), self.files("run"));
        let numbers = (partitions.len(), slice.as_str(), entries.len(), specs.len(), records.len());
        match numbers {
            (0, "0", 0, 0, 0) => There::Nothing,
            // The record and its name.
            (2, "3", 1, 1, 2) => {
                let spec = fs::read_to_string(&specs[0]).unwrap();
                for uuid in partitions {
                    assert!(spec.contains(uuid), "{when}: {uuid} is not in {spec}");
                }
                There::Whole
            }
            _ => panic!("{when}: {numbers:?}"),
        }
    }
}

type Act = (&'static str, &'static [&'static str]);
const PREPARE: Act = (env!("CARGO_BIN_EXE_divvy"), &["prepare", "-f", "claim.yaml"]);
const UNPREPARE: Act = (env!("CARGO_BIN_EXE_divvy"), &["unprepare", "c"]);
const ONCE: Act = (env!("CARGO_BIN_EXE_divvy-node"), &["--once"]);

fn walk(dir: &Path, found: &mut Vec<PathBuf>) {
    let Ok(listing) = fs::read_dir(dir) else { return };
    for entry in listing {
        let path = entry.unwrap().path();
        match fs::symlink_metadata(&path).unwrap().is_dir() {
            true => walk(&path, found),
            false => found.push(path),
        }
    }
}

/// In a world that is made for each, `act` meets its fate at each of its changes; then the daemon
/// comes round once, and `check` says what may be there.
fn at_each_change(
    make: fn(&World),
    act: Act,
    fate: impl Fn(usize) -> Fate,
    check: impl Fn(&World, &str),
) -> Outcome {
    let world = World::new();
    if let Some(why) = support::no_nodes(&world.fake) {
        return Outcome::Skipped(why);
    }
    if !cfg!(target_arch = "x86_64") {
        return Outcome::Skipped("calls are refused by the registers of x86_64".to_owned());
    }
    make(&world);
    let whole = world.traced(act, Fate::Runs);
    assert_eq!(whole.code, Some(0), "{whole:?}");
    assert!(whole.changes > 12, "{whole:?}");
    for at in 0..whole.changes {
        let world = World::new();
        make(&world);
        let ended = world.traced(act, fate(at));
        let when = format!("{:?}: {}", fate(at), ended.said);
        assert_ne!(ended.code, Some(101), "{when}");
        world.run(ONCE);
        check(&world, &when);
        // Whatever it was, the claim can be had, and ended.
        world.run(PREPARE);
        assert_eq!(world.there(&when), There::Whole, "{when}");
        world.run(UNPREPARE);
        assert_eq!(world.there(&when), There::Nothing, "{when}");
    }
    Outcome::Done
}

fn prepared(world: &World) {
    world.run(PREPARE);
}

fn reloaded(world: &World) {
    world.run(PREPARE);
    world.fake.host.reload_driver("580.95.05").unwrap();
}

fn killed_preparing() -> Outcome {
    at_each_change(
        |_| {},
        PREPARE,
        Fate::Killed,
        |world, when| {
            world.there(when);
        },
    )
}

fn killed_ending() -> Outcome {
    at_each_change(prepared, UNPREPARE, Fate::Killed, |world, when| {
        world.there(when);
    })
}

fn killed_bringing_back() -> Outcome {
    at_each_change(reloaded, ONCE, Fate::Killed, |world, when| {
        assert_eq!(world.there(when), There::Whole, "{when}");
    })
}

fn full_preparing() -> Outcome {
    let full = |at| Fate::Refused(at, Errno::ENOSPC);
    at_each_change(
        |_| {},
        PREPARE,
        full,
        |world, when| {
            world.there(when);
        },
    )
}

fn read_only_ending() -> Outcome {
    let read_only = |at| Fate::Refused(at, Errno::EROFS);
    at_each_change(prepared, UNPREPARE, read_only, |world, when| {
        world.there(when);
    })
}
