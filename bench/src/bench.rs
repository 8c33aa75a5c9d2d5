//! The bench runs all programs of a workload in turn, in a new order each time, and prints medians and ratios.

use std::fmt::{self, Display, Formatter};
use std::fs;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, bail};

use serde_json::Value;

use crate::room::{Cost, Program, Room};
use crate::workload::{Request, Workload};

const ROUNDS: usize = 40;
const WARM_UPS: usize = 2;
/// A program that takes longer than this, in ms, runs in every fourth round only.
const SLOW: f64 = 30.0;
const SLOW_EVERY: usize = 4;
/// Peak memory that the hook may use, KiB.
const MEMORY: u64 = 2048;
/// Size that the binary may have, bytes.
const SIZE: u64 = 1_200_000;

/// What was measured of one program.
#[derive(Clone, Copy, Debug)]
struct Times {
    /// Milliseconds.
    median: f64,
    fastest: f64,
    /// Peak memory.
    kib: u64,
}

/// One line of the table.
#[derive(Debug)]
struct Row {
    label: String,
    floor: Times,
    hook: Times,
    go: Option<Times>,
    target: f64,
}

/// Runs everything with the binary of the folder `hook` and prints the table; says which targets are missed.
pub(crate) fn run(
    room: &mut Room,
    workloads: &[Workload],
    hook: &Path,
    out: &mut dyn Write,
) -> Result<()> {
    let binary = fs::metadata(hook.join("divvy-hook"))?.len();
    let libc = fs::read_to_string(hook.join("target"))?;
    let libc = libc.trim();
    writeln!(out, "{ABOUT}")?;
    if !libc.contains("musl") {
        writeln!(out, "No musl target here: the hook and the floor are linked against glibc.\n")?;
    }
    writeln!(out, "{HEAD}")?;
    let mut missed = Vec::new();
    for workload in workloads {
        for (label, devices, target) in workload.lines() {
            let row = measure(room, workload, devices, label, target)?;
            writeln!(out, "{row}  {}", workload.what)?;
            out.flush()?;
            missed.extend(row.missed());
        }
    }
    writeln!(out, "\nbinary: {binary} bytes ({libc}), at most {SIZE}")?;
    if binary > SIZE {
        missed.push(format!("the binary has {binary} bytes, not {SIZE}"));
    }
    for line in &missed {
        writeln!(out, "MISSED: {line}")?;
    }
    if missed.is_empty() {
        writeln!(out, "every target is met")?;
    }
    Ok(())
}

const HEAD: &str = "\
workload          floor         divvy   ratio  target    memory     Go reference  slower  what";

const ABOUT: &str = "\
Whole processes, median (fastest) in ms, all programs of a line in turn and shuffled; ratios of medians.
  none   floor: an empty static shim that execs an empty static program, the low-level runtime here
         divvy: the shim without a request, then the same exec
  other  floor: a static program that reads both CDI directories and config.json, writes config.json back by
         temporary file and rename, and execs the empty program
         divvy: the shim that also finds, checks and injects the devices, then the same exec
         Go: the CDI library without watcher and schema, encoding/json, the same writing, the same exec
  record floor: as for a, one small spec; divvy: all of 1,000 claims, found by the pod's record
Memory is divvy's peak resident set.
";

/// The rounds of one line.
fn measure(
    room: &mut Room,
    workload: &Workload,
    devices: &[String],
    label: String,
    target: f64,
) -> Result<Row> {
    let hook = room.furnish(workload, devices)?;
    let floor = match workload.request {
        Request::Nothing => Program::shim("/bench/empty-shim"),
        Request::Names => Program::shim("/bench/iofloor"),
        // What a record saves is the scan, so it is held to the floor of one small spec.
        Request::Record => Program::shim("/bench/iofloor-etc"),
    };
    let go = (workload.request != Request::Nothing).then(|| Program::go_lean(devices));
    if let Some(go) = &go {
        check(room, &hook, go).with_context(|| format!("workload {label}"))?;
    }
    let programs: Vec<Program> = [floor, hook].into_iter().chain(go).collect();
    let mut times = interleave(room, &programs)?.into_iter();
    let (Some(floor), Some(hook)) = (times.next(), times.next()) else { bail!("no program ran") };
    Ok(Row { label, floor, hook, go: times.next(), target })
}

/// Compares the hook with `others`, other builds of it, line by line.
pub(crate) fn against(
    room: &mut Room,
    workloads: &[Workload],
    others: &[&Path],
    out: &mut dyn Write,
) -> Result<()> {
    for workload in workloads {
        for (label, devices, _) in workload.lines() {
            let hook = room.furnish(workload, devices)?;
            let mut programs = vec![hook.clone()];
            for (number, other) in others.iter().enumerate() {
                programs.push(hook.of_build(room, other, number)?);
            }
            write!(out, "{label:<9}")?;
            for times in interleave(room, &programs)? {
                write!(out, " {:>14} {:>5} KiB", times.to_string(), times.kib)?;
            }
            writeln!(out)?;
        }
    }
    Ok(())
}

/// Runs all programs in turn, in a new order in each round.
fn interleave(room: &Room, programs: &[Program]) -> Result<Vec<Times>> {
    let mut costs: Vec<Vec<Cost>> = programs.iter().map(|_| Vec::new()).collect();
    let mut order: Vec<usize> = (0..programs.len()).collect();
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    for round in 0..WARM_UPS + ROUNDS {
        dice.shuffle(&mut order);
        for &at in &order {
            let (Some(program), Some(costs)) = (programs.get(at), costs.get_mut(at)) else {
                continue;
            };
            let slow = costs.first().is_some_and(|cost| cost.milliseconds > SLOW);
            if slow && round % SLOW_EVERY > 0 {
                continue;
            }
            let cost = room.run(program)?;
            if round >= WARM_UPS {
                costs.push(cost);
            }
        }
    }
    Ok(costs.iter().map(|costs| Times::of(costs)).collect())
}

/// The hook's config must be the reference's, as a JSON value. What the reference adds again when a
/// second spec brings the same (hooks, rules of the device cgroup) is added once here: cdi/DEVIATIONS.md.
fn check(room: &Room, hook: &Program, go: &Program) -> Result<()> {
    room.run(hook)?;
    let ours = room.edited()?;
    room.run(go)?;
    let mut theirs = room.edited()?;
    for list in ["/hooks/createContainer", "/linux/resources/devices"] {
        if let Some(Value::Array(items)) = theirs.pointer_mut(list) {
            let mut seen = Vec::new();
            items.retain(|item| {
                !seen.contains(item) && {
                    seen.push(item.clone());
                    true
                }
            });
        }
    }
    match difference("", &ours, &theirs) {
        Some(difference) => bail!("the config differs from the reference's at {difference}"),
        None => Ok(()),
    }
}

/// The first place where two values differ, and how.
fn difference(at: &str, ours: &Value, theirs: &Value) -> Option<String> {
    match (ours, theirs) {
        (Value::Object(a), Value::Object(b)) if a.keys().eq(b.keys()) => {
            a.iter().find_map(|(key, a)| difference(&format!("{at}/{key}"), a, b.get(key)?))
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            let mut pairs = a.iter().zip(b).enumerate();
            pairs.find_map(|(i, (a, b))| difference(&format!("{at}/{i}"), a, b))
        }
        _ if ours == theirs => None,
        (Value::Object(a), Value::Object(b)) => {
            let (a, b): (Vec<_>, Vec<_>) = (a.keys().collect(), b.keys().collect());
            Some(format!("{at}: keys {a:?}, not {b:?}"))
        }
        (Value::Array(a), Value::Array(b)) => {
            Some(format!("{at}: {} items, not {}", a.len(), b.len()))
        }
        _ => Some(format!("{at}: {ours}, not {theirs}")),
    }
}

// === impl Row ===

impl Row {
    fn ratio(&self) -> f64 {
        self.hook.median / self.floor.median
    }

    /// The targets that this line does not reach.
    fn missed(&self) -> Vec<String> {
        let mut missed = Vec::new();
        if self.ratio() > self.target {
            missed.push(format!("{} takes {:.2}x, not {}x", self.label, self.ratio(), self.target));
        }
        if self.hook.kib > MEMORY {
            missed.push(format!("{} takes {} KiB, not {MEMORY}", self.label, self.hook.kib));
        }
        missed
    }
}

impl Display for Row {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (floor, hook) = (self.floor.to_string(), self.hook.to_string());
        let (ratio, mark) = (self.ratio(), if self.missed().is_empty() { ' ' } else { '!' });
        write!(f, "{:<9} {floor:>13} {hook:>13} {ratio:>6.2}x", self.label)?;
        write!(f, " {:>6.1}x{mark} {:>5} KiB", self.target, self.hook.kib)?;
        match &self.go {
            Some(go) => {
                write!(f, "  {:>15} {:>5.0}x", go.to_string(), go.median / self.hook.median)
            }
            None => write!(f, "  {:>15} {:>6}", "", ""),
        }
    }
}

// === impl Times ===

impl Times {
    fn of(costs: &[Cost]) -> Self {
        let mut sorted: Vec<f64> = costs.iter().map(|cost| cost.milliseconds).collect();
        sorted.sort_by(f64::total_cmp);
        Self {
            median: sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN),
            fastest: sorted.first().copied().unwrap_or(f64::NAN),
            kib: costs.iter().map(|cost| cost.kib).max().unwrap_or(0),
        }
    }
}

impl Display for Times {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} ({:.2})", self.median, self.fastest)
    }
}

/// A small generator of pseudo-random numbers (xorshift), so that orders differ and runs do not.
#[derive(Debug)]
struct Dice(u64);

// === impl Dice ===

impl Dice {
    fn shuffle(&mut self, order: &mut [usize]) {
        for i in (1..order.len()).rev() {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            let bound = u64::try_from(i + 1).unwrap_or(1);
            order.swap(i, usize::try_from(self.0 % bound).unwrap_or(0));
        }
    }
}
