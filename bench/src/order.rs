//! The order is that of the hook's functions in its file: those that a start runs stand together.
//!
//! A page fault on the program's file costs some microseconds and brings sixteen pages; spread as the
//! compiler leaves them, the functions of a container without a request touch twenty such places.

use std::collections::BTreeSet;
use std::fmt::Write;

use anyhow::{Context, Result};

use crate::room::Room;
use crate::workload::{Request, Workload};

/// Where callgrind writes, in the room.
const PROFILE: &str = "/tmp/profile";

const HEAD: &str = "\
/* The functions that a container start runs, in front of all others: first those of every start,
   then those of a request. Written by `make order`; a name that is gone matches nothing. */
SECTIONS
{
  .text.used :
  {
";

const TAIL: &str = "\
  }
}
INSERT BEFORE .text;
";

/// Runs each workload once and writes the linker script. The hook must have its symbols.
pub(crate) fn order(room: &mut Room, workloads: &[Workload]) -> Result<String> {
    room.break_runtime()?;
    let (mut always, mut requests) = (BTreeSet::new(), BTreeSet::new());
    for workload in workloads {
        for (_, devices, _) in workload.lines() {
            let hook = room.furnish(workload, devices)?;
            let file = format!("--callgrind-out-file={PROFILE}");
            room.output(&["valgrind", "--tool=callgrind", "--demangle=no", &file], &hook)?;
            let names = functions(&room.read(PROFILE)?);
            if workload.request == Request::Nothing { &mut always } else { &mut requests }
                .extend(names);
        }
    }
    always.first().context("no function has a name: build the hook without stripping it")?;
    let mut script = HEAD.to_owned();
    for name in always.iter().chain(requests.difference(&always)) {
        // Writing to a String cannot fail.
        writeln!(script, "    *(.text.{name})").unwrap_or_default();
    }
    script.push_str(TAIL);
    Ok(script)
}

/// The names of Rust's functions in a profile, with the hashes that change left open.
fn functions(profile: &str) -> BTreeSet<String> {
    let named = profile.lines().filter_map(|line| {
        let rest = line.strip_prefix("fn=(").or_else(|| line.strip_prefix("cfn=("))?;
        rest.split_once(") ").map(|(_, name)| name)
    });
    let of_rust = named.filter(|name| name.starts_with("_ZN") || name.starts_with("_R"));
    of_rust.map(without_hash).collect()
}

/// `_ZN4core3fmt5write17h0123456789abcdefE` with `*` for its hash, and for a copy's number behind.
fn without_hash(name: &str) -> String {
    match name.rsplit_once("17h") {
        Some((front, hash)) if hash.len() > 16 => format!("{front}17h*"),
        _ => name.split_once('.').map_or_else(|| name.to_owned(), |(front, _)| format!("{front}*")),
    }
}

#[cfg(test)]
mod tests;
