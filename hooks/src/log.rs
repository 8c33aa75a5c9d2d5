//! The log is where a failure is said: to the engine, on both ways that engines look at, and to
//! the administrator, in a file of our own.

use std::{
    ffi::OsStr,
    io::Write as _,
    os::{fd::OwnedFd, unix::ffi::OsStrExt, unix::net::UnixDatagram},
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use rustix::{
    fs::{self, CWD, FileType, Mode, OFlags},
    io::Errno,
};

use divvy_cdi::file::{self, Durability};

use crate::shim::Call;

pub use divvy_cdi::problem::chain;

/// The longest line: an event of Kubernetes shows 1,024 bytes of it.
const MAX_LINE: usize = 4096;

/// Our own log starts anew at this size, bytes; the old one is kept once, as `*.1`.
const MAX_LOG: u64 = 1 << 20;

/// Phrases by which podman takes a message for another failure (`libpod/oci_util.go`), and what
/// is said in their place. None of these makes another phrase with what stands beside it.
const RECLASSIFIED: [(&str, &str); 4] = [
    ("permission denied", "access refused"),
    ("operation not permitted", "not allowed"),
    ("no such file or directory", "nothing is there"),
    ("executable file not found", "program not found"),
];

/// `text` as one line that any engine shows as it is. Of a long text only the beginning is looked
/// at: an image may have chosen how long it is.
pub fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len().min(MAX_LINE + 4));
    for c in text.trim().chars() {
        if line.len() + c.len_utf8() > MAX_LINE {
            line.push('…');
            break;
        }
        match c {
            '\n' | '\r' | '\t' => line.push(' '),
            c if c.is_control() => line.push('\u{fffd}'),
            c => line.push(c),
        }
    }
    reworded(&line)
}

/// `line` without the phrases that are taken for another failure.
fn reworded(line: &str) -> String {
    // Same length in bytes, so what is found in one is there in the other.
    let lower = line.to_ascii_lowercase();
    let mut words = String::with_capacity(line.len());
    let mut at = 0;
    loop {
        let rest = lower.get(at..).unwrap_or_default();
        let found = RECLASSIFIED
            .iter()
            .filter_map(|(phrase, other)| Some((rest.find(phrase)?, phrase.len(), *other)));
        let (until, length, other) = found.min().unwrap_or((rest.len(), 0, ""));
        words.push_str(line.get(at..at + until).unwrap_or_default());
        words.push_str(other);
        at += until + length;
        if length == 0 {
            return words;
        }
    }
}

/// Says `line` to the engine as the low-level runtime would: in its log, and on standard error.
/// Nothing can be done where that fails.
pub fn tell_engine(call: &Call<'_>, line: &str) {
    if let Some(log) = call.log {
        let bytes = log.as_bytes();
        if let Some(ident) =
            bytes.strip_prefix(b"journald:").or_else(|| bytes.strip_prefix(b"syslog:"))
        {
            syslog(ident, line);
        } else {
            let path = OsStr::from_bytes(bytes.strip_prefix(b"file:").unwrap_or(bytes));
            let entry = if call.json { json_entry(line) } else { text_entry(line) };
            append(Path::new(path), &entry);
        }
    }
    tell_person(line);
}

/// Says `line` on standard error.
pub fn tell_person(line: &str) {
    let _unheard = writeln!(std::io::stderr(), "{line}");
}

/// Notes `line` in our own log: the file that the settings name, which may be a FIFO too, or else a
/// regular file in the run directory, if nobody else can write that.
pub fn note(log: Option<&Path>, run_dir: &Path, line: &str) {
    let entry = format!("{} {line}\n", rfc3339(SystemTime::now()));
    let path = match log {
        Some(log) => log.to_owned(),
        // Made on a host where nothing was prepared yet.
        None if file::make_dir(run_dir, 0o755, Durability::Volatile).is_ok() => {
            run_dir.join("hook.log")
        }
        None => return,
    };
    let stat = fs::lstat(&path).ok();
    let regular = |stat: &fs::Stat| FileType::from_raw_mode(stat.st_mode).is_file();
    if log.is_none() && stat.as_ref().is_some_and(|stat| !regular(stat)) {
        return;
    }
    if stat.is_some_and(|stat| u64::try_from(stat.st_size).unwrap_or(0) > MAX_LOG) {
        let mut old = path.clone().into_os_string();
        old.push(".1");
        let _kept = fs::rename(&path, PathBuf::from(old));
    }
    append(&path, &entry);
}

/// As runc's logger writes JSON; containerd takes the last entry of level `error`.
fn json_entry(line: &str) -> String {
    let msg = serde_json::to_string(line).unwrap_or_default();
    let time = rfc3339(SystemTime::now());
    format!("{{\"level\":\"error\",\"msg\":{msg},\"time\":\"{time}\"}}\n")
}

/// As runc's logger writes text.
fn text_entry(line: &str) -> String {
    format!("time=\"{}\" level=error msg={line:?}\n", rfc3339(SystemTime::now()))
}

fn append(path: &Path, entry: &str) {
    if let Ok(file) = open(path) {
        // One write, so that lines of processes at the same time do not mix.
        let _unheard = rustix::io::write(&file, entry.as_bytes());
    }
}

/// Opens a regular file to append; a FIFO that nobody reads does not block.
fn open(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::WRONLY
        | OFlags::APPEND
        | OFlags::CREATE
        | OFlags::NOFOLLOW
        | OFlags::NONBLOCK
        | OFlags::NOCTTY
        | OFlags::CLOEXEC;
    let file = fs::openat(CWD, path, flags, Mode::from_raw_mode(0o644))?;
    match FileType::from_raw_mode(fs::fstat(&file)?.st_mode) {
        FileType::RegularFile | FileType::Fifo => Ok(file),
        _ => Err(Errno::INVAL),
    }
}

/// To syslog, or to journald, which listens in its place. Priority: daemon, error.
fn syslog(ident: &[u8], line: &str) {
    let ident = if ident.is_empty() { b"divvy".as_slice() } else { ident };
    let mut entry = b"<27>".to_vec();
    entry.extend_from_slice(ident);
    entry.extend_from_slice(b": ");
    entry.extend_from_slice(line.as_bytes());
    let send = || -> std::io::Result<usize> {
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        socket.send_to(&entry, "/dev/log")
    };
    let _unheard = send();
}

/// UTC, seconds. Days to date as in Howard Hinnant's `civil_from_days`.
fn rfc3339(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests;
