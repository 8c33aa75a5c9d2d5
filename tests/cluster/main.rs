//! Runs divvy's DRA driver on a real Kubernetes node: the API server, its controllers, the scheduler and the kubelet with
//! etcd, containerd and runc, in namespaces of their own; GPUs are those of a fake host (`divvy-fake-nvml`).
//!
//! One node serves all tests, one after the other, and is compared with a clean one after each.
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
use std::sync::{Arc, Mutex};

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
mod claims;
mod clean;
mod driver;
mod examples;
mod manifest;
mod mig;
mod node;
mod plain;
mod pods;
mod report;
mod rights;
mod sharing;
mod shim;
mod slices;
mod trouble;

use clean::Snapshot;
use fixture::{Fixture, Missing};
use node::Node;

/// A test: its name, the GPUs that it wants a driver for, and what it does on the node.
#[derive(Clone, Copy)]
pub struct Test {
    name: &'static str,
    gpus: Gpus,
    run: fn(&mut Node) -> Result<()>,
}

/// Models, and whether MIG mode is on; none, and there is no driver.
pub type Gpus = &'static [(&'static str, bool)];

/// What all tests share: the node, as soon as the first wants it, and until one leaves it in another state.
struct Shared {
    fixture: Result<Fixture, Missing>,
    node: Option<Node>,
    /// Why there can be none: it is tried once.
    none: Option<String>,
}

// === impl Test ===

impl Test {
    /// Runs it on the node, which is as before then.
    fn on(self, node: &mut Node) -> Result<()> {
        node.provide(self.gpus)?;
        let before = Snapshot::take(node)?;
        let done = (self.run)(node);
        let clean = node.come_clean(&before);
        done.and(clean)
    }
}

// === impl Shared ===

impl Shared {
    /// Whether this machine could run the test, and why not.
    fn run(&mut self, test: Test) -> Result<Completion> {
        if let Some(none) = &self.none {
            anyhow::bail!("{none}");
        }
        let fixture = match &self.fixture {
            Err(Missing::Here(reason)) => return Ok(Completion::ignored_with(reason)),
            Err(Missing::Broken(error)) => anyhow::bail!("{error:#}"),
            Ok(fixture) => fixture,
        };
        let mut node = match self.node.take() {
            Some(node) => node,
            None => {
                let started = Node::start(fixture);
                self.none = started.as_ref().err().map(|_| "no node, as above".to_owned());
                started.context("no node")?
            }
        };
        test.on(&mut node)?;
        // After a failure the next has a node of its own.
        self.node = Some(node);
        Ok(Completion::Completed)
    }
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
    let fixture = prepare().map_err(|missing| match missing {
        Missing::Here(reason) => anyhow::anyhow!(reason),
        Missing::Broken(error) => error,
    })?;
    act(&mut Node::start(&fixture)?)
}

fn tests() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // They share the node.
    arguments.test_threads = Some(1);
    let fixture = if arguments.list { Err(Missing::Here(String::new())) } else { prepare() };
    let skipped = match &fixture {
        Err(Missing::Here(reason)) => Some(reason.clone()),
        _ => None,
    };
    let shared = Arc::new(Mutex::new(Shared { fixture, node: None, none: None }));
    let tests = [
        plain::tests(),
        rights::tests(),
        report::tests(),
        claims::tests(),
        examples::tests(),
        shim::tests(),
        sharing::tests(),
        mig::tests(),
        slices::tests(),
        trouble::tests(),
    ]
    .concat();
    let trials = tests.into_iter().map(|test| trial(test, &shared)).collect();
    let conclusion = libtest_mimic::run(&arguments, trials);
    drop(shared);
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

/// What the node needs, or why this machine has none of it.
fn prepare() -> Result<Fixture, Missing> {
    if !nix::unistd::geteuid().is_root() {
        return Err(Missing::Here("only root can set up a node".into()));
    }
    let base = sandbox::cgroup::complete().map_err(Missing::Broken)?;
    if let Err(error) = sandbox::cgroup::sweep() {
        eprintln!("cluster: {error:#}");
    }
    let project = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut fixture = Fixture::new(project, base)?;
    let programs = node::programs(project).map_err(Missing::Broken)?;
    fixture.binds.push((programs, node::PROGRAMS.into()));
    Ok(fixture)
}

fn trial(test: Test, shared: &Arc<Mutex<Shared>>) -> Trial {
    let shared = shared.clone();
    Trial::ignorable_test(test.name, move || {
        // A test that panicked has taken its node with it.
        let mut shared = shared.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        shared.run(test).map_err(|error| Failed::from(format!("{error:#}")))
    })
}
