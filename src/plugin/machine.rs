//! The machine is this node with all that preparing needs, for threads that outlive a call.

use divvy_hook::record::Origin;

use super::{PluginError, timed::Timed};
use crate::{
    admin::Kept,
    claim::Claim,
    gpu::Gpus,
    journal::{Call, Entry, Part},
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

    /// Prepares a claim of the cluster's.
    pub(super) fn prepare(&self, claim: &Claim, call: Call<'_>) -> Result<Entry, PrepareError> {
        let gpus = Timed { gpus: self.gpus(), call };
        let node = Node { call, ..self.kept.node(&gpus, &self.boot) };
        Ok(node.prepare(claim, &[], Origin::Api)?.entry)
    }

    /// Ends a claim of the cluster's; false where there is none. One that a person prepared is
    /// theirs to end.
    pub(super) fn unprepare(&self, uid: &str, call: Call<'_>) -> Result<bool, PrepareError> {
        let elsewhere;
        let gpus = match call.at(Part::Journal, || self.kept.journal.entry(uid)) {
            Ok(Some(entry)) if entry.origin == Origin::Local => return Ok(false),
            // Where its GPUs are gone, the rest is ended all the same.
            Ok(Some(entry)) if entry.gpus != self.gpus.address() => {
                elsewhere = self.kept.gpus(&entry.gpus);
                elsewhere.as_ref()
            }
            // A damaged one is made anew first.
            _ => self.gpus(),
        };
        let gpus = Timed { gpus, call };
        Node { call, ..self.kept.node(&gpus, &self.boot) }.unprepare(uid)
    }
}
