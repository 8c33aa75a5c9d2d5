//! The names of claims that were prepared by hand: links to their records. Only an index; the
//! record is the truth.

use std::path::{Path, PathBuf};

use divvy_cdi::file::{self, Durability};
use rustix::{
    fs::{self, AtFlags, CWD, FileType},
    io::Errno,
};

use super::{
    ClaimRecord, Origin, RecordError, RunDir,
    dir::{check_name, failed, list},
};

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
        let Some(uid) = link_uid(&link)? else { return Ok(None) };
        let Some(claim) = self.claim(&uid)? else { return Ok(None) };
        let misplaced = |what, found: &str, wanted: &str| {
            let (found, wanted) = (found.to_owned(), wanted.to_owned());
            Err(RecordError::Misplaced { path: self.claim_path(&uid), what, found, wanted })
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

    fn local(&self, namespace: &str) -> PathBuf {
        self.path().join("local").join(namespace)
    }

    /// Makes the claim reachable by its name, in one step.
    pub(super) fn link(&self, claim: &ClaimRecord) -> Result<(), RecordError> {
        let dir = self.local(&claim.namespace);
        self.make_dir(&self.path().join("local"))?;
        self.make_dir(&dir)?;
        let temporary = dir.join(format!(".divvy-{}.tmp", std::process::id()));
        let link = dir.join(&claim.name);
        file::remove(&temporary, Durability::Volatile)?;
        fs::symlink(format!("../../claims/{}.json", claim.uid), &temporary)
            .and_then(|()| fs::rename(&temporary, &link))
            .map_err(|errno| failed(&link, "write", errno))?;
        Ok(())
    }

    /// Takes away each name of the claim, whatever its record says: it may be unreadable.
    pub(super) fn unlink(&self, uid: &str) -> Result<(), RecordError> {
        for namespace in list(&self.path().join("local"))? {
            // Nobody but us writes there; what somebody did must not keep a claim from ending.
            if !fs::lstat(&namespace)
                .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_dir())
            {
                continue;
            }
            for link in list(&namespace)? {
                if link_uid(&link).ok().flatten().as_deref() == Some(uid) {
                    file::remove(&link, Durability::Volatile)?;
                }
            }
            // Fails while it holds other names.
            let _empty = fs::unlinkat(CWD, &namespace, AtFlags::REMOVEDIR);
        }
        Ok(())
    }
}

/// The claim that a name points at; none when there is no such name.
fn link_uid(link: &Path) -> Result<Option<String>, RecordError> {
    let target = match fs::readlink(link, Vec::new()) {
        Ok(target) => target.to_string_lossy().into_owned(),
        Err(Errno::NOENT) => return Ok(None),
        Err(Errno::INVAL) => {
            let why = "not a link to a record".to_owned();
            return Err(RecordError::Invalid { path: link.to_owned(), why });
        }
        Err(errno) => return Err(failed(link, "read", errno)),
    };
    let uid = target.strip_prefix("../../claims/").and_then(|name| name.strip_suffix(".json"));
    match uid {
        Some(uid) if check_name("claim UID", uid).is_ok() => Ok(Some(uid.to_owned())),
        _ => {
            let why = format!("a link to {target:?}, not to ../../claims/<uid>.json");
            Err(RecordError::Invalid { path: link.to_owned(), why })
        }
    }
}
