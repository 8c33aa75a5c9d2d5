//! The order is that of the hook's functions in its file: those that a start runs stand together.
//!
//! A page fault on the program's file costs some microseconds and brings sixteen pages; spread as the
//! compiler leaves them, the functions of a container without a request touch twenty such places.

use std::collections::BTreeSet;
use std::fmt::Write;

use anyhow::{Context, Result};

use crate::room::Room;
use crate::workload::{Request, Workload};

/// Where callgrind writes, in the room: what ran before [`END`] comes into the first part.
const PROFILE: &str = "/tmp/profile";
const FIRST: &str = "/tmp/profile.1";

/// Where a start ends. Without it, the report of an exec that fails would be among what starts run.
const END: &str = "execve";

const HEAD: &str = "\
/* The functions that a container start runs, in front of all others: first those of every start,
   then those of a request. Written by `make order`; a name that is gone matches nothing. */
SECTIONS
{
  .text.used :
  {
    *crt1.o(.text .text.*)
    *__libc_start_main.lo(.text .text.*)
    *memcpy.lo(.text)
    *memmove.lo(.text)
    *memset.lo(.text)
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
            let end = format!("--dump-before={END}");
            room.output(&["valgrind", "--tool=callgrind", "--demangle=no", &end, &file], &hook)?;
            let names = functions(&room.read(FIRST)?);
            if workload.request == Request::Nothing { &mut always } else { &mut requests }
                .extend(names);
        }
    }
    always.insert(END.to_owned());
    always.iter().nth(1).context("no function has a name: build the hook without stripping it")?;
    let mut script = HEAD.to_owned();
    for name in always.iter().chain(requests.difference(&always)) {
        // Writing to a String cannot fail.
        if name.starts_with("_ZN") || name.starts_with("_R") {
            writeln!(script, "    *(.text.{name} .text.unlikely.{name})").unwrap_or_default();
        } else {
            // C has a file for each, and in it the section may have another of its names.
            writeln!(script, "    *{name}.lo(.text .text.*)").unwrap_or_default();
        }
    }
    script.push_str(TAIL);
    Ok(script)
}

/// The names of the functions in a profile, with the hashes that change left open.
fn functions(profile: &str) -> BTreeSet<String> {
    let named = profile.lines().filter_map(|line| {
        let rest = line.strip_prefix("fn=(").or_else(|| line.strip_prefix("cfn=("))?;
        // Behind the apostrophe: how deep a recursion was.
        rest.split_once(") ").map(|(_, name)| name.split('\'').next().unwrap_or(name))
    });
    // The others are callgrind's own: an address, `(below main)`.
    let symbols =
        named.filter(|name| name.starts_with(|c: char| c == '_' || c.is_ascii_lowercase()));
    symbols.map(without_hash).collect()
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
