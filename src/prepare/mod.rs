//! Preparing makes a claim's devices ready on this machine, unpreparing takes everything back. The
//! one place that changes the machine.
//!
//! Everything is validated first. Then the journal says what is about to be done, the steps are
//! done, spec and record are written, and the journal says that it is done. Whatever fails on the
//! way, exactly what was done is undone; whatever a crash leaves, the next one to come undoes.

mod choose;
mod daemon;
mod elsewhere;
mod error;
mod mend;
mod metadata;
mod publish;
mod reconcile;
mod step;

use std::{
    collections::BTreeSet,
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use divvy_cdi::file::{self, FileError, Trust};
use divvy_hook::record::{Origin, RunDir};

use crate::{
    claim::{Claim, Class},
    gpu::{GpuError, Inventory},
    journal::{Call, Claimed, Entry, Journal, JournalError, Stage, VERSION},
    plan::{self, Step},
    pool::Pool,
};

use mend::Mended;

pub use error::{PrepareError, StepError, Undone};
pub use reconcile::Reconciled;

/// A node, as far as preparing changes it.
#[derive(Debug, Clone, Copy)]
pub struct Node<'a> {
    /// What it has to give.
    pub pool: Pool<'a>,
    /// What was done on it.
    pub journal: &'a Journal,
    /// Where the hook finds the records of claims that are new; a prepared claim's stay where they
    /// were written.
    pub run: &'a RunDir,
    /// Where their CDI specs go.
    pub cdi_dir: &'a Path,
    /// The program that edits containers' file systems.
    pub hook: &'a Path,
    /// Where the host's cgroups are: `/sys/fs/cgroup`.
    pub cgroups: &'a Path,
    /// The boot it is in.
    pub boot: &'a str,
    /// What all this is done for.
    pub call: Call<'a>,
    /// Containers of claims that are new are told what their devices are.
    pub metadata: bool,
}

/// A claim that is prepared.
#[derive(Debug)]
pub struct Prepared {
    /// Its entry in the journal.
    pub entry: Entry,
    /// False when it was prepared before.
    pub fresh: bool,
}

// === impl Node ===

impl Node<'_> {
    /// Prepares a claim. One that is prepared already is verified, brought back in step where it
    /// is not, and has the same names as before.
    ///
    /// # Errors
    /// Nothing of the claim is left on the machine, unless [`PrepareError::Step`] says what.
    pub fn prepare(
        &self,
        claim: &Claim,
        classes: &[Class],
        origin: Origin,
    ) -> Result<Prepared, PrepareError> {
        if let (Origin::Local, Some(pod)) = (origin, claim.consumers.first()) {
            let (claim, kind, name) = (claim.title(), pod.kind.clone(), pod.name.clone());
            return Err(PrepareError::Reserved { claim, kind, name });
        }
        let work = self.journal.work(self.boot, self.call)?;
        let mut claimed = work.claim(&claim.uid)?;
        let asked = claim.digest(classes);
        if let Some(mut entry) = self.known(&mut claimed)? {
            self.is_same(&entry, claim, &asked, origin)?;
            claimed.lock_gpus(&entry.gpus())?;
            match entry.stage {
                Stage::Done => {
                    if entry.consumers != claim.consumers {
                        entry.consumers.clone_from(&claim.consumers);
                        claimed.write(&entry)?;
                    }
                    let seen = match self.pool {
                        Pool::Gpus(gpus) => {
                            let devices = entry.devices.iter().map(|device| device.device.as_str());
                            Some(gpus.inventory_of(Some(&plan::addresses(devices)))?)
                        }
                        Pool::Declared(_) => None,
                    };
                    self.ensure(&mut claimed, &mut entry, seen.as_ref())?;
                    return Ok(Prepared { entry, fresh: false });
                }
                Stage::Started => self.end(&mut claimed, &entry)?,
            }
            claimed.lock_gpus(&BTreeSet::new())?;
        }
        // The hook finds local claims by name, so a name is one claim's. The cluster's have none.
        if origin == Origin::Local {
            if let Some(uid) = claimed.take_name(&claim.namespace, &claim.name)? {
                return Err(PrepareError::NameTaken { claim: claim.title(), uid });
            }
            self.is_of_no_other(claim)?;
        }
        let (mut entry, steps, seen) = self.begin(&mut claimed, claim, classes, origin, asked)?;
        match self.act(&mut claimed, &mut entry, steps, seen.as_ref()) {
            Ok(()) => Ok(Prepared { entry, fresh: true }),
            Err((doing, source)) => {
                self.reopen(&mut claimed, &mut entry);
                let (claim, left) = (entry.title(), self.undo(&mut claimed, &entry));
                Err(PrepareError::Step { claim, doing, source: Box::new(source), left })
            }
        }
    }

    /// Ends a claim: needs nothing but its entry, does all it can, and can be repeated. False when
    /// nothing was prepared.
    ///
    /// # Errors
    /// When something is left; the entry stays, so that it can be tried again.
    pub fn unprepare(&self, uid: &str) -> Result<bool, PrepareError> {
        let work = self.journal.work(self.boot, self.call)?;
        let mut claimed = work.claim(uid)?;
        let Some(mut entry) = self.known(&mut claimed)? else { return Ok(false) };
        claimed.lock_gpus(&entry.gpus())?;
        self.reopen(&mut claimed, &mut entry);
        self.end(&mut claimed, &entry)?;
        Ok(true)
    }

    /// From here on, whoever finds it after a crash goes on ending it. On a full disk it can be ended
    /// all the same: only a crash would bring it back, whole.
    fn reopen(&self, claimed: &mut Claimed<'_>, entry: &mut Entry) {
        if entry.stage == Stage::Done {
            entry.stage = Stage::Started;
            let _said = claimed.write(entry);
        }
    }

    /// Takes away what crashes left half written, if nobody is at work: whoever is does not wait
    /// for it.
    ///
    /// # Errors
    /// When the journal cannot be locked or listed.
    pub fn sweep(&self) -> Result<(), PrepareError> {
        if let Some(alone) = self.journal.alone()? {
            alone.sweep(self.cdi_dir);
            self.run.sweep();
        }
        Ok(())
    }

    /// The entry of a claim, made anew where it is damaged. Where it cannot be, and something is left
    /// of the claim, that is said once.
    fn known(&self, claimed: &mut Claimed<'_>) -> Result<Option<Entry>, PrepareError> {
        match claimed.entry() {
            Err(error @ JournalError::Invalid { .. }) => match self.mend(claimed, error)? {
                Mended { entry: None, error, left: true, .. } => Err(error.into()),
                Mended { entry, .. } => Ok(entry),
            },
            known => Ok(known?),
        }
    }

    /// Refuses a claim whose name another driver has: by hand a claim is one driver's.
    fn is_of_no_other(&self, claim: &Claim) -> Result<(), PrepareError> {
        let there = self.run.local_claim(&claim.namespace, &claim.name).ok().flatten();
        match there.filter(|there| there.driver.name != self.pool.driver()) {
            None => Ok(()),
            Some(other) => {
                Err(PrepareError::OtherDriver { claim: claim.title(), driver: other.driver.name })
            }
        }
    }

    /// Refuses to make something else of a claim than it is.
    fn is_same(
        &self,
        entry: &Entry,
        claim: &Claim,
        asked: &str,
        origin: Origin,
    ) -> Result<(), PrepareError> {
        let differs = if entry.origin != origin {
            "it is not of the same origin, local or the cluster"
        } else if entry.gpus != self.pool.address() {
            "--gpus has changed since"
        } else if entry.stage == Stage::Done && entry.asked != asked {
            "its manifest has changed since"
        } else if entry.stage == Stage::Done && !is_same_dir(&entry.cdi_dir, self.cdi_dir)? {
            "its CDI spec lies elsewhere: --cdi-dir has changed since"
        } else if entry.stage == Stage::Done && !is_same_dir(&entry.run_dir, self.run.path())? {
            "its record lies elsewhere: --run-dir has changed since"
        } else {
            return Ok(());
        };
        Err(PrepareError::Changed { claim: claim.title(), differs })
    }

    /// Everything that can be said before the machine is changed: the new entry, what is to be done
    /// for it, and its GPUs as they are.
    fn begin(
        &self,
        claimed: &mut Claimed<'_>,
        claim: &Claim,
        classes: &[Class],
        origin: Origin,
        asked: String,
    ) -> Result<(Entry, Vec<Step>, Option<Inventory>), PrepareError> {
        let (cdi_dir, run_dir) = (absolute(self.cdi_dir)?, absolute(self.run.path())?);
        let trust = Trust::of_process();
        file::check_dir(&cdi_dir, &trust)?;
        file::check_dir(&run_dir, &trust)?;
        let (plan, seen) = self.plan(claimed, claim, classes)?;
        let metadata = self.metadata(claim, &plan, seen.as_ref());
        let entry = Entry {
            version: VERSION,
            uid: claim.uid.clone(),
            namespace: claim.namespace.clone(),
            name: claim.name.clone(),
            driver: self.pool.driver().to_owned(),
            origin,
            asked,
            gpus: self.pool.address(),
            cdi_dir,
            run_dir,
            consumers: claim.consumers.clone(),
            boot: self.boot.to_owned(),
            stage: Stage::Started,
            devices: plan.devices,
            metadata,
            steps: Vec::new(),
        };
        Ok((entry, plan.steps, seen))
    }

    fn end(&self, claimed: &mut Claimed<'_>, entry: &Entry) -> Result<(), PrepareError> {
        let (claim, mut left) = (entry.title(), self.undo(claimed, entry));
        let missing =
            |left: &Undone| matches!(left.error, StepError::Gpu(GpuError::Missing { .. }));
        if !left.iter().all(missing) {
            return Err(PrepareError::Left { claim, left });
        }
        // One reason for all of it, and one thing to do.
        left.pop().map_or(Ok(()), |Undone { error, .. }| {
            Err(PrepareError::GpusMissing { claim, source: Box::new(error) })
        })
    }
}

/// Whether a directory is the one that an entry names, whatever way leads there: `/var/run` is a link
/// to `/run`.
fn is_same_dir(known: &Path, given: &Path) -> Result<bool, FileError> {
    let id = |dir: &Path| std::fs::metadata(dir).map(|dir| (dir.dev(), dir.ino())).ok();
    Ok(known == absolute(given)? || id(known).is_some_and(|known| id(given) == Some(known)))
}

/// A directory as whoever comes later, from anywhere, finds it.
fn absolute(dir: &Path) -> Result<PathBuf, FileError> {
    let failed = |source| FileError::Io { path: dir.to_owned(), doing: "use", source };
    let absolute = std::path::absolute(dir).map_err(failed)?;
    match absolute.to_str() {
        Some(_) => Ok(absolute),
        // Neither the journal nor a record could name it.
        None => Err(failed(io::Error::other("its path is not UTF-8 text"))),
    }
}

#[cfg(test)]
mod tests;
