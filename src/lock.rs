//! A lock is a file that one process at a time holds; the others wait for it. The kernel frees it
//! when its holder ends, however it ends.

use std::{
    fmt,
    fs::{File, OpenOptions, TryLockError},
    io::{self, Write},
    os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant, SystemTime},
};

use divvy_cdi::file::Trust;
use rustix::fs::OFlags;

/// A held lock, free again when dropped.
#[derive(Debug)]
pub struct Lock {
    file: File,
    path: PathBuf,
}

/// Why a lock was not taken.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// The lock file could not be made or locked.
    #[error("{}: cannot be locked", path.display())]
    Io {
        /// The lock file.
        path: PathBuf,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// Something else lies there.
    #[error("{}: is {found}, and a lock file belongs there: remove it", path.display())]
    NoFile {
        /// Where the lock file should be.
        path: PathBuf,
        /// What is there, with its article.
        found: &'static str,
    },
    /// Somebody else has it for too long.
    #[error(
        "{}: {by} has had this lock for all the time that could be waited; nothing was done, and the \
         next try waits for it again", path.display()
    )]
    Held {
        /// The lock file.
        path: PathBuf,
        /// Who has it.
        by: Holder,
    },
}

/// Who holds a lock, as far as it can be seen from here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Holder {
    /// The process and its name.
    pub process: Option<(u32, String)>,
    /// What it noted in the lock: the claim that it is at.
    pub claim: Option<String>,
}

/// Who else may hold a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hold {
    Alone,
    Shared,
}

/// How often a lock is looked at that is waited for with an end: the kernel's own wait has none.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LAST_PAUSE: Duration = Duration::from_millis(20);

/// The most that a lock's note has.
const MAX_NOTE: usize = 256;

// === impl Lock ===

impl Lock {
    /// Waits for the lock at `path`, at most until then, and says so on stderr where it has to: whoever
    /// waits can only be told while they do. The file is made where it is missing, and stays.
    ///
    /// # Errors
    /// The file cannot be made: its folder is missing or belongs to somebody else. Or
    /// [`LockError::Held`].
    pub fn wait(path: &Path, until: Option<Instant>) -> Result<Self, LockError> {
        Self::take(path, Hold::Alone, until)
    }

    /// [`Self::wait`], for a lock that all who share it may hold at once.
    ///
    /// # Errors
    /// As [`Self::wait`].
    pub fn share(path: &Path, until: Option<Instant>) -> Result<Self, LockError> {
        Self::take(path, Hold::Shared, until)
    }

    /// The lock at `path`, unless somebody holds it.
    ///
    /// # Errors
    /// As [`Self::wait`].
    pub fn attempt(path: &Path) -> Result<Option<Self>, LockError> {
        Self::try_take(path, Hold::Alone, |_| Ok(false))
    }

    /// When it was last taken or freed, as far as [`Self::touch`] was called for it.
    pub(crate) fn touched(&self) -> io::Result<SystemTime> {
        self.file.metadata()?.modified()
    }

    /// Tells whoever takes it next that something was done under it until now.
    pub(crate) fn touch(&self) {
        // Where the time cannot be set, the next one looks at more than it needs to, or is told of
        // what is not there any more.
        let _untold = self.file.set_modified(SystemTime::now());
    }

    /// Frees the lock and removes its file; who waits for it makes another.
    pub fn remove(self) {
        // Where it cannot be removed it lies there, and does no harm.
        let _stays = std::fs::remove_file(&self.path);
    }

    /// Notes in it what it is held for, for those who wait.
    pub(crate) fn note(&mut self, claim: &str) {
        // They are told less.
        let _untold = self.file.set_len(0).and_then(|()| self.file.write_all(claim.as_bytes()));
    }

    fn take(path: &Path, hold: Hold, until: Option<Instant>) -> Result<Self, LockError> {
        let wait = |file: &File| {
            tell_who_waits(path, file);
            match (until, hold) {
                (Some(until), _) => hold.wait(file, until),
                (None, Hold::Alone) => file.lock().map(|()| true),
                (None, Hold::Shared) => file.lock_shared().map(|()| true),
            }
        };
        let lock = Self::try_take(path, hold, wait)?;
        lock.ok_or_else(|| LockError::Held { path: path.to_owned(), by: Holder::of(path) })
    }

    /// The lock; where somebody holds it, `busy` waits for it or says that it does not.
    fn try_take(
        path: &Path,
        hold: Hold,
        busy: impl Fn(&File) -> io::Result<bool>,
    ) -> Result<Option<Self>, LockError> {
        let take = || loop {
            let (file, id) = open(path)?;
            if !hold.attempt(&file)? && !busy(&file)? {
                return Ok(None);
            }
            // Whoever held it may have removed it: then the lock is another file's.
            if is_at(path, id)? {
                return Ok(Some(Self { file, path: path.to_owned() }));
            }
        };
        take().map_err(|source| match something_else(path) {
            Some(found) => LockError::NoFile { path: path.to_owned(), found },
            None => LockError::Io { path: path.to_owned(), source },
        })
    }
}

// === impl Hold ===

impl Hold {
    /// False where somebody else's hold excludes it.
    fn attempt(self, file: &File) -> io::Result<bool> {
        let tried = match self {
            Self::Alone => file.try_lock(),
            Self::Shared => file.try_lock_shared(),
        };
        match tried {
            Ok(()) => Ok(true),
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// False where it does not come until then.
    fn wait(self, file: &File, until: Instant) -> io::Result<bool> {
        let mut pause = FIRST_PAUSE;
        while !self.attempt(file)? {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            thread::sleep(pause.min(left));
            pause = (pause * 2).min(LAST_PAUSE);
        }
        Ok(true)
    }
}

// === impl Holder ===

impl Holder {
    /// Who holds the lock at this path.
    fn of(path: &Path) -> Self {
        let there = std::fs::symlink_metadata(path).ok();
        let process = there.and_then(|there| holder((there.dev(), there.ino())));
        let note = divvy_cdi::file::read(path, MAX_NOTE, &Trust::Any).unwrap_or_default();
        let note = String::from_utf8(note).ok().filter(|note| !note.is_empty());
        Self { process, claim: note }
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.process {
            Some((pid, name)) => write!(f, "process {pid} ({name})")?,
            None => f.write_str("a process that is not to be seen from here")?,
        }
        match &self.claim {
            Some(claim) => write!(f, ", at claim {claim},"),
            None => Ok(()),
        }
    }
}

/// What lies where a lock file belongs, if it is none.
fn something_else(path: &Path) -> Option<&'static str> {
    let there = std::fs::symlink_metadata(path).ok()?.file_type();
    match there {
        there if there.is_file() => None,
        there if there.is_dir() => Some("a directory"),
        there if there.is_symlink() => Some("a link"),
        there if there.is_fifo() => Some("a FIFO"),
        _ => Some("no regular file"),
    }
}

/// Device and inode.
type Id = (u64, u64);

fn open(path: &Path) -> io::Result<(File, Id)> {
    // NOFOLLOW and NONBLOCK: whatever an unprivileged neighbour left there, root neither follows nor
    // waits for it.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(0o600).custom_flags(flags.bits().cast_signed());
    let file = options.open(path)?;
    let held = file.metadata()?;
    match held.is_file() {
        true => Ok((file, (held.dev(), held.ino()))),
        false => Err(io::ErrorKind::InvalidInput.into()),
    }
}

fn is_at(path: &Path, held: Id) -> io::Result<bool> {
    match std::fs::symlink_metadata(path) {
        Ok(there) => Ok((there.dev(), there.ino()) == held),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

fn tell_who_waits(path: &Path, file: &File) {
    let held = file.metadata().ok().map(|held| (held.dev(), held.ino()));
    let by = match held.and_then(holder) {
        // Claims of one call on one GPU take turns: nothing that anybody could do something about.
        Some((pid, _)) if pid == std::process::id() => return,
        Some((pid, name)) => format!(", held by process {pid} ({name})"),
        None => String::new(),
    };
    crate::admin::tell(&format!("waiting for {}{by}\n", path.display()));
}

/// The process that holds the lock and its name, as far as it can be seen from here.
fn holder(held: Id) -> Option<(u32, String)> {
    let read = |path: &str| divvy_cdi::file::read(path.as_ref(), 1 << 20, &Trust::Any).ok();
    let locks = String::from_utf8(read("/proc/locks")?).ok()?;
    let pid = holder_in(&locks, held)?;
    let name = read(&format!("/proc/{pid}/comm"))?;
    Some((pid, String::from_utf8_lossy(&name).trim_end().escape_default().to_string()))
}

/// The process that holds the lock of a file, in `/proc/locks`:
/// `1: FLOCK  ADVISORY  WRITE 707 fd:01:5243 0 EOF`, the device in hexadecimal.
fn holder_in(locks: &str, (device, inode): Id) -> Option<u32> {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let wanted = format!("{major:02x}:{minor:02x}:{inode}");
    locks.lines().find_map(|line| {
        match line.split_ascii_whitespace().collect::<Vec<_>>().as_slice() {
            [_, "FLOCK", _, "WRITE", pid, place, ..] if *place == wanted => {
                pid.parse::<u32>().ok().filter(|pid| *pid > 0)
            }
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests;
