//! The journal is what this node has done for each claim, in a file per claim: written before the
//! machine is changed and after, so that whoever comes after a crash can end what was begun.
//!
//! ```text
//! claims/<claim uid>.json    the entries
//! damaged/                   entries that could not be read, kept for people
//! index/, locks/             how many work on it at once
//! ```

mod call;
mod entry;
mod index;
mod stranger;
mod work;

use std::{
    ffi::OsString,
    fs::File,
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use divvy_cdi::file::{self, Durability, FileError, Trust};
use serde::Deserialize;

use crate::{
    claim::{is_uid, wrong_with},
    lock::LockError,
};

use stranger::Strangers;

pub use call::{Call, Part, Spent};
pub use entry::{Entry, Stage};
pub use index::IndexError;
pub use work::{Alone, Claimed, Work};

/// The journal in a state directory (`/var/lib/divvy`).
#[derive(Debug, Clone)]
pub struct Journal {
    state_dir: PathBuf,
    /// Where the entries lie.
    dir: PathBuf,
    strangers: Arc<Mutex<Option<Strangers>>>,
}

/// What lies among the entries.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Listed {
    /// The entry of the claim with this UID.
    Claim(String),
    /// Something else, which may have been one.
    Stray(PathBuf),
}

/// As much of an entry as every version has.
#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

/// Why the journal cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// A file.
    #[error(transparent)]
    File(#[from] FileError),
    /// The lock.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The index.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// The directory cannot be listed.
    #[error("{}: the journal cannot be listed", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// An entry is damaged: what its claim holds is not known.
    #[error("{}: the journal entry is damaged: {why}", path.display())]
    Invalid {
        /// The entry.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A newer divvy wrote it: what its claim holds is not known to this one.
    #[error(
        "{}: the journal entry has version {found}, and this divvy reads {VERSION}: a newer one \
         wrote it", path.display()
    )]
    Version {
        /// The entry.
        path: PathBuf,
        /// Its version.
        found: u32,
    },
}

/// The version of the entries that this build reads and writes.
pub const VERSION: u32 = 1;

const MAX_BYTES: usize = 1 << 20;

/// Where drivers other than that of GPUs have their journals.
const DRIVERS: &str = "drivers";

/// How often the entry of one claim is kept after it was damaged.
const MAX_KEPT: u32 = 100;

/// What the name of an entry has after the UID.
const ENTRY: &str = ".json";

// === impl Journal ===

impl Journal {
    /// The journal in `state_dir`; nothing is looked at or made.
    pub fn new(state_dir: &Path) -> Self {
        let (state_dir, dir) = (state_dir.to_owned(), state_dir.join("claims"));
        Self { state_dir, dir, strangers: Arc::default() }
    }

    /// The journal of a driver other than that of GPUs, in the same state directory.
    pub fn of_driver(state_dir: &Path, driver: &str) -> Self {
        Self::new(&state_dir.join(DRIVERS).join(driver))
    }

    /// The drivers that have a journal of their own in a state directory.
    ///
    /// # Errors
    /// When it cannot be listed, or others can write it. One that is missing is empty.
    pub fn drivers(state_dir: &Path) -> Result<Vec<String>, JournalError> {
        let path = state_dir.join(DRIVERS);
        file::check_dir(&path, &Trust::of_process())?;
        let failed = |source| JournalError::Directory { path: path.clone(), source };
        let listing = match std::fs::read_dir(&path) {
            Ok(listing) => listing,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed(error)),
        };
        let mut drivers = Vec::new();
        for entry in listing {
            let name = entry.map_err(failed)?.file_name();
            drivers
                .extend(name.to_str().filter(|name| wrong_with(name).is_none()).map(str::to_owned));
        }
        drivers.sort();
        Ok(drivers)
    }

    /// Where the entries lie.
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// The state directory.
    pub fn state_dir(&self) -> &Path {
        &self.state_dir
    }

    /// Where a lock of this name is, in a folder that is there: for what is kept beside the entries.
    ///
    /// # Errors
    /// As [`Self::work`].
    pub fn lock_place(&self, name: &str) -> Result<PathBuf, JournalError> {
        self.make_dirs()?;
        Ok(self.lock_path(name))
    }

    /// The entry of a claim, if it has one.
    ///
    /// # Errors
    /// When it cannot be read or is damaged.
    pub fn entry(&self, uid: &str) -> Result<Option<Entry>, JournalError> {
        let path = self.place(uid);
        let bytes = match file::read(&path, MAX_BYTES, &Trust::of_process()) {
            Ok(bytes) => bytes,
            Err(FileError::NotFound { .. }) => return Ok(None),
            Err(error @ (FileError::NotRegular { .. } | FileError::TooLarge { .. })) => {
                let why = error.why().to_string();
                return Err(JournalError::Invalid { path, why });
            }
            Err(error) => return Err(error.into()),
        };
        Self::decode(&path, &bytes, uid).map(Some)
    }

    /// The entry of this claim in these bytes; the path is for messages.
    ///
    /// # Errors
    /// When they are damaged or another claim's.
    pub fn decode(path: &Path, bytes: &[u8], uid: &str) -> Result<Entry, JournalError> {
        let path = path.to_owned();
        let invalid = |why: String| JournalError::Invalid { path: path.clone(), why };
        // First: an entry of another version may have other fields.
        let Versioned { version } =
            serde_json::from_slice(bytes).map_err(|e| invalid(e.to_string()))?;
        if version > VERSION {
            return Err(JournalError::Version { path, found: version });
        }
        if version < VERSION {
            return Err(invalid(format!("version {version}: no divvy wrote it")));
        }
        let entry: Entry = serde_json::from_slice(bytes).map_err(|e| invalid(e.to_string()))?;
        if entry.uid != uid {
            return Err(invalid(format!("it is about the claim with UID {}", entry.uid)));
        }
        Ok(entry)
    }

    /// All entries, by file name; a damaged one hides no other.
    ///
    /// # Errors
    /// As [`Self::listing`].
    pub fn entries(&self) -> Result<Vec<Result<Entry, JournalError>>, JournalError> {
        let read = |listed| match listed {
            // One that is gone since it was listed is left out.
            Listed::Claim(uid) => self.entry(&uid).transpose(),
            Listed::Stray(path) => Some(Err(JournalError::stray(path))),
        };
        Ok(self.listing()?.into_iter().filter_map(read).collect())
    }

    /// What lies among the entries, in order. Nothing but entries may lie there: what has another
    /// name may once have been one.
    ///
    /// # Errors
    /// When the directory cannot be listed or others can write it. One that is missing is empty.
    pub fn listing(&self) -> Result<Vec<Listed>, JournalError> {
        for dir in [&self.state_dir, &self.dir] {
            file::check_dir(dir, &Trust::of_process())?;
        }
        let failed = |source| JournalError::Directory { path: self.dir.clone(), source };
        let listing = match std::fs::read_dir(&self.dir) {
            Ok(listing) => listing,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed(error)),
        };
        let mut all = Vec::new();
        for entry in listing {
            all.extend(self.listed(&entry.map_err(failed)?.file_name()));
        }
        all.sort();
        Ok(all)
    }

    fn listed(&self, name: &OsString) -> Option<Listed> {
        let text = name.to_str();
        if text.is_some_and(file::is_temporary) {
            return None;
        }
        let uid = text.and_then(|text| text.strip_suffix(ENTRY)).filter(|uid| is_uid(uid));
        Some(match uid {
            Some(uid) => Listed::Claim(uid.to_owned()),
            None => Listed::Stray(self.dir.join(name)),
        })
    }

    /// Takes what is no entry from among them, for people to look at, and says to where.
    ///
    /// # Errors
    /// When it cannot be moved.
    pub fn set_aside(&self, stray: &Path) -> Result<PathBuf, JournalError> {
        let kept = self.keep_damaged(stray)?;
        file::remove(stray, Durability::Durable)?;
        Ok(kept)
    }

    /// Keeps a damaged entry for people under a second name: `damaged/<name>`, `damaged/<name>.1`, …
    fn keep_damaged(&self, path: &Path) -> Result<PathBuf, JournalError> {
        let dir = self.state_dir.join("damaged");
        file::make_dir(&dir, 0o700, Durability::Durable)?;
        let failed = |path: PathBuf, source| FileError::Io { path, doing: "write", source };
        let name = path.file_name().unwrap_or_default();
        for number in 0..MAX_KEPT {
            let mut name = name.to_owned();
            if number > 0 {
                name.push(format!(".{number}"));
            }
            let kept = dir.join(name);
            // A directory has one name only.
            let linked = match path.is_dir() && !path.is_symlink() {
                true if kept.symlink_metadata().is_ok() => Err(io::ErrorKind::AlreadyExists.into()),
                true => std::fs::rename(path, &kept),
                false => std::fs::hard_link(path, &kept),
            };
            match linked {
                Ok(()) => {
                    // Before the other name goes.
                    let synced = File::open(&dir).and_then(|dir| dir.sync_all());
                    synced.map_err(|error| failed(dir, error))?;
                    return Ok(kept);
                }
                // Kept before, and not mended since.
                Err(_) if is_same(path, &kept) => return Ok(kept),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(failed(kept, error).into()),
            }
        }
        let full = io::Error::other(format!("there are {MAX_KEPT} of that name: remove them"));
        Err(failed(dir.join(name), full).into())
    }

    fn has(&self, uid: &str) -> Result<bool, io::Error> {
        match std::fs::symlink_metadata(self.place(uid)) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn write(&self, entry: &Entry) -> Result<(), JournalError> {
        let path = self.place(&entry.uid);
        let mut bytes = serde_json::to_vec_pretty(entry)
            .map_err(|e| JournalError::Invalid { path: path.clone(), why: e.to_string() })?;
        bytes.push(b'\n');
        Ok(file::replace(&path, &bytes, 0o600, Durability::Durable)?)
    }

    fn place(&self, uid: &str) -> PathBuf {
        self.dir.join(format!("{uid}{ENTRY}"))
    }
}

fn is_same(one: &Path, other: &Path) -> bool {
    let place = |path| std::fs::symlink_metadata(path).map(|meta| (meta.dev(), meta.ino())).ok();
    place(one).is_some_and(|one| place(other) == Some(one))
}

// === impl JournalError ===

impl JournalError {
    /// What lies among the entries is none.
    pub(crate) fn stray(path: PathBuf) -> Self {
        Self::Invalid { path, why: format!("entries are named <uid>{ENTRY}") }
    }

    /// Stable, for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::File(error) => error.code(),
            Self::Index(IndexError::File(error)) => error.code(),
            Self::Lock(LockError::Held { .. }) => "LOCK-HELD",
            Self::Lock(_) | Self::Index(_) | Self::Directory { .. } => "STATE-DIR",
            Self::Invalid { .. } => "JOURNAL-INVALID",
            Self::Version { .. } => "JOURNAL-NEWER",
        }
    }
}

#[cfg(test)]
mod tests;
