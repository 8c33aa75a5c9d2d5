//! The index says which claims may hold a GPU, and which has a name, so that nobody reads all entries
//! to find out.
//!
//! ```text
//! index/<boot>/gpus/<GPU>/<claim uid>           an empty file
//! index/<boot>/names/<namespace>/<name>         a link to the UID of a claim prepared by hand
//! ```
//!
//! The entries are the truth. What the index says is looked up in them, and it never says too little:
//! a claim is in it before its entry is written and until that is gone. It costs no sync, as it is
//! made anew from the entries in each boot.

use std::{
    collections::BTreeSet,
    io,
    path::{Path, PathBuf},
};

use divvy_cdi::file::{self, Durability, FileError};
use rustix::{
    fs::{self, CWD, Mode, OFlags},
    io::Errno,
};

/// The index of one boot.
#[derive(Debug)]
pub(super) struct Index {
    dir: PathBuf,
}

/// Why the index cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    /// A file.
    #[error(transparent)]
    File(#[from] FileError),
    /// Something else lies there than divvy makes.
    #[error(
        "{}: is not what the journal's index has there: remove {}, it is made anew from the entries",
        path.display(), index.display()
    )]
    Strange {
        /// What lies there.
        path: PathBuf,
        /// The index.
        index: PathBuf,
    },
}

/// The GPU of a claim of which it is not known which GPUs it has.
pub(super) const UNKNOWN: &str = "unknown";

// === impl Index ===

impl Index {
    pub(super) fn of(state_dir: &Path, boot: &str) -> Self {
        Self { dir: state_dir.join("index").join(boot) }
    }

    pub(super) fn is_there(&self) -> bool {
        self.dir.is_dir()
    }

    /// Makes the index anew, and removes those of earlier boots. It is there when it is whole.
    pub(super) fn make(
        &self,
        fill: impl FnOnce(&Self) -> Result<(), IndexError>,
    ) -> Result<(), IndexError> {
        let Some(all) = self.dir.parent() else { return Ok(()) };
        let failed = |error: io::Error| self.failed(all, "write", error);
        match std::fs::remove_dir_all(all) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        file::make_dir(all, 0o700, Durability::Volatile)?;
        let half = Self { dir: all.join(".half") };
        file::make_dir(&half.dir, 0o700, Durability::Volatile)?;
        fill(&half)?;
        std::fs::rename(&half.dir, &self.dir).map_err(failed)
    }

    /// The claims that may hold this GPU.
    pub(super) fn claims(&self, gpu: &str) -> Result<BTreeSet<String>, IndexError> {
        let mut claims = self.names(&self.of_gpu(gpu))?;
        claims.append(&mut self.names(&self.of_gpu(UNKNOWN))?);
        Ok(claims)
    }

    /// The claims that may hold any GPU.
    pub(super) fn all_claims(&self) -> Result<BTreeSet<String>, IndexError> {
        let mut claims = BTreeSet::new();
        for gpu in self.names(&self.dir.join("gpus"))? {
            claims.append(&mut self.names(&self.of_gpu(&gpu))?);
        }
        Ok(claims)
    }

    pub(super) fn add(&self, gpu: &str, uid: &str) -> Result<(), IndexError> {
        let dir = self.of_gpu(gpu);
        let path = dir.join(uid);
        // Whatever lies there, it is not waited for.
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let add = || fs::openat(CWD, &path, flags, Mode::RUSR | Mode::WUSR).map(drop);
        let mut added = add();
        if added == Err(Errno::NOENT) {
            file::make_dir(&self.dir.join("gpus"), 0o700, Durability::Volatile)?;
            file::make_dir(&dir, 0o700, Durability::Volatile)?;
            added = add();
        }
        added.map_err(|errno| self.failed(&path, "write", errno))
    }

    pub(super) fn remove(&self, gpu: &str, uid: &str) -> Result<(), IndexError> {
        Ok(file::remove(&self.of_gpu(gpu).join(uid), Durability::Volatile).map(drop)?)
    }

    /// The UID of the claim that has this name.
    pub(super) fn named(&self, namespace: &str, name: &str) -> Result<Option<String>, IndexError> {
        let path = self.of_namespace(namespace).join(name);
        match fs::readlink(&path, Vec::new()) {
            Ok(uid) => Ok(Some(uid.to_string_lossy().into_owned())),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(self.failed(&path, "read", errno)),
        }
    }

    /// Gives a claim this name, whoever had it.
    pub(super) fn name(&self, namespace: &str, name: &str, uid: &str) -> Result<(), IndexError> {
        let dir = self.of_namespace(namespace);
        let path = dir.join(name);
        let link = || fs::symlink(uid, &path);
        let linked = match link() {
            Err(Errno::NOENT) => {
                file::make_dir(&self.dir.join("names"), 0o700, Durability::Volatile)?;
                file::make_dir(&dir, 0o700, Durability::Volatile)?;
                link()
            }
            Err(Errno::EXIST) => {
                file::remove(&path, Durability::Volatile)?;
                link()
            }
            linked => linked,
        };
        linked.map_err(|errno| self.failed(&path, "write", errno))
    }

    /// Takes a claim's name from it.
    pub(super) fn unname(&self, namespace: &str, name: &str, uid: &str) -> Result<(), IndexError> {
        if self.named(namespace, name)?.is_some_and(|has| has == uid) {
            file::remove(&self.of_namespace(namespace).join(name), Durability::Volatile)?;
        }
        Ok(())
    }

    fn of_gpu(&self, gpu: &str) -> PathBuf {
        self.dir.join("gpus").join(gpu)
    }

    fn of_namespace(&self, namespace: &str) -> PathBuf {
        self.dir.join("names").join(namespace)
    }

    /// What lies in a directory; nothing where it is missing.
    fn names(&self, dir: &Path) -> Result<BTreeSet<String>, IndexError> {
        let failed = |error| self.failed(dir, "read", error);
        let listing = match std::fs::read_dir(dir) {
            Ok(listing) => listing,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
            Err(error) => return Err(failed(error)),
        };
        let name = |entry: io::Result<std::fs::DirEntry>| {
            Ok(entry.map_err(failed)?.file_name().to_string_lossy().into_owned())
        };
        listing.map(name).collect()
    }

    fn failed(&self, path: &Path, doing: &'static str, error: impl Into<io::Error>) -> IndexError {
        use io::ErrorKind::{InvalidInput, IsADirectory, NotADirectory};
        let (path, source) = (path.to_owned(), error.into());
        // A FIFO has no reader, and what is no link leads nowhere.
        let nobody_reads = Errno::from_io_error(&source) == Some(Errno::NXIO);
        match source.kind() {
            NotADirectory | IsADirectory | InvalidInput => {}
            _ if nobody_reads => {}
            _ => return FileError::Io { path, doing, source }.into(),
        }
        let index = self.dir.parent().unwrap_or(&self.dir).to_owned();
        IndexError::Strange { path, index }
    }
}
