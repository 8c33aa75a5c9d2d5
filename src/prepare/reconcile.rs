//! Reconciling brings machine, specs and records back in step with the journal: after a reboot,
//! which empties `/run`, and after a crash.

use std::path::PathBuf;

use super::{Node, PrepareError, mend::Mended};
use crate::{
    gpu::Inventory,
    journal::{Entry, JournalError, Listed, Stage, Work},
    pool::Pool,
};

/// What was found of one claim, and what became of it.
#[derive(Debug)]
pub enum Reconciled {
    /// It is as it should be.
    InStep {
        /// The claim.
        entry: Entry,
        /// Something was missing, and is back.
        restored: bool,
    },
    /// A crash had left it half prepared or half ended; nothing of it is left.
    Ended(Entry),
    /// It belongs to other GPUs than these.
    Elsewhere(Entry),
    /// Somebody else prepares, verifies or ends it, or changes its GPUs.
    InHand {
        /// The claim's UID.
        uid: String,
    },
    /// Its entry could not be read.
    Damaged {
        /// What was wrong.
        error: JournalError,
        /// Where it was put.
        kept: PathBuf,
        /// The claim, where its entry was made anew from its record, its spec and the GPUs.
        entry: Option<Entry>,
    },
    /// A control daemon of MPS was there for no claim, and is ended.
    Orphan {
        /// Its name.
        daemon: String,
    },
    /// It could not be brought back.
    Failed(PrepareError),
}

// === impl Node ===

impl Node<'_> {
    /// Brings every claim of the journal back in step, but for those that somebody else has in hand.
    /// One that fails stops no other.
    ///
    /// # Errors
    /// When the journal cannot be listed or locked.
    pub fn reconcile(&self) -> Result<Vec<Reconciled>, PrepareError> {
        self.sweep()?;
        let work = self.journal.work(self.boot, self.call)?;
        let (mut found, mut seen) = (Vec::new(), None);
        for listed in self.journal.listing()? {
            let one = match listed {
                Listed::Claim(uid) => self.reconcile_claim(&work, uid, &mut seen),
                Listed::Stray(path) => self.set_aside(path).map(Some),
            };
            found.extend(one.unwrap_or_else(|error| Some(Reconciled::Failed(error))));
        }
        found.extend(self.end_orphans(&work).into_iter().map(|ended| match ended {
            Ok(daemon) => Reconciled::Orphan { daemon },
            Err(error) => Reconciled::Failed(error),
        }));
        Ok(found)
    }

    /// One claim; none when it is gone. `seen` is what the round saw of the GPUs, once it looked.
    fn reconcile_claim(
        &self,
        work: &Work<'_>,
        uid: String,
        seen: &mut Option<Inventory>,
    ) -> Result<Option<Reconciled>, PrepareError> {
        let Some(mut claimed) = work.attempt_claim(&uid)? else {
            return Ok(Some(Reconciled::InHand { uid }));
        };
        let mut entry = match claimed.entry() {
            Ok(Some(entry)) => entry,
            Ok(None) => return Ok(None),
            Err(error @ JournalError::Invalid { .. }) => {
                let Mended { kept, entry, error, .. } = self.mend(&mut claimed, error)?;
                // The next round verifies it.
                return Ok(Some(Reconciled::Damaged { error, kept, entry }));
            }
            Err(error) => return Err(error.into()),
        };
        // Whoever looks after it must see it, whatever somebody removed.
        claimed.index(&entry)?;
        if entry.gpus != self.pool.address() {
            return Ok(Some(Reconciled::Elsewhere(entry)));
        }
        if !claimed.attempt_gpus(&entry.gpus())? {
            return Ok(Some(Reconciled::InHand { uid }));
        }
        Ok(Some(match entry.stage {
            Stage::Done => {
                if let (None, Pool::Gpus(gpus)) = (&seen, self.pool) {
                    *seen = Some(gpus.inventory()?);
                }
                let restored = self.ensure(&mut claimed, &mut entry, seen.as_ref())?;
                Reconciled::InStep { entry, restored }
            }
            Stage::Started => {
                self.end(&mut claimed, &entry)?;
                Reconciled::Ended(entry)
            }
        }))
    }

    fn set_aside(&self, path: PathBuf) -> Result<Reconciled, PrepareError> {
        let kept = self.journal.set_aside(&path)?;
        Ok(Reconciled::Damaged { error: JournalError::stray(path), kept, entry: None })
    }
}
