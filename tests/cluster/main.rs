//! Runs divvy's DRA driver on real Kubernetes nodes: the API server, its controllers, the scheduler and the kubelet with
//! etcd, containerd and runc, in namespaces of their own; GPUs are those of a fake host (`divvy-fake-nvml`).
//!
//! A few nodes serve the tests, each one test at a time, and each is compared with a clean one after it. With
//! VERSIONS=all in the environment the tests run on the oldest Kubernetes as well, as `NAME::old`.
//!
//! A group of tests is a file here, whose `tests()` stands in [`GROUPS`]: [`group`] makes it of functions that get a
//! [`Node`]. They leave nothing of their own outside the default namespace; what is in it is deleted after each.
//!
//! To try something by hand, `make hook`, then `cargo test --test cluster -- shell`: a shell on such a node, with kubectl,
//! the programs of this build below /programs, and all logs below /var/log/node; the node ends with the shell. It reads
//! its commands from a pipe as well: `cargo test --test cluster -- shell <try.sh`. `-- bench` measures instead
//! (`make bench`, which builds for it as releases are built).
#![allow(
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::expect_used,
    clippy::indexing_slicing,
    missing_debug_implementations,
    reason = "this is a test: it talks to a terminal, and may panic"
)]
#![allow(missing_docs, unreachable_pub, reason = "nothing here is used from elsewhere")]

use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};
use libtest_mimic::{Arguments, Completion, Failed, Trial};

#[path = "../engines/device.rs"]
#[allow(dead_code, reason = "the engines' tests use the rest")]
mod device;
#[path = "../engines/fixture.rs"]
#[allow(dead_code, reason = "the engines' tests use the rest")]
mod fixture;
#[path = "../engines/hook.rs"]
#[allow(dead_code, reason = "the engines' tests use the rest")]
mod hook;
#[path = "../engines/sandbox/mod.rs"]
#[allow(dead_code, reason = "the engines' tests use the rest")]
mod sandbox;

mod api;
mod bench;
mod churn;
mod claims;
mod clean;
mod deploy;
mod devices;
mod driver;
mod examples;
mod health;
mod manifest;
mod mig;
mod node;
mod plain;
mod pods;
mod report;
mod rights;
mod rolling;
mod sharing;
mod shim;
mod slices;
mod traces;
mod trouble;
mod versions;
mod webhook;

use clean::Snapshot;
use fixture::{Fixture, Missing};
use node::Node;
use sandbox::End;

/// A test: its name, the GPUs that it wants a driver for, and what it does on the node.
#[derive(Clone, Copy)]
pub struct Test {
    name: &'static str,
    gpus: Gpus,
    run: Body,
}

pub type Body = fn(&mut Node) -> Result<()>;

/// Models, and whether MIG mode is on; none, and there is no driver.
pub type Gpus = &'static [(&'static str, bool)];

/// The nodes: a test has one to itself, and hands it on.
struct Nodes {
    fixture: Result<Fixture, Missing>,
    idle: Mutex<Vec<Node>>,
    /// Why there can be none: it is tried once.
    none: Mutex<Option<String>>,
    /// Which tests have failed, and the first words of why.
    failed: Mutex<Vec<String>>,
}

/// All tests; those that wait longest come first.
const GROUPS: [fn() -> Vec<Test>; 18] = [
    churn::tests,
    rolling::tests,
    trouble::tests,
    deploy::tests,
    webhook::tests,
    devices::tests,
    examples::tests,
    claims::tests,
    mig::tests,
    shim::tests,
    sharing::tests,
    slices::tests,
    health::tests,
    report::tests,
    rights::tests,
    traces::tests,
    versions::tests,
    plain::tests,
];

/// How many nodes there are at once: a test is more waiting than work.
const NODES: usize = 3;

/// As much as is said of a failure at the end, in characters.
const SHORT: usize = 300;

/// Tests that want these GPUs.
pub fn group<const N: usize>(gpus: Gpus, tests: [(&'static str, Body); N]) -> Vec<Test> {
    tests.map(|(name, run)| Test { name, gpus, run }).to_vec()
}

// === impl Test ===

impl Test {
    /// Runs it on the node, which is as before then.
    fn on(self, node: &mut Node) -> Result<()> {
        node.provide(self.gpus)?;
        let before = Snapshot::settled(node)?;
        let done = (self.run)(node);
        // What a failure has left is of no interest beside it.
        done.and_then(|()| node.come_clean(&before))
    }
}

// === impl Nodes ===

impl Nodes {
    /// Whether this machine could run the test, and why not.
    fn run(&self, test: Test, end: End) -> Result<Completion> {
        let fixture = match &self.fixture {
            Err(Missing::Here(reason)) => return Ok(Completion::ignored_with(reason)),
            Err(Missing::Broken(error)) => anyhow::bail!("{error:#}"),
            Ok(fixture) => fixture,
        };
        let mut node = match self.take(test.gpus, end) {
            Some(node) => node,
            None => self.start(fixture, end)?,
        };
        // After a failure the next test gets another node.
        test.on(&mut node).map_err(|error| {
            let name = test.name.replace("::", "-");
            error.context(node.account(&name))
        })?;
        self.idle().push(node);
        Ok(Completion::Completed)
    }

    /// One that serves nobody, and has these GPUs if there is such.
    fn take(&self, gpus: Gpus, end: End) -> Option<Node> {
        let mut idle = self.idle();
        idle.retain(|node| node.end == end);
        let best = idle.iter().position(|node| node.gpus == gpus);
        let any = idle.len().checked_sub(1);
        best.or(any).map(|at| idle.remove(at))
    }

    fn start(&self, fixture: &Fixture, end: End) -> Result<Node> {
        if let Some(none) = &*lock(&self.none) {
            anyhow::bail!("{none}");
        }
        let started = Node::start(fixture, end);
        if started.is_err() {
            *lock(&self.none) = Some("no node, as above".to_owned());
        }
        started.context("no node")
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Node>> {
        lock(&self.idle)
    }
}

/// A test that panicked has taken its node with it, and no more.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn main() -> ExitCode {
    // The programs of MPS on a fake host.
    if let Some(done) = divvy_fake_nvml::mps::act() {
        return done;
    }
    let words: Vec<String> = std::env::args().collect();
    let done = match words.get(1..) {
        Some([face, plan]) if face == "--sandbox" => sandbox::inside::first_process(plan),
        Some([face, plan]) if face == "--sandbox-agent" => sandbox::inside::agent(plan),
        Some([face]) if face == "shell" => with_node(Node::shell),
        Some([face]) if face == "bench" => with_node(bench::run),
        _ => return tests(),
    };
    if let Err(error) = done {
        eprintln!("{error:?}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// A node for a person, or a measurement.
fn with_node(act: fn(&mut Node) -> Result<()>) -> Result<()> {
    let fixture = prepare(&[End::New]).map_err(|missing| match missing {
        Missing::Here(reason) => anyhow::anyhow!(reason),
        Missing::Broken(error) => error,
    })?;
    act(&mut Node::start(&fixture, End::New)?)
}

fn tests() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = arguments.test_threads.or(Some(NODES));
    #[expect(clippy::disallowed_methods, reason = "who runs the tests says on which versions")]
    let ends: &[End] = match std::env::var("VERSIONS").as_deref() {
        Ok("all") => &[End::New, End::Old],
        _ => &[End::New],
    };
    let fixture = if arguments.list { Err(Missing::Here(String::new())) } else { prepare(ends) };
    let skipped = match &fixture {
        Err(Missing::Here(reason)) => Some(reason.clone()),
        _ => None,
    };
    let (idle, none, failed) = Default::default();
    let nodes = Arc::new(Nodes { fixture, idle, none, failed });
    let mut trials = Vec::new();
    for end in ends {
        let tests = GROUPS.iter().flat_map(|tests| tests());
        let tests = tests.filter(|test| versions::has(*end, test.name));
        trials.extend(tests.map(|test| trial(test, *end, &nodes)));
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    // Beside all that is told of each.
    for failed in &*lock(&nodes.failed) {
        println!("FAILED {failed}");
    }
    drop(nodes);
    if let Some(reason) = skipped.filter(|reason| !reason.is_empty()) {
        println!("SKIPPED all of them: {reason}");
    }
    let left = sandbox::cgroup::left().unwrap_or_else(|error| vec![format!("{error:#}")]);
    for cgroup in &left {
        println!("LEFT BEHIND {cgroup}");
    }
    if !left.is_empty() {
        return ExitCode::FAILURE;
    }
    conclusion.exit_code()
}

/// What nodes need, or why this machine has none of it.
fn prepare(ends: &[End]) -> Result<Fixture, Missing> {
    if !nix::unistd::geteuid().is_root() {
        return Err(Missing::Here("only root can set up a node".into()));
    }
    let base = sandbox::cgroup::complete().map_err(Missing::Broken)?;
    if let Err(error) = sandbox::cgroup::sweep() {
        eprintln!("cluster: {error:#}");
    }
    let project = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut fixture = Fixture::new(project, base)?;
    fixture.binds.push((project.join("deploy"), "/deploy".into()));
    for end in ends {
        let programs = versions::programs(project, *end).map_err(Missing::Broken)?;
        fixture.binds.push((programs, versions::folder(*end).into()));
    }
    Ok(fixture)
}

fn trial(test: Test, end: End, nodes: &Arc<Nodes>) -> Trial {
    let nodes = nodes.clone();
    Trial::ignorable_test(versions::title(end, test.name), move || {
        nodes.run(test, end).map_err(|error| {
            let short: String = error.root_cause().to_string().chars().take(SHORT).collect();
            lock(&nodes.failed).push(format!("{}: {short}", versions::title(end, test.name)));
            Failed::from(format!("{error:#}"))
        })
    })
}
