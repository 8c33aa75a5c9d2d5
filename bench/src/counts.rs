//! Counts are what a start costs exactly: instructions (callgrind) and system calls (strace) for each workload.

use std::collections::BTreeMap;
use std::fmt::Write;

use anyhow::{Context, Result};

use crate::room::{Program, Room};
use crate::workload::Workload;

/// What one start costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) instructions: u64,
    pub(crate) calls: u64,
}

/// What each line costs, by its label.
pub(crate) type Counts = BTreeMap<String, Count>;

/// Where strace writes, in the room.
const TRACE: &str = "/tmp/trace";

const HEAD: &str = "\
# What one container start costs divvy-hook, exactly: user instructions (callgrind) and system calls (strace),
# the failing exec of no whole program at the end included. `make test-counts` fails when a number grows by more
# than a tenth; `make bless-counts` writes this file anew, for a commit that says why.
# workload/devices   instructions   system calls
";

/// Counts every workload. The low-level runtime of the room is broken by it.
pub(crate) fn count(room: &mut Room, workloads: &[Workload]) -> Result<Counts> {
    room.break_runtime()?;
    let mut counts = BTreeMap::new();
    for workload in workloads {
        for (label, devices, _) in workload.lines() {
            let hook = room.furnish(workload, devices)?;
            counts.insert(label, one(room, &hook)?);
        }
    }
    Ok(counts)
}

fn one(room: &Room, hook: &Program) -> Result<Count> {
    let callgrind = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"];
    let output = room.output(&callgrind, hook)?;
    let said = String::from_utf8_lossy(&output.stderr);
    let collected = said.lines().find_map(|line| line.split_once("Collected : "));
    let instructions = collected.and_then(|(_, number)| number.trim().parse().ok());
    let instructions =
        instructions.with_context(|| format!("callgrind counted nothing: {said}"))?;
    room.output(&["strace", "-qq", "-o", TRACE], hook)?;
    let trace = room.read(TRACE)?;
    let calls =
        trace.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_lowercase())).count();
    // The first is strace's own, the exec of the hook.
    Ok(Count { instructions, calls: u64::try_from(calls)?.saturating_sub(1) })
}

/// The file's text.
pub(crate) fn write(counts: &Counts) -> String {
    let mut text = HEAD.to_owned();
    for (name, Count { instructions, calls }) in counts {
        // Writing to a String cannot fail.
        writeln!(text, "{name:<20} {instructions:>12} {calls:>14}").unwrap_or_default();
    }
    text
}

/// Reads the file's text.
pub(crate) fn read(text: &str) -> Result<Counts> {
    let mut counts = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty()) {
        let mut fields = line.split_whitespace();
        let mut next =
            || fields.next().with_context(|| format!("bench/counts.txt: too few fields: {line}"));
        let name = next()?.to_owned();
        let (instructions, calls) = (next()?.parse()?, next()?.parse()?);
        counts.insert(name, Count { instructions, calls });
    }
    Ok(counts)
}

/// What is wrong with the new counts; nothing when none grew by more than a tenth.
pub(crate) fn compare(allowed: &Counts, new: &Counts) -> Vec<String> {
    let mut faults = Vec::new();
    for (name, now) in new {
        let Some(was) = allowed.get(name) else {
            faults.push(format!("{name} is not in the file"));
            continue;
        };
        let pairs = [
            ("instructions", was.instructions, now.instructions),
            ("system calls", was.calls, now.calls),
        ];
        for (what, was, now) in pairs {
            if now > was + was / 10 {
                faults.push(format!("{name}: {now} {what}, {was} in the file"));
            }
        }
    }
    faults
}

#[cfg(test)]
mod tests;
