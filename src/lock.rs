//! A lock is a file that one process at a time holds; the others wait for it. The kernel frees it
//! when its holder ends, however it ends.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{self, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use divvy_cdi::file::Trust;
use rustix::fs::OFlags;

/// A held lock, free again when dropped.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

/// The lock file could not be made or locked.
#[derive(Debug, thiserror::Error)]
#[error("{}: cannot be locked", path.display())]
pub struct LockError {
    /// The lock file.
    pub path: PathBuf,
    /// The system's answer.
    #[source]
    pub source: io::Error,
}

// === impl Lock ===

impl Lock {
    /// Waits for the lock at `path`, and says so on stderr where it has to: whoever waits can only
    /// be told while they do. The file is made where it is missing, and stays.
    ///
    /// # Errors
    /// The file cannot be made: its folder is missing or belongs to somebody else.
    pub fn wait(path: &Path) -> Result<Self, LockError> {
        let lock = || {
            // NOFOLLOW and NONBLOCK: whatever an unprivileged neighbour left there, root neither
            // follows nor waits for it.
            let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
            let mut options = OpenOptions::new();
            options.append(true).create(true).mode(0o600).custom_flags(flags.bits().cast_signed());
            let file = options.open(path)?;
            if !file.metadata()?.is_file() {
                return Err(io::Error::other("not a regular file"));
            }
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    tell_who_waits(path, &file);
                    file.lock()?;
                }
                Err(TryLockError::Error(error)) => return Err(error),
            }
            Ok(Self { _file: file })
        };
        lock().map_err(|source| LockError { path: path.to_owned(), source })
    }
}

fn tell_who_waits(path: &Path, file: &File) {
    let by = holder(file).map(|by| format!(", held by {by}")).unwrap_or_default();
    let line = format!("waiting for {}{by}\n", path.display());
    let _nobody_listens = io::stderr().lock().write_all(line.as_bytes());
}

/// The process that holds the lock, as far as it can be seen from here:
/// `1: FLOCK  ADVISORY  WRITE 707 fd:01:5243 0 EOF` in `/proc/locks`.
fn holder(file: &File) -> Option<String> {
    let inode = file.metadata().ok()?.ino().to_string();
    let read = |path: &str| divvy_cdi::file::read(path.as_ref(), 1 << 20, &Trust::Any).ok();
    let locks = String::from_utf8(read("/proc/locks")?).ok()?;
    let pid = locks.lines().find_map(|line| {
        match line.split_ascii_whitespace().collect::<Vec<_>>().as_slice() {
            [_, "FLOCK", _, "WRITE", pid, place, ..] if place.rsplit(':').next()? == inode => {
                pid.parse::<u32>().ok().filter(|pid| *pid > 0)
            }
            _ => None,
        }
    })?;
    let name = read(&format!("/proc/{pid}/comm"))?;
    Some(format!("process {pid} ({})", String::from_utf8_lossy(&name).trim_end().escape_default()))
}
