//! The run directory holds all records of this boot.

use std::{
    io,
    path::{Path, PathBuf},
};

use divvy_cdi::file::{self, Durability, FileError, Trust};
use rustix::{fs, io::Errno};
use serde::{Serialize, de::DeserializeOwned};

use super::{ClaimRecord, GPU_DRIVER, MAX_RECORD_BYTES, Origin, PodRecord, RecordError, VERSION};
use crate::link;

/// The longest UID, namespace or name: that of a DNS subdomain.
const MAX_NAME: usize = 253;

const CLAIMS: &str = "claims";
/// Where those of drivers other than that of GPUs have theirs.
const DRIVERS: &str = "drivers";

/// The run directory, `/run/divvy`, with the claims of one driver. A record is read only where its directory and itself are
/// trusted ([`Trust::of_caller`]): without root it is the caller's own, and holds nobody else's.
#[derive(Debug, Clone)]
pub struct RunDir {
    path: PathBuf,
    /// Where the records of its claims are.
    claims: PathBuf,
    trust: Trust,
}

/// A record, as far as reading it goes.
trait Record: Serialize + DeserializeOwned {
    const UID: &'static str;
    fn dir(run: &RunDir) -> PathBuf;
    fn uid(&self) -> &str;
}

/// The boot that this machine is in, as Linux names it.
///
/// # Errors
/// When `/proc` does not answer.
pub fn boot_id() -> Result<String, FileError> {
    let path = Path::new("/proc/sys/kernel/random/boot_id");
    let bytes = file::read(path, 64, &Trust::Any)?;
    Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
}

// === impl RunDir ===

impl RunDir {
    /// The run directory at `path`, with the claims on GPUs; nothing is looked at or created.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        Self { claims: path.join(CLAIMS), path, trust: Trust::of_caller() }
    }

    /// The same with this driver's claims.
    #[must_use]
    pub fn of_driver(&self, driver: &str) -> Self {
        let claims = match driver {
            GPU_DRIVER => self.path.join(CLAIMS),
            other => self.path.join(DRIVERS).join(other).join(CLAIMS),
        };
        Self { claims, ..self.clone() }
    }

    /// Whether claims of this driver have their records here, or had since the boot.
    pub fn has_driver(&self, driver: &str) -> bool {
        driver == GPU_DRIVER
            || (check_name("driver", driver).is_ok()
                && fs::lstat(self.path.join(DRIVERS).join(driver)).is_ok())
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the record of a claim; one of origin `local` becomes reachable by its name.
    ///
    /// # Errors
    /// [`RecordError::Name`], or [`RecordError::File`] when a directory is not trusted or a file
    /// cannot be written.
    pub fn write_claim(&self, claim: &ClaimRecord) -> Result<(), RecordError> {
        check_name("claim UID", &claim.uid)?;
        check_name("namespace", &claim.namespace)?;
        check_name("name", &claim.name)?;
        self.write(claim)?;
        match claim.origin {
            Origin::Local => self.link(claim),
            Origin::Api => Ok(()),
        }
    }

    /// Removes the record of a claim and its name; false when there was none.
    ///
    /// # Errors
    /// [`RecordError::Name`] and [`RecordError::File`].
    pub fn remove_claim(&self, uid: &str) -> Result<bool, RecordError> {
        let path = self.place::<ClaimRecord>(uid)?;
        self.unlink(uid)?;
        Ok(file::remove(&path, Durability::Durable)?)
    }

    /// The record of a claim; none when it is not prepared.
    ///
    /// # Errors
    /// Every variant of [`RecordError`].
    pub fn claim(&self, uid: &str) -> Result<Option<ClaimRecord>, RecordError> {
        self.read(uid)
    }

    /// The records of all claims in the order of their file names; a bad one hides no other.
    ///
    /// # Errors
    /// [`RecordError::File`] when the directory cannot be read or is not trusted.
    #[expect(clippy::type_complexity, reason = "a name for it would only hide the two results")]
    pub fn claims(&self) -> Result<Vec<(PathBuf, Result<ClaimRecord, RecordError>)>, RecordError> {
        let dir = self.claims.clone();
        if !self.reaches(&dir)? {
            return Ok(Vec::new());
        }
        let mut paths = Vec::new();
        for entry in list(&dir)? {
            if entry.extension().is_some_and(|extension| extension == "json") {
                paths.push(entry);
            }
        }
        paths.sort();
        let read = |path: PathBuf| {
            let uid = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
            match self.claim(uid) {
                Ok(Some(claim)) => Some((path, Ok(claim))),
                // Gone since it was listed.
                Ok(None) => None,
                Err(error) => Some((path, Err(error))),
            }
        };
        Ok(paths.into_iter().filter_map(read).collect())
    }

    /// Writes the record of a pod.
    ///
    /// # Errors
    /// As [`Self::write_claim`].
    pub fn write_pod(&self, pod: &PodRecord) -> Result<(), RecordError> {
        check_name("pod UID", &pod.uid)?;
        self.write(pod)
    }

    /// Removes the record of a pod; false when there was none.
    ///
    /// # Errors
    /// [`RecordError::Name`] and [`RecordError::File`].
    pub fn remove_pod(&self, uid: &str) -> Result<bool, RecordError> {
        Ok(file::remove(&self.place::<PodRecord>(uid)?, Durability::Durable)?)
    }

    /// The record of a pod; none when nothing is prepared for it.
    ///
    /// # Errors
    /// Every variant of [`RecordError`].
    pub fn pod(&self, uid: &str) -> Result<Option<PodRecord>, RecordError> {
        self.read(uid)
    }

    /// The UIDs of all pods that have a record, in order; none is read.
    ///
    /// # Errors
    /// [`RecordError::File`] when the directory cannot be read or is not trusted.
    pub fn pods(&self) -> Result<Vec<String>, RecordError> {
        let dir = PodRecord::dir(self);
        if !self.reaches(&dir)? {
            return Ok(Vec::new());
        }
        let uid =
            |path: PathBuf| Some(path.file_name()?.to_str()?.strip_suffix(".json")?.to_owned());
        let mut uids: Vec<String> = list(&dir)?.into_iter().filter_map(uid).collect();
        uids.sort();
        Ok(uids)
    }

    /// Whether there is a record of the pod, without reading it.
    ///
    /// # Errors
    /// [`RecordError::Name`], and [`RecordError::File`] when a directory is not trusted.
    pub fn has_pod(&self, uid: &str) -> Result<bool, RecordError> {
        let path = self.place::<PodRecord>(uid)?;
        if !self.reaches(&PodRecord::dir(self))? {
            return Ok(false);
        }
        // A link that leads to nothing is something all the same: reading it says so.
        match fs::lstat(&path) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(failed(&path, "read", errno)),
        }
    }

    /// Removes what crashes left half written, and nothing that is just being written: [`file::sweep`].
    pub fn sweep(&self) {
        for of_records in [&self.claims, &PodRecord::dir(self)] {
            file::sweep(of_records);
        }
    }

    /// Where the record of a claim is, for messages.
    pub fn claim_path(&self, uid: &str) -> PathBuf {
        self.claims.join(format!("{uid}.json"))
    }

    /// Where the record of a pod is, for messages.
    pub fn pod_path(&self, uid: &str) -> PathBuf {
        PodRecord::dir(self).join(format!("{uid}.json"))
    }

    fn read<R: Record>(&self, uid: &str) -> Result<Option<R>, RecordError> {
        let path = self.place::<R>(uid)?;
        if !self.reaches(&R::dir(self))? {
            return Ok(None);
        }
        let bytes = match file::read(&path, MAX_RECORD_BYTES, &self.trust) {
            Ok(bytes) => bytes,
            Err(FileError::NotFound { .. }) => return absent(&path).map(|()| None),
            Err(error) => return Err(error.into()),
        };
        let record: R = decode(&path, &bytes)?;
        if record.uid() == uid {
            return Ok(Some(record));
        }
        let (found, wanted) = (record.uid().to_owned(), uid.to_owned());
        Err(RecordError::Misplaced { path, what: "uid", found, wanted })
    }

    fn write<R: Record>(&self, record: &R) -> Result<(), RecordError> {
        let path = self.place::<R>(record.uid())?;
        self.make_dir(&R::dir(self))?;
        let invalid = |error: serde_json::Error| RecordError::Invalid {
            path: path.clone(),
            why: error.to_string(),
        };
        let mut bytes = serde_json::to_vec(record).map_err(invalid)?;
        bytes.push(b'\n');
        if bytes.len() > MAX_RECORD_BYTES {
            return Err(FileError::TooLarge { path, max: MAX_RECORD_BYTES }.into());
        }
        Ok(file::replace(&path, &bytes, 0o644, Durability::Durable)?)
    }

    fn place<R: Record>(&self, uid: &str) -> Result<PathBuf, RecordError> {
        check_name(R::UID, uid)?;
        let mut path = R::dir(self);
        path.push(format!("{uid}.json"));
        Ok(path)
    }

    /// False when a directory below the run directory, or one above it up to that, is not there.
    fn reaches(&self, dir: &Path) -> Result<bool, RecordError> {
        for dir in self.down_to(dir) {
            if !self.trusted(&dir)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The run directory, and each one on the way to a directory below it.
    fn down_to(&self, dir: &Path) -> Vec<PathBuf> {
        let ours = dir.ancestors().take_while(|above| *above != self.path);
        let mut all: Vec<PathBuf> = ours.map(Path::to_owned).collect();
        all.push(self.path.clone());
        all.reverse();
        all
    }

    /// False when there is no such directory.
    pub(super) fn trusted(&self, dir: &Path) -> Result<bool, RecordError> {
        let found = file::check_dir(dir, &self.trust)?;
        if !found {
            absent(dir)?;
        }
        Ok(found)
    }

    /// Creates a directory below the run directory, and those above it down from that one.
    pub(super) fn make_dir(&self, dir: &Path) -> Result<(), RecordError> {
        for dir in self.down_to(dir) {
            // Like its records it does not outlive the boot.
            file::make_dir(&dir, 0o755, Durability::Volatile)?;
        }
        Ok(())
    }
}

// === impl Record ===

impl Record for ClaimRecord {
    const UID: &'static str = "claim UID";
    fn dir(run: &RunDir) -> PathBuf {
        run.claims.clone()
    }
    fn uid(&self) -> &str {
        &self.uid
    }
}

impl Record for PodRecord {
    const UID: &'static str = "pod UID";
    fn dir(run: &RunDir) -> PathBuf {
        run.path.join("pods")
    }
    fn uid(&self) -> &str {
        &self.uid
    }
}

fn decode<R: Record>(path: &Path, bytes: &[u8]) -> Result<R, RecordError> {
    #[derive(serde::Deserialize)]
    struct Versioned {
        version: u32,
    }
    let invalid = |error: serde_json::Error| RecordError::Invalid {
        path: path.to_owned(),
        why: error.to_string(),
    };
    let not_utf8 = |error: std::str::Utf8Error| RecordError::Invalid {
        path: path.to_owned(),
        why: error.to_string(),
    };
    let text = std::str::from_utf8(bytes).map_err(not_utf8)?;
    // The fields of another version may be others, so its number comes first.
    match serde_json::from_str(text) {
        Ok(Versioned { version: VERSION }) => serde_json::from_str(text).map_err(invalid),
        Ok(Versioned { version }) => {
            Err(RecordError::Version { path: path.to_owned(), found: version })
        }
        Err(error) => Err(invalid(error)),
    }
}

/// What was not found must not be there: a link that leads to nothing is no missing record.
fn absent(path: &Path) -> Result<(), RecordError> {
    let Some(link) = link::dangling(path) else { return Ok(()) };
    let why = format!("{} is a link to something that is not there", link.display());
    Err(RecordError::Invalid { path: path.to_owned(), why })
}

pub(super) fn check_name(what: &'static str, value: &str) -> Result<(), RecordError> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let starts = value.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    if starts && value.len() <= MAX_NAME && value.bytes().all(allowed) {
        Ok(())
    } else {
        Err(RecordError::Name { what, value: value.to_owned() })
    }
}

/// What stands in a directory; nothing when it is not there.
pub(super) fn list(dir: &Path) -> Result<Vec<PathBuf>, RecordError> {
    let io = |error: io::Error| {
        RecordError::File(FileError::Io { path: dir.to_owned(), doing: "read", source: error })
    };
    let mut paths = Vec::new();
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(paths),
        Err(error) => return Err(io(error)),
    };
    for entry in entries {
        paths.push(entry.map_err(io)?.path());
    }
    Ok(paths)
}

pub(super) fn failed(path: &Path, doing: &'static str, errno: Errno) -> RecordError {
    FileError::Io { path: path.to_owned(), doing, source: errno.into() }.into()
}

#[cfg(test)]
mod tests;
