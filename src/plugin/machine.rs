//! The machine is this node with all that preparing needs, for threads that outlive a call.

use divvy_hook::record::Origin;

use super::PluginError;
use crate::{
    admin::Kept,
    claim::Claim,
    gpu::Gpus,
    journal::Entry,
    prepare::{Node, PrepareError},
};

/// This node.
#[derive(Debug)]
pub struct Machine {
    gpus: Box<dyn Gpus>,
    kept: Kept,
    boot: String,
}

// === impl Machine ===

impl Machine {
    /// The node with these GPUs, in this boot.
    pub(crate) fn new(gpus: Box<dyn Gpus>, kept: Kept, boot: String) -> Self {
        Self { gpus, kept, boot }
    }

    /// Its GPUs.
    pub fn gpus(&self) -> &dyn Gpus {
        self.gpus.as_ref()
    }

    /// The same, to prepare and to end claims on.
    pub fn node(&self) -> Node<'_> {
        self.kept.node(self.gpus.as_ref(), &self.boot)
    }

    /// The entries of the cluster's claims, as far as they can be read.
    pub(super) fn claims(&self) -> Result<Vec<Entry>, PluginError> {
        let entries = self.kept.journal.entries().map_err(PrepareError::from)?;
        let of_cluster = |entry: &Entry| entry.origin == Origin::Api;
        Ok(entries.into_iter().flatten().filter(of_cluster).collect())
    }

    /// How many entries there are.
    pub(super) fn listed(&self) -> Option<usize> {
        self.kept.journal.listing().ok().map(|listed| listed.len())
    }

    /// All entries, as far as they can be read.
    pub(super) fn entries(&self) -> Result<Vec<Entry>, PluginError> {
        let entries = self.kept.journal.entries().map_err(PrepareError::from)?;
        Ok(entries.into_iter().flatten().collect())
    }

    pub(super) fn prepare(&self, claim: &Claim) -> Result<Entry, PrepareError> {
        Ok(self.node().prepare(claim, &[], Origin::Api)?.entry)
    }

    /// Ends a claim of the cluster's; false where there is none. One that a person prepared is
    /// theirs to end.
    pub(super) fn unprepare(&self, uid: &str) -> Result<bool, PrepareError> {
        let entry = self.kept.journal.entry(uid);
        match entry {
            Ok(Some(entry)) if entry.origin == Origin::Local => Ok(false),
            // Where its GPUs are gone, the rest is ended all the same.
            Ok(Some(entry)) if entry.gpus != self.gpus.address() => {
                let gpus = self.kept.gpus(&entry.gpus);
                self.kept.node(gpus.as_ref(), &self.boot).unprepare(uid)
            }
            // A damaged one is made anew first.
            _ => self.node().unprepare(uid),
        }
    }
}
