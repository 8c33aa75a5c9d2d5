//! The bench of divvy-hook, and of the node side: `divvy-bench run`, `node`, `test`, `bless`, `order`, `against` or `under`, from the repository's root, as root.

mod bench;
mod config;
mod counts;
mod node;
mod nvidia;
mod order;
mod records;
mod room;
mod tree;
mod workload;

use std::fs;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, bail};

use counts::Counts;
use room::Room;
use workload::Workload;

const COUNTS: &str = "bench/counts.txt";
const ORDER: &str = "hooks/order.ld";

const USAGE: &str = "\
usage: divvy-bench run|test|bless|order [WORKLOAD…]
       divvy-bench node                measures the node side
       divvy-bench against ./BUILD… [WORKLOAD…]   compares the hook with other builds of it
       divvy-bench under LINE TOOL…    runs the hook of one line below a tool, as: under b/8 strace -c";

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((face, chosen)) = arguments.split_first() else { bail!("{USAGE}") };
    let mut workloads = workload::all();
    let builds: Vec<&Path> = chosen.iter().filter(|a| a.contains('/')).map(Path::new).collect();
    if face != "under" && chosen.len() > builds.len() {
        workloads.retain(|workload| chosen.iter().any(|name| name == workload.name));
    }
    let target = Path::new("target");
    if let ("test", Some(why)) = (face.as_str(), skipped(target)) {
        return Ok(writeln!(std::io::stdout(), "SKIPPED the counts of {COUNTS}: {why}")?);
    }
    if face == "node" {
        let (dir, daemon) = (target.join("bench/node"), target.join("release/divvy-node"));
        return node::run(&dir, &daemon, &mut std::io::stdout());
    }
    let mut room = Room::new(target)?;
    match face.as_str() {
        "run" => bench::run(&mut room, &workloads, &target.join("static"), &mut std::io::stdout()),
        "test" => test(&counts::count(&mut room, &workloads)?),
        "bless" => write(COUNTS, &counts::write(&counts::count(&mut room, &workloads)?)),
        "order" => write(ORDER, &order::order(&mut room, &workloads)?),
        "against" => bench::against(&mut room, &workloads, &builds, &mut std::io::stdout()),
        "under" => under(&mut room, &workloads, chosen),
        _ => bail!("{USAGE}"),
    }
}

/// Why the counts cannot be compared here.
fn skipped(target: &Path) -> Option<&'static str> {
    let build = fs::read_to_string(target.join("static/target")).unwrap_or_default();
    if !nix::unistd::geteuid().is_root() {
        Some("only root can make the room that they are taken in")
    } else if build.trim() != "x86_64-unknown-linux-musl" {
        Some("they are those of x86_64 and musl")
    } else {
        None
    }
}

fn test(counts: &Counts) -> Result<()> {
    let allowed = fs::read_to_string(COUNTS).with_context(|| format!("cannot read {COUNTS}"))?;
    let faults = counts::compare(&counts::read(&allowed)?, counts);
    if !faults.is_empty() {
        bail!("a start costs more than {COUNTS} allows:\n  {}", faults.join("\n  "));
    }
    writeln!(std::io::stdout(), "no start costs a tenth more than {COUNTS} says")?;
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "a file of the working tree, under version control")]
fn write(path: &str, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {path}"))
}

fn under(room: &mut Room, workloads: &[Workload], arguments: &[String]) -> Result<()> {
    let (label, tool) = arguments.split_first().context(USAGE)?;
    let lines = workloads.iter().flat_map(|workload| {
        workload.lines().into_iter().map(move |(label, devices, _)| (workload, label, devices))
    });
    let (workload, _, devices) =
        lines.into_iter().find(|(_, name, _)| name == label).context("no such line")?;
    let hook = room.furnish(workload, devices)?;
    room.break_runtime()?;
    let tool: Vec<&str> = tool.iter().map(String::as_str).collect();
    let output = room.output(&tool, &hook)?;
    std::io::stdout().write_all(&output.stdout)?;
    std::io::stderr().write_all(&output.stderr)?;
    Ok(())
}
