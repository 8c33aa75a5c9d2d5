//! The machine is this node with all that preparing needs, for threads that outlive a call.

use divvy_hook::record::Origin;

use super::{PluginError, timed::Timed};
use crate::{
    admin::{Kept, exit::Failure, tell},
    claim::Claim,
    declared::Looked,
    journal::{Call, Entry, Part},
    pool::{Opened, Pool},
    prepare::{Node, PrepareError},
};

/// This node.
#[derive(Debug)]
pub struct Machine {
    opened: Opened,
    kept: Kept,
    boot: String,
}

// === impl Machine ===

impl Machine {
    /// The node with this pool, in this boot.
    pub(crate) fn new(opened: Opened, kept: Kept, boot: String) -> Self {
        Self { opened, kept, boot }
    }

    /// What it has of one driver's.
    pub fn pool(&self) -> Pool<'_> {
        self.opened.pool()
    }

    /// Reads a file of devices again, and says what came of it; false while it is bad.
    pub fn reload(&self) -> bool {
        let Pool::Declared(file) = self.pool() else { return true };
        match file.look() {
            Looked::Same => {}
            Looked::Changed(now) => {
                let (path, count) = (file.path().display(), now.devices.len());
                tell(&format!("{path}: declares {count} devices of {} now\n", file.driver()));
            }
            Looked::Bad(error) => {
                tell(&Failure::of_declared(&error).to_string());
                let path = file.path().display();
                tell(&format!("{path}: what it declared before still counts\n"));
            }
        }
        file.is_good()
    }

    /// The same, to prepare and to end claims on.
    pub fn node(&self) -> Node<'_> {
        self.kept.node(self.pool(), &self.boot)
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
        let prepare = |node: &Node<'_>| node.prepare(claim, &[], Origin::Api);
        Ok(self.with(self.pool(), call, prepare)?.entry)
    }

    /// Ends a claim of the cluster's; false where there is none. One that a person prepared is
    /// theirs to end.
    pub(super) fn unprepare(&self, uid: &str, call: Call<'_>) -> Result<bool, PrepareError> {
        let elsewhere;
        let pool = match call.at(Part::Journal, || self.kept.journal.entry(uid)) {
            Ok(Some(entry)) if entry.origin == Origin::Local => return Ok(false),
            // Where its GPUs are gone, the rest is ended all the same.
            Ok(Some(entry)) if entry.gpus != self.pool().address() => {
                elsewhere = self.kept.open(&entry.gpus);
                elsewhere.pool()
            }
            // A damaged one is made anew first.
            _ => self.pool(),
        };
        self.with(pool, call, |node| node.unprepare(uid))
    }

    /// Does something on the node for a call, which is told how long each answer of a GPU took.
    fn with<T>(&self, pool: Pool<'_>, call: Call<'_>, act: impl FnOnce(&Node<'_>) -> T) -> T {
        let timed;
        let pool = match pool {
            Pool::Gpus(gpus) => {
                timed = Timed { gpus, call };
                Pool::Gpus(&timed)
            }
            Pool::Declared(file) => Pool::Declared(file),
        };
        act(&Node { call, ..self.kept.node(pool, &self.boot) })
    }
}
