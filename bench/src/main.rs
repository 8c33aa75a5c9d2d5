//! The bench of divvy-hook: `divvy-bench run`, `test` or `bless`, from the repository's root, as root.

mod bench;
mod config;
mod counts;
mod nvidia;
mod records;
mod room;
mod tree;
mod workload;

use std::fs;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, bail};

use room::Room;

const COUNTS: &str = "bench/counts.txt";

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let face = arguments.next().unwrap_or_default();
    // Names of workloads; none means all.
    let chosen: Vec<String> = arguments.collect();
    let mut workloads = workload::all();
    workloads
        .retain(|workload| chosen.is_empty() || chosen.iter().any(|name| name == workload.name));
    let target = Path::new("target");
    let binary = fs::metadata(target.join("static/divvy-hook"))
        .context("no hook: run make hook first")?
        .len();
    let libc = fs::read_to_string(target.join("static/target"))?;
    let mut room = Room::new(target)?;
    let mut out = std::io::stdout();
    match face.as_str() {
        "run" => bench::run(&mut room, &workloads, binary, libc.trim(), &mut out),
        "test" => {
            let allowed = counts::read(&fs::read_to_string(COUNTS)?)?;
            let faults = counts::compare(&allowed, &counts::count(&mut room, &workloads)?);
            if faults.is_empty() {
                return Ok(writeln!(
                    out,
                    "counts: no start costs a tenth more than {COUNTS} says"
                )?);
            }
            bail!("a start costs more than {COUNTS} allows:\n  {}", faults.join("\n  "))
        }
        "bless" => {
            let counts = counts::write(&counts::count(&mut room, &workloads)?);
            Ok(write_counts(&counts)?)
        }
        _ => bail!("usage: divvy-bench run|test|bless [WORKLOAD…]"),
    }
}

#[expect(clippy::disallowed_methods, reason = "a file of the working tree, under version control")]
fn write_counts(counts: &str) -> std::io::Result<()> {
    fs::write(COUNTS, counts)
}
