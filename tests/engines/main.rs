//! Runs divvy's hook under real container engines: runc, crun, containerd, podman, buildah and docker, at both ends of their range.
//!
//! Each test has a sandbox of its own (see `sandbox`), so none sees another's containers, and nothing stays behind.
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

use anyhow::Result;
use libtest_mimic::{Arguments, Completion, Failed, Trial};

mod buildah;
mod bundle;
mod container;
mod containerd;
mod cri;
mod crio;
mod ctr;
mod device;
mod direct;
mod docker;
mod driver;
mod fixture;
mod hook;
mod machine;
mod podman;
mod rootless;
mod sandbox;
mod systemd;

use fixture::{Fixture, Missing};
use sandbox::View;

/// A test: its name, the cgroup view it needs, and what it does.
pub struct Test {
    name: String,
    view: Option<(View, &'static str)>,
    run: Body,
}

type Body = Box<dyn Fn(&Fixture) -> Result<()> + Send>;

// === impl Test ===

impl Test {
    fn new(name: impl Into<String>, run: impl Fn(&Fixture) -> Result<()> + Send + 'static) -> Test {
        Test { name: name.into(), view: None, run: Box::new(run) }
    }

    /// The cgroup view that it needs, and in version 1 a controller.
    fn in_view(mut self, view: View, controller: &'static str) -> Test {
        self.view = Some((view, controller));
        self
    }
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().collect();
    let inside = match words.get(1..) {
        Some([face, plan]) if face == "--sandbox" => sandbox::inside::first_process(plan),
        Some([face, plan]) if face == "--sandbox-agent" => sandbox::inside::agent(plan),
        _ => return tests(),
    };
    if let Err(error) = inside {
        eprintln!("{error:?}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn tests() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // Two at a time by default: enough to fill the waits, and a crowded machine is not what is tested.
    arguments.test_threads = arguments.test_threads.or(Some(2));
    let skips = Arc::new(Mutex::new(Vec::new()));
    let fixture = if arguments.list { Err(Missing::Here(String::new())) } else { prepare() };
    let fixture = Arc::new(fixture);
    let tests: Vec<Test> = [
        direct::tests(),
        container::tests(),
        driver::tests(),
        cri::tests(),
        ctr::tests(),
        podman::tests(),
        rootless::tests(),
        docker::tests(),
        buildah::tests(),
        systemd::tests(),
        machine::tests(),
        crio::tests(),
    ]
    .into_iter()
    .flatten()
    .collect();
    let trials = tests.into_iter().map(|test| trial(test, &fixture, &skips)).collect();
    let conclusion = libtest_mimic::run(&arguments, trials);
    for (name, reason) in skips.lock().expect("no test panics while it holds this").iter() {
        println!("SKIPPED {name}: {reason}");
    }
    let left = sandbox::cgroup::left().unwrap_or_else(|error| vec![format!("{error:#}")]);
    for cgroup in &left {
        println!("LEFT BEHIND {cgroup}");
    }
    if let Ok(fixture) = fixture.as_ref() {
        println!("engines: {}", fixture.versions());
    }
    println!(
        "engines: {} passed, {} failed, {} skipped",
        conclusion.num_passed, conclusion.num_failed, conclusion.num_ignored
    );
    if !left.is_empty() {
        return ExitCode::FAILURE;
    }
    conclusion.exit_code()
}

/// What every test needs, or why this machine has none of it.
fn prepare() -> Result<Fixture, Missing> {
    if !nix::unistd::geteuid().is_root() {
        return Err(Missing::Here("only root can set up container engines".into()));
    }
    let base = sandbox::cgroup::complete().map_err(Missing::Broken)?;
    if let Err(error) = sandbox::cgroup::sweep() {
        eprintln!("engines: {error:#}");
    }
    Fixture::new(Path::new(env!("CARGO_MANIFEST_DIR")), base)
}

type Skips = Arc<Mutex<Vec<(String, String)>>>;

fn trial(test: Test, fixture: &Arc<Result<Fixture, Missing>>, skips: &Skips) -> Trial {
    let (fixture, skips) = (fixture.clone(), skips.clone());
    let name = test.name.clone();
    Trial::ignorable_test(test.name, move || {
        let skip = |reason: String| {
            skips
                .lock()
                .expect("no test panics while it holds this")
                .push((name.clone(), reason.clone()));
            Ok(Completion::ignored_with(reason))
        };
        let fixture = match fixture.as_ref() {
            Ok(fixture) => fixture,
            Err(Missing::Here(reason)) => return skip(reason.clone()),
            Err(Missing::Broken(error)) => return Err(format!("{error:#}").into()),
        };
        if let Some((view, controller)) = test.view
            && let Some(reason) = view.missing(controller).map_err(failed)?
        {
            return skip(reason);
        }
        (test.run)(fixture).map(|()| Completion::Completed).map_err(failed)
    })
}

#[expect(clippy::needless_pass_by_value, reason = "the shape that map_err wants")]
fn failed(error: anyhow::Error) -> Failed {
    format!("{error:#}").into()
}
