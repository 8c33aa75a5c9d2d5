//! The journal is what this node has done for each claim, in a file per claim: written before the
//! machine is changed and after, so that whoever comes after a crash can end what was begun.

use std::{
    ffi::OsString,
    io,
    path::{Path, PathBuf},
};

use divvy_cdi::file::{self, Durability, FileError, Trust};
use divvy_hook::record::{Consumer, Origin, RunDir};
use serde::{Deserialize, Serialize};

use crate::{
    emit,
    lock::{Lock, LockError},
    plan::{Held, Planned, Step},
};

/// The journal in a state directory (`/var/lib/divvy`).
#[derive(Debug, Clone)]
pub struct Journal {
    dir: PathBuf,
}

/// What was done for a claim. Says all that undoing it needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Entry {
    /// [`VERSION`].
    pub version: u32,
    /// The claim's UID, also the file's name.
    pub uid: String,
    /// The claim's namespace.
    pub namespace: String,
    /// The claim's name.
    pub name: String,
    /// Who asked for it.
    pub origin: Origin,
    /// [`crate::claim::Claim::digest`] of what was asked for.
    pub asked: String,
    /// The GPUs it is on: [`crate::gpu::Gpus::address`].
    pub gpus: String,
    /// Where its CDI spec is written, absolute.
    pub cdi_dir: PathBuf,
    /// Where its record is written, absolute.
    pub run_dir: PathBuf,
    /// Who may use it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub consumers: Vec<Consumer>,
    /// The boot in which it was last verified.
    pub boot: String,
    /// How far it is.
    pub stage: Stage,
    /// Its devices.
    pub devices: Vec<Planned>,
    /// The changes of the machine, in the order in which they are made.
    pub steps: Vec<Step>,
}

/// As much of an entry as every version has.
#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

/// How far a claim is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Stage {
    /// Its steps may or may not be done: being prepared, being ended, or left by a crash. Whoever
    /// finds it with the lock in hand undoes them.
    Started,
    /// It is prepared.
    Done,
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
}

/// The version of the entries that this build reads and writes.
pub const VERSION: u32 = 1;

const MAX_BYTES: usize = 1 << 20;

/// The file that whoever prepares or ends claims holds.
const LOCK: &str = "lock";

/// What the name of an entry has after the UID.
const ENTRY: &str = ".json";

// === impl Journal ===

impl Journal {
    /// The journal in `state_dir`; nothing is looked at or made.
    pub fn new(state_dir: &Path) -> Self {
        Self { dir: state_dir.join("claims") }
    }

    /// Where the entries lie.
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// Waits until no other process prepares or ends claims. The directory is made if missing.
    ///
    /// # Errors
    /// When it cannot be made, or its lock file, or others can write it.
    pub fn lock(&self) -> Result<Lock, JournalError> {
        // Whoever can write the one above could put another journal in the place of this one.
        if let Some(state_dir) = self.dir.parent() {
            file::make_dir(state_dir, 0o755, Durability::Durable)?;
        }
        file::make_dir(&self.dir, 0o700, Durability::Durable)?;
        Ok(Lock::wait(&self.dir.join(LOCK))?)
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
            Err(error) => return Err(error.into()),
        };
        let invalid = |why: String| JournalError::Invalid { path: path.clone(), why };
        // First: an entry of another version may have other fields.
        let Versioned { version } =
            serde_json::from_slice(&bytes).map_err(|e| invalid(e.to_string()))?;
        if version != VERSION {
            return Err(invalid(format!("version {version}, and this divvy reads {VERSION}")));
        }
        let entry: Entry = serde_json::from_slice(&bytes).map_err(|e| invalid(e.to_string()))?;
        if entry.uid != uid {
            return Err(invalid(format!("it is about the claim with UID {}", entry.uid)));
        }
        Ok(Some(entry))
    }

    /// All entries, by file name; a damaged one hides no other. Nothing but entries may lie there:
    /// what lies under another name may once have been one, and is damaged as well.
    ///
    /// # Errors
    /// When the directory cannot be listed or others can write it. One that is missing is empty.
    pub fn entries(&self) -> Result<Vec<Result<Entry, JournalError>>, JournalError> {
        for dir in self.dir.parent().into_iter().chain([&*self.dir]) {
            file::check_dir(dir, &Trust::of_process())?;
        }
        let failed = |source| JournalError::Directory { path: self.dir.clone(), source };
        let listing = match std::fs::read_dir(&self.dir) {
            Ok(listing) => listing,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed(error)),
        };
        let mut names = Vec::new();
        for entry in listing {
            names.push(entry.map_err(failed)?.file_name());
        }
        names.sort();
        // An entry that is gone since the listing is left out.
        let listed = |name: &OsString| match name.to_str() {
            Some(LOCK) => None,
            Some(name) if file::is_temporary(name) => None,
            Some(name) if name.ends_with(ENTRY) => {
                self.entry(name.strip_suffix(ENTRY)?).transpose()
            }
            Some(_) | None => {
                let why = format!("entries are named <uid>{ENTRY}");
                Some(Err(JournalError::Invalid { path: self.dir.join(name), why }))
            }
        };
        Ok(names.iter().filter_map(listed).collect())
    }

    /// Removes what crashes left half written; nobody else writes here.
    pub fn sweep(&self, _held: &Lock) {
        file::sweep(&self.dir);
    }

    /// Writes an entry so that it outlives a crash.
    ///
    /// # Errors
    /// When it cannot be written; what was there before stays.
    pub fn write(&self, _held: &Lock, entry: &Entry) -> Result<(), JournalError> {
        let path = self.place(&entry.uid);
        let mut bytes = serde_json::to_vec_pretty(entry)
            .map_err(|e| JournalError::Invalid { path: path.clone(), why: e.to_string() })?;
        bytes.push(b'\n');
        Ok(file::replace(&path, &bytes, 0o600, Durability::Durable)?)
    }

    /// Removes an entry.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn remove(&self, _held: &Lock, uid: &str) -> Result<(), JournalError> {
        file::remove(&self.place(uid), Durability::Durable)?;
        Ok(())
    }

    fn place(&self, uid: &str) -> PathBuf {
        self.dir.join(format!("{uid}{ENTRY}"))
    }
}

// === impl Entry ===

impl Entry {
    /// `namespace/name`
    pub fn title(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// The file of its CDI spec.
    pub fn spec_path(&self) -> PathBuf {
        self.cdi_dir.join(emit::spec_name(&self.uid))
    }

    /// The directory of its record.
    pub fn run(&self) -> RunDir {
        RunDir::new(&self.run_dir)
    }

    /// What the claim holds, so that no other gets it.
    pub fn held(&self) -> impl Iterator<Item = Held> + '_ {
        let devices = self.devices.iter().filter(|device| !device.admin);
        devices.map(|device| Held {
            claim: self.title(),
            target: device.target.clone(),
            share: device.share.clone(),
            sharing: device.sharing.clone(),
        })
    }

    /// The UUID of the partition that a step of this claim made for a device.
    pub fn partition_of(&self, device: &Planned) -> Option<&str> {
        let crate::plan::Target::Partition { gpu, placement, .. } = &device.target else {
            return None;
        };
        self.steps.iter().find_map(|step| match step {
            Step::Partition(made) if made.gpu == *gpu && made.placement == *placement => {
                made.uuid.as_deref()
            }
            Step::Partition(_) | Step::TimeSlice { .. } => None,
        })
    }
}

// === impl JournalError ===

impl JournalError {
    /// Stable, for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::File(error) => error.code(),
            Self::Lock(_) | Self::Directory { .. } => "STATE-DIR",
            Self::Invalid { .. } => "JOURNAL-INVALID",
        }
    }
}

#[cfg(test)]
mod tests;
