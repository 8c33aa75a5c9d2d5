//! The names of claims that were prepared by hand: links to their records. Only an index; the
//! record is the truth.

use std::path::{Path, PathBuf};

use divvy_cdi::file::{self, Durability};
use rustix::{
    fs::{self, AtFlags, CWD, FileType},
    io::Errno,
};

use super::{
    ClaimRecord, GPU_DRIVER, Origin, RecordError, RunDir,
    dir::{check_name, failed, list},
};

/// How often a name is tried to be given while others come and go beside it.
const TRIES: u32 = 100;

impl RunDir {
    /// The record of a claim that was prepared by hand on this host. A claim of the API is never
    /// found: the name only points at a record, and the record decides.
    ///
    /// # Errors
    /// Every variant of [`RecordError`].
    pub fn local_claim(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<ClaimRecord>, RecordError> {
        check_name("namespace", namespace)?;
        check_name("name", name)?;
        let (local, of_namespace) = (self.path().join("local"), self.local(namespace));
        for dir in [self.path(), &local, &of_namespace] {
            if !self.trusted(dir)? {
                return Ok(None);
            }
        }
        let link = of_namespace.join(name);
        let Some(Target { driver, uid }) = Target::of(&link)? else { return Ok(None) };
        let of_driver = self.of_driver(&driver);
        let Some(claim) = of_driver.claim(&uid)? else { return Ok(None) };
        let misplaced = |what, found: &str, wanted: &str| {
            let (found, wanted) = (found.to_owned(), wanted.to_owned());
            Err(RecordError::Misplaced { path: of_driver.claim_path(&uid), what, found, wanted })
        };
        if claim.origin != Origin::Local {
            return misplaced("origin", "api", "local");
        }
        if claim.namespace != namespace {
            return misplaced("namespace", &claim.namespace, namespace);
        }
        if claim.name != name {
            return misplaced("name", &claim.name, name);
        }
        Ok(Some(claim))
    }

    /// What the name of a claim leads to.
    fn target(&self, uid: &str) -> String {
        let path = self.claim_path(uid);
        format!("../../{}", path.strip_prefix(self.path()).unwrap_or(&path).display())
    }

    fn local(&self, namespace: &str) -> PathBuf {
        self.path().join("local").join(namespace)
    }

    /// Makes the claim reachable by its name. Others may do so at the same time, and take the last
    /// name of a namespace away.
    pub(super) fn link(&self, claim: &ClaimRecord) -> Result<(), RecordError> {
        let dir = self.local(&claim.namespace);
        let (target, link) = (self.target(&claim.uid), dir.join(&claim.name));
        let mut tries = 0;
        loop {
            self.make_dir(&self.path().join("local"))?;
            self.make_dir(&dir)?;
            match fs::symlink(&target, &link) {
                Ok(()) => return Ok(()),
                Err(Errno::EXIST) if is_to(&link, &target) => return Ok(()),
                Err(Errno::EXIST) if tries < TRIES => {
                    file::remove(&link, Durability::Volatile)?;
                }
                Err(Errno::NOENT) if tries < TRIES => {}
                Err(errno) => return Err(failed(&link, "write", errno)),
            }
            tries += 1;
        }
    }

    /// Takes the name of a claim away. Where its record does not tell it, all are looked at.
    pub(super) fn unlink(&self, uid: &str) -> Result<(), RecordError> {
        let local = self.path().join("local");
        if let Ok(Some(claim)) = self.claim(uid) {
            return match claim.origin {
                Origin::Local => {
                    unlink(&self.local(&claim.namespace), &claim.name, &self.target(uid))
                }
                Origin::Api => Ok(()),
            };
        }
        for namespace in list(&local)? {
            // Nobody but us writes there; what somebody did must not keep a claim from ending.
            if !fs::lstat(&namespace)
                .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_dir())
            {
                continue;
            }
            for link in list(&namespace)? {
                if let Some(name) = link.file_name().and_then(|name| name.to_str()) {
                    unlink(&namespace, name, &self.target(uid))?;
                }
            }
            remove_empty(&namespace);
        }
        Ok(())
    }
}

/// Takes a name away if it leads to this record, and the namespace where it was its last.
fn unlink(namespace: &Path, name: &str, target: &str) -> Result<(), RecordError> {
    let link = namespace.join(name);
    if is_to(&link, target) {
        file::remove(&link, Durability::Volatile)?;
        remove_empty(namespace);
    }
    Ok(())
}

fn remove_empty(namespace: &Path) {
    // Fails while it holds other names.
    let _names = fs::unlinkat(CWD, namespace, AtFlags::REMOVEDIR);
}

fn is_to(link: &Path, target: &str) -> bool {
    fs::readlink(link, Vec::new()).is_ok_and(|found| found.to_bytes() == target.as_bytes())
}

/// The claim that a name points at.
struct Target {
    driver: String,
    uid: String,
}

// === impl Target ===

impl Target {
    /// None when there is no such name.
    fn of(link: &Path) -> Result<Option<Self>, RecordError> {
        let target = match fs::readlink(link, Vec::new()) {
            Ok(target) => target.to_string_lossy().into_owned(),
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::INVAL) => {
                let why = "not a link to a record".to_owned();
                return Err(RecordError::Invalid { path: link.to_owned(), why });
            }
            Err(errno) => return Err(failed(link, "read", errno)),
        };
        match Self::read(&target) {
            Some(target) => Ok(Some(target)),
            None => {
                let why = format!("a link to {target:?}, not to ../../claims/<uid>.json");
                Err(RecordError::Invalid { path: link.to_owned(), why })
            }
        }
    }

    fn read(text: &str) -> Option<Self> {
        let rest = text.strip_prefix("../../")?.strip_suffix(".json")?;
        let (driver, uid) = match rest.strip_prefix("drivers/") {
            None => (GPU_DRIVER, rest.strip_prefix("claims/")?),
            Some(rest) => rest.split_once("/claims/")?,
        };
        check_name("driver", driver).ok()?;
        check_name("claim UID", uid).ok()?;
        Some(Self { driver: driver.to_owned(), uid: uid.to_owned() })
    }
}
