//! A file as this product reads and writes it: read once, whole, capped, and only when it is
//! regular and trusted; written beside its place and renamed into it.
//!
//! Everything is asked of the open file, never of the name again, so what was checked is what is
//! read.

use std::{
    ffi::CStr,
    fmt, io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{self, AtFlags, CWD, FileType, Mode, OFlags, Stat},
    io::{Errno, retry_on_intr},
};

mod dir;
mod temporary;
mod trust;

use temporary::Temporary;

pub use dir::{check_dir, make_dir};
pub use temporary::{is_temporary, link, sweep};
pub use trust::{Distrust, Trust, in_user_namespace};

/// The most bytes that a CDI spec may have.
pub const MAX_SPEC_BYTES: usize = 4 << 20;

/// Whether a write must outlive a crash of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// The file and its directory are synced.
    Durable,
    /// Atomic for whoever reads, nothing more.
    Volatile,
}

/// Why a file was not read or not written.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// Nothing stands there.
    #[error("{}: no such file", .path.display())]
    NotFound {
        /// The file.
        path: PathBuf,
    },
    /// A directory, FIFO, socket or device.
    #[error("{}: is {found}, not a regular file", .path.display())]
    NotRegular {
        /// The file.
        path: PathBuf,
        /// What it is, with its article.
        found: &'static str,
    },
    /// More bytes than the caller takes.
    #[error("{}: larger than the limit of {max} bytes", .path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The limit, bytes.
        max: usize,
    },
    /// Somebody who is not trusted could have written it.
    #[error("{}: not trusted: {why}", .path.display())]
    Untrusted {
        /// The file.
        path: PathBuf,
        /// What makes it untrusted.
        why: Distrust,
    },
    /// The system refused.
    #[error("{}: cannot {doing}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried: `read`, `write`, …
        doing: &'static str,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
}

/// Reads the file at `path`, links followed, if it is regular, at most `max` bytes long and owned
/// as `trust` wants it. A FIFO or device never blocks.
///
/// # Errors
/// Every variant of [`FileError`].
pub fn read(path: &Path, max: usize, trust: &Trust) -> Result<Vec<u8>, FileError> {
    let mut bytes = Vec::new();
    let shown = || path.to_owned();
    let fd = fs::openat(CWD, path, READ, Mode::empty()).map_err(|e| open_error(e, shown()))?;
    read_open(fd.as_fd(), &shown, max, trust, &mut bytes)?;
    Ok(bytes)
}

/// [`read`], for `name` in the open directory `dir`, into a buffer that is used again for the next
/// file. `dir_path` is for messages only.
///
/// # Errors
/// Every variant of [`FileError`]; `bytes` is then of no use.
pub fn read_at(
    dir: BorrowedFd<'_>,
    dir_path: &Path,
    name: &CStr,
    max: usize,
    trust: &Trust,
    bytes: &mut Vec<u8>,
) -> Result<(), FileError> {
    use std::os::unix::ffi::OsStrExt;
    let shown = || dir_path.join(std::ffi::OsStr::from_bytes(name.to_bytes()));
    let fd = fs::openat(dir, name, READ, Mode::empty()).map_err(|e| open_error(e, shown()))?;
    bytes.clear();
    read_open(fd.as_fd(), &shown, max, trust, bytes)
}

/// A file of which so far only the beginning was looked at. Nothing is known of it yet: neither
/// that it is regular nor whose it is.
pub(crate) struct Peeked {
    fd: OwnedFd,
    /// What was read is all of it, if it is regular.
    pub(crate) whole: bool,
}

/// Opens `name` in `dir` and reads the beginning of it, `length` bytes or more.
pub(crate) fn peek_at(
    dir: BorrowedFd<'_>,
    name: &CStr,
    length: usize,
    bytes: &mut Vec<u8>,
) -> io::Result<Peeked> {
    bytes.clear();
    bytes.reserve(length);
    let fd = fs::openat(dir, name, READ, Mode::empty())?;
    let got = retry_on_intr(|| rustix::io::read(&fd, rustix::buffer::spare_capacity(bytes)))?;
    Ok(Peeked { fd, whole: got < bytes.capacity() })
}

impl Peeked {
    /// [`read_at`] for the rest: `bytes` holds what was read so far.
    pub(crate) fn finish(
        &self,
        path: &Path,
        max: usize,
        trust: &Trust,
        bytes: &mut Vec<u8>,
    ) -> Result<(), FileError> {
        read_open(self.fd.as_fd(), &|| path.to_owned(), max, trust, bytes)
    }
}

/// Puts `bytes` at `path` with exactly the mode `mode`, in one step for whoever reads it.
///
/// # Errors
/// [`FileError::Io`]; what stood at `path` stays, unless only the sync of the directory failed.
pub fn replace(
    path: &Path,
    bytes: &[u8],
    mode: u32,
    durability: Durability,
) -> Result<(), FileError> {
    Temporary::create(path)?.fill(bytes, None, mode)?.rename(durability)
}

/// [`replace`], with owner, group and mode of the file that stands there.
///
/// # Errors
/// [`FileError::NotFound`] when there is none, and as [`replace`].
pub fn replace_keeping(path: &Path, bytes: &[u8], durability: Durability) -> Result<(), FileError> {
    let old = fs::stat(path).map_err(|e| open_error(e, path.to_owned()))?;
    Temporary::create(path)?.fill(bytes, Some(&old), old.st_mode & 0o7777)?.rename(durability)
}

/// Removes `path`; false when nothing stood there.
///
/// # Errors
/// [`FileError::Io`].
pub fn remove(path: &Path, durability: Durability) -> Result<bool, FileError> {
    let there = || !matches!(fs::lstat(path), Err(Errno::NOENT | Errno::NOTDIR));
    let removed = removed(fs::unlinkat(CWD, path, AtFlags::empty()), there)
        .map_err(|errno| failed(path, "remove", errno))?;
    if removed && durability == Durability::Durable {
        sync_parent(path)?;
    }
    Ok(removed)
}

/// What an unlink came to. A read-only file system refuses before it looks, so after a failure
/// `there` says whether there was anything to remove.
fn removed(unlinked: Result<(), Errno>, there: impl FnOnce() -> bool) -> Result<bool, Errno> {
    match unlinked {
        Ok(()) => Ok(true),
        Err(errno) if there() => Err(errno),
        Err(_) => Ok(false),
    }
}

const READ: OFlags =
    OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

fn read_open(
    fd: BorrowedFd<'_>,
    shown: &dyn Fn() -> PathBuf,
    max: usize,
    trust: &Trust,
    bytes: &mut Vec<u8>,
) -> Result<(), FileError> {
    let io = |errno: Errno| failed(&shown(), "read", errno);
    let stat = fs::fstat(fd).map_err(io)?;
    if let Some(found) = irregular(&stat) {
        return Err(FileError::NotRegular { path: shown(), found });
    }
    if let Some(why) = trust.distrust(&stat) {
        return Err(FileError::Untrusted { path: shown(), why });
    }
    let size = usize::try_from(stat.st_size).unwrap_or(usize::MAX);
    if size > max {
        return Err(FileError::TooLarge { path: shown(), max });
    }
    // What the caller has read already may be all of it.
    if !bytes.is_empty() && bytes.len() == size {
        return Ok(());
    }
    loop {
        // A size of 0 may be a file of /proc: then, and when the file grew, read to the end.
        bytes.reserve(size.saturating_sub(bytes.len()).max(64));
        let got = retry_on_intr(|| rustix::io::read(fd, rustix::buffer::spare_capacity(bytes)))
            .map_err(io)?;
        if bytes.len() > max {
            return Err(FileError::TooLarge { path: shown(), max });
        }
        if got == 0 || bytes.len() == size {
            return Ok(());
        }
    }
}

fn irregular(stat: &Stat) -> Option<&'static str> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => None,
        FileType::Directory => Some("a directory"),
        FileType::Fifo => Some("a FIFO"),
        FileType::Socket => Some("a socket"),
        FileType::CharacterDevice | FileType::BlockDevice => Some("a device"),
        _ => Some("something else"),
    }
}

fn open_error(errno: Errno, path: PathBuf) -> FileError {
    match errno {
        Errno::NOENT => FileError::NotFound { path },
        // Opening a socket, or a device without driver.
        Errno::NXIO => FileError::NotRegular { path, found: "a socket or device" },
        _ => FileError::Io { path, doing: "read", source: errno.into() },
    }
}

fn failed(path: &Path, doing: &'static str, errno: Errno) -> FileError {
    FileError::Io { path: path.to_owned(), doing, source: errno.into() }
}

fn sync_parent(path: &Path) -> Result<(), FileError> {
    let parent = parent(path);
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::DIRECTORY;
    fs::openat(CWD, parent, flags, Mode::empty())
        .and_then(|dir| fs::fsync(&dir))
        .map_err(|errno| failed(parent, "sync", errno))
}

fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

// === impl FileError ===

impl FileError {
    /// Stable, for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Untrusted { .. } => "UNTRUSTED",
            Self::Io { doing: "read", .. }
            | Self::NotFound { .. }
            | Self::NotRegular { .. }
            | Self::TooLarge { .. } => "UNREADABLE",
            Self::Io { .. } => "UNWRITABLE",
        }
    }

    /// The file it is about.
    pub fn path(&self) -> &Path {
        match self {
            Self::NotFound { path }
            | Self::NotRegular { path, .. }
            | Self::TooLarge { path, .. }
            | Self::Untrusted { path, .. }
            | Self::Io { path, .. } => path,
        }
    }

    /// What is wrong, without the path, the system's answer included: for lines that name the
    /// file themselves.
    pub fn why(&self) -> impl fmt::Display + '_ {
        Why(self)
    }
}

struct Why<'a>(&'a FileError);

// === impl Why ===

impl fmt::Display for Why<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            FileError::NotFound { .. } => f.write_str("no such file"),
            FileError::NotRegular { found, .. } => write!(f, "is {found}, not a regular file"),
            FileError::TooLarge { max, .. } => write!(f, "larger than the limit of {max} bytes"),
            FileError::Untrusted { why, .. } => write!(f, "not trusted: {why}"),
            FileError::Io { doing, source, .. } => {
                write!(f, "cannot {doing}: {}", crate::errno::words(source))
            }
        }
    }
}

#[cfg(test)]
mod tests;
