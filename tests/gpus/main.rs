//! GPU backends: one contract, held against the simulated node, against NVML on a fake host, and,
//! where this machine has GPUs, against the real library (only what reads); and what NVML may do to
//! us, on the fake host alone.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "what clippy.toml allows in tests, and here also in what they share"
)]

mod contract;
mod crash;
mod driver;
mod fault;
mod generate;
mod health;
mod hostile;
mod mig;
mod mps;
mod product;
mod real;
mod support;
mod trace;

use std::{
    process::ExitCode,
    sync::{Arc, Mutex},
};

use libtest_mimic::{Arguments, Completion, Trial};

/// A test, or why it cannot be had on this machine.
type Run = fn() -> Outcome;

enum Outcome {
    Done,
    Skipped(String),
}

fn main() -> ExitCode {
    // The programs of MPS on a fake host, and what starts them in a process of its own.
    if let Some(done) = divvy_fake_nvml::mps::act() {
        return done;
    }
    if let Some(done) = mps::starter(&std::env::args().skip(1).collect::<Vec<_>>()) {
        return done;
    }
    let arguments = Arguments::from_args();
    let all = [
        contract::tests(),
        crash::tests(),
        driver::tests(),
        generate::tests(),
        mig::tests(),
        health::tests(),
        hostile::tests(),
        fault::tests(),
        product::tests(),
        mps::tests(),
        real::tests(),
    ];
    let skips = Skips::default();
    let trials = all.into_iter().flatten().map(|(name, run)| trial(name, run, &skips)).collect();
    let conclusion = libtest_mimic::run(&arguments, trials);
    for (name, why) in skips.lock().expect("no test panics while it holds this").iter() {
        println!("SKIPPED {name}: {why}");
    }
    conclusion.exit_code()
}

/// The tests that could not be had, and why: said again in the closing lines.
type Skips = Arc<Mutex<Vec<(String, String)>>>;

fn trial(name: String, run: Box<dyn FnOnce() -> Outcome + Send>, skips: &Skips) -> Trial {
    let skips = Arc::clone(skips);
    Trial::ignorable_test(name.clone(), move || match run() {
        Outcome::Done => Ok(Completion::Completed),
        Outcome::Skipped(why) => {
            skips.lock().expect("no test panics while it holds this").push((name, why));
            Ok(Completion::ignored())
        }
    })
}

type Test = (String, Box<dyn FnOnce() -> Outcome + Send>);

fn named(area: &str, tests: &[(&str, Run)]) -> Vec<Test> {
    let test = |(name, run): &(&str, Run)| -> Test {
        let run = *run;
        (format!("{area}::{name}"), Box::new(run))
    };
    tests.iter().map(test).collect()
}
