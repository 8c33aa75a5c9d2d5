//! Killed, or out of disk, at every change that it makes to the journal, a spec, a record or a lock:
//! whoever comes next finds the claim whole or nothing of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::Command,
};

use divvy_fake_nvml::Rule;
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
            ("a prepare of which any call of NVML fails or kills", calls_of_preparing),
            ("an unprepare of which any call of NVML fails or kills", calls_of_ending),
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
        support::command(&self.fake, program, args)
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

    /// It is whole or nothing; and whatever it was, the claim can be had, and ended.
    #[track_caller]
    fn then_whole_and_gone(&self, when: &str) {
        self.there(when);
        self.run(PREPARE);
        assert_eq!(self.there(when), There::Whole, "{when}");
        self.run(UNPREPARE);
        assert_eq!(self.there(when), There::Nothing, "{when}");
    }

    /// What it is after a program ended so, and after the daemon came round: one that says that it is
    /// done has done it, and of a claim that could not be prepared nothing is left.
    #[track_caller]
    fn then_as_it_said(&self, act: Act, code: Option<i32>, when: &str) {
        let done = if act == UNPREPARE { There::Nothing } else { There::Whole };
        if code == Some(0) {
            assert_eq!(self.there(when), done, "{when}: as it says");
        }
        self.run(ONCE);
        let there = self.there(when);
        match code {
            Some(0) => assert_eq!(there, done, "{when}: after a round"),
            // Unless it said that something of it is left.
            Some(_) if act == PREPARE && !when.contains(": removing the ") => {
                assert_eq!(there, There::Nothing, "{when}: it failed");
            }
            // Killed, or failed at ending it: whole or nothing.
            _ => {}
        }
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
/// comes round once, and the claim is there as it must be, and whole at any rate where it `stays`.
fn at_each_change(
    make: fn(&World),
    act: Act,
    fate: impl Fn(usize) -> Fate,
    stays: bool,
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
        assert_eq!(ended.code.is_none(), matches!(fate(at), Fate::Killed(_)), "{when}");
        world.then_as_it_said(act, ended.code, &when);
        assert!(!stays || world.there(&when) == There::Whole, "{when}");
        world.then_whole_and_gone(&when);
    }
    Outcome::Done
}

/// The same at each of its calls of NVML: by name, the first and the last, as most are about another
/// GPU or profile each time. They fail; those that change something also kill the process, or do
/// either after they took effect.
fn at_each_call(make: fn(&World), act: Act) -> Outcome {
    let world = World::new();
    if let Some(why) = support::no_nodes(&world.fake) {
        return Outcome::Skipped(why);
    }
    make(&world);
    world.fake.host.watch().unwrap();
    world.run(act);
    let mut calls = BTreeMap::<String, u64>::new();
    for call in world.fake.host.calls().unwrap() {
        let name = call.split(' ').next().unwrap().to_owned();
        *calls.entry(name).or_default() += 1;
    }
    // The library is shut down when all is done.
    calls.remove("nvmlShutdown");
    assert!(calls.len() > 8, "{calls:?}");
    for (call, count) in calls {
        for skip in BTreeSet::from([0, count - 1]) {
            let changes = ["Create", "Destroy", "Set"].iter().any(|word| call.contains(word));
            let ways = [(false, false), (false, true), (true, false), (true, true)];
            for (kill, after) in ways.into_iter().take(if changes { 4 } else { 1 }) {
                let world = World::new();
                make(&world);
                let fail = (!kill).then_some(999);
                let (call, times) = (call.clone(), Some(1));
                let rule = Rule { call, skip, times, kill, after, fail, ..Rule::default() };
                let when = format!("{rule:?}");
                world.fake.host.script(&[rule]).unwrap();
                let ended = world.command(act.0, act.1).output().unwrap();
                // A call that is answered with an error has no effect to be killed after.
                let killed = ended.status.signal().is_some();
                assert!(killed == kill || (after && !killed), "{when}: {ended:?}");
                assert!(world.fake.host.fitted(0).unwrap() > skip, "{when}: never came to that");
                world.fake.host.script(&[]).unwrap();
                world.then_as_it_said(act, ended.status.code(), &when);
                world.then_whole_and_gone(&when);
            }
        }
    }
    Outcome::Done
}

fn calls_of_preparing() -> Outcome {
    at_each_call(|_| {}, PREPARE)
}

fn calls_of_ending() -> Outcome {
    at_each_call(prepared, UNPREPARE)
}

fn prepared(world: &World) {
    world.run(PREPARE);
}

fn reloaded(world: &World) {
    world.run(PREPARE);
    world.fake.host.reload_driver("580.95.05").unwrap();
}

fn killed_preparing() -> Outcome {
    at_each_change(|_| {}, PREPARE, Fate::Killed, false)
}

fn killed_ending() -> Outcome {
    at_each_change(prepared, UNPREPARE, Fate::Killed, false)
}

fn killed_bringing_back() -> Outcome {
    at_each_change(reloaded, ONCE, Fate::Killed, true)
}

fn full_preparing() -> Outcome {
    at_each_change(|_| {}, PREPARE, |at| Fate::Refused(at, Errno::ENOSPC), false)
}

fn read_only_ending() -> Outcome {
    at_each_change(prepared, UNPREPARE, |at| Fate::Refused(at, Errno::EROFS), false)
}
