//! The figures of the driver on a real node: `make bench`. Times are medians of one run, which is all that they can be
//! compared within; the peer is NVIDIA's driver, as it was measured on such a node.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::Gpus;
use crate::driver::PROGRAM;
use crate::node::Node;

mod calls;
mod pods;
mod start;

/// For one claim each.
const GPUS: Gpus = &[("H100-80GB", false); 8];
/// Where the driver answers for its metrics.
const HTTP: &str = "127.0.0.1:9400";

/// What was measured, as it is printed.
#[derive(Debug, Default)]
struct Report {
    missed: Vec<String>,
}

/// Measures all of it and prints; says which targets are missed.
pub fn run(node: &mut Node) -> Result<()> {
    println!(
        "The driver on a Kubernetes node, GPUs of a fake host; medians, ms. Peer: NVIDIA's DRA driver.\n"
    );
    let mut report = Report::default();
    node.provide(GPUS)?;
    start::measure(node, &mut report)?;
    calls::measure(node, &mut report)?;
    pods::measure(node, &mut report)?;
    start::measure_many(node, &mut report)?;
    for line in &report.missed {
        println!("MISSED: {line}");
    }
    if report.missed.is_empty() {
        println!("every target on a node is met");
    }
    Ok(())
}

// === impl Report ===

impl Report {
    /// A figure, and what it should be at most.
    fn line(&mut self, what: &str, is: f64, most: f64, unit: &str, more: &str) {
        println!("{what:<46} {is:>8.2} {unit:<3} (at most {most}{})", aside(more));
        if is > most {
            self.missed.push(format!("{what}: {is:.2} {unit}, not {most}"));
        }
    }

    /// A figure that explains another.
    fn aside(&self, what: &str, is: f64, unit: &str, more: &str) {
        println!("  {what:<44} {is:>8.2} {unit:<3}{more}");
    }
}

fn aside(more: &str) -> String {
    if more.is_empty() { String::new() } else { format!("; {more}") }
}

// === impl Node ===

impl Node {
    /// The driver's metric of this name and these labels.
    fn metric(&mut self, name: &str) -> Result<f64> {
        let url = format!("http://{HTTP}/metrics");
        let all = self.sandbox.must(&["busybox", "wget", "-q", "-O", "-", &url])?;
        let value = all.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.with_context(|| format!("no metric {name} in\n{all}"))?.parse().map_err(Into::into)
    }

    /// Memory of the driver, by the kernel's name for it, MB.
    fn memory(&self, field: &str) -> Result<f64> {
        let pid = self.pid(PROGRAM).context("no driver runs")?;
        let status = self.sandbox.read(&format!("/proc/{pid}/status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        let number =
            line.and_then(|line| line.split_whitespace().next()).context("no such field")?;
        Ok(number.parse::<f64>()? / 1e3)
    }
}

/// How long something takes, ms.
fn timed<T>(act: impl FnOnce() -> Result<T>) -> Result<f64> {
    let start = Instant::now();
    act()?;
    Ok(milliseconds(start.elapsed()))
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or(f64::NAN)
}
