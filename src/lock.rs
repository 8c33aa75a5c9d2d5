//! A lock is a file that one process at a time holds; the others wait for it. The kernel frees it
//! when its holder ends, however it ends.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

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
    /// Waits for the lock at `path`; the file is made where it is missing, and stays.
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
            file.lock()?;
            Ok(Self { _file: file })
        };
        lock().map_err(|source| LockError { path: path.to_owned(), source })
    }
}
