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

    /// Makes the claim reachable by its name. Others may do so at the same time, and take the last
    /// name of a namespace away.
    pub(super) fn link(&self, claim: &ClaimRecord) -> Result<(), RecordError> {
        let dir = self.local(&claim.namespace);
        let (target, link) = (format!("../../claims/{}.json", claim.uid), dir.join(&claim.name));
        let mut tries = 0;
        loop {
            self.make_dir(&self.path().join("local"))?;
            self.make_dir(&dir)?;
            match fs::symlink(&target, &link) {
                Ok(()) => return Ok(()),
                Err(Errno::EXIST)
                    if link_uid(&link).is_ok_and(|uid| uid.is_some_and(|uid| uid == claim.uid)) =>
                {
                    return Ok(());
                }
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
                Origin::Local => unlink(&self.local(&claim.namespace), &claim.name, uid),
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
                    unlink(&namespace, name, uid)?;
                }
            }
            remove_empty(&namespace);
        }
        Ok(())
    }
}

/// Takes a name away if it is this claim's, and the namespace where it was its last.
fn unlink(namespace: &Path, name: &str, uid: &str) -> Result<(), RecordError> {
    let link = namespace.join(name);
    if link_uid(&link).ok().flatten().as_deref() == Some(uid) {
        file::remove(&link, Durability::Volatile)?;
        remove_empty(namespace);
    }
    Ok(())
}

fn remove_empty(namespace: &Path) {
    // Fails while it holds other names.
    let _names = fs::unlinkat(CWD, namespace, AtFlags::REMOVEDIR);
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
