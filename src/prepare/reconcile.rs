//! Reconciling brings machine, specs and records back in step with the journal: after a reboot,
//! which empties `/run`, and after a crash.

use super::{Node, PrepareError};
use crate::journal::{Entry, Stage};

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
    /// It could not be brought back.
    Failed(PrepareError),
}

// === impl Node ===

impl Node<'_> {
    /// Brings every claim of the journal back in step. One that fails stops no other.
    ///
    /// # Errors
    /// When the journal cannot be listed or locked.
    pub fn reconcile(&self) -> Result<Vec<Reconciled>, PrepareError> {
        let held = self.journal.lock()?;
        let reconcile = |entry: Entry| {
            if entry.gpus != self.gpus.address() {
                return Reconciled::Elsewhere(entry);
            }
            let mut entry = entry;
            let done = match entry.stage {
                Stage::Done => self.ensure(&held, &mut entry),
                Stage::Started => self.end(&held, &entry).map(|()| true),
            };
            match (done, entry.stage) {
                (Ok(restored), Stage::Done) => Reconciled::InStep { entry, restored },
                (Ok(_), Stage::Started) => Reconciled::Ended(entry),
                (Err(error), _) => Reconciled::Failed(error),
            }
        };
        let each = |entry: Result<Entry, _>| match entry {
            Ok(entry) => reconcile(entry),
            Err(error) => Reconciled::Failed(PrepareError::Journal(error)),
        };
        let entries = self.journal.entries()?;
        let known: Vec<Entry> = entries.iter().filter_map(|e| e.as_ref().ok()).cloned().collect();
        self.sweep(&held, &known);
        Ok(entries.into_iter().map(each).collect())
    }
}
