//! A claim is gone when the cluster has it no more, or has given it other devices since, and the kubelet has
//! forgotten it: nobody will ever end it, so it is ended here. Whatever may still have a container is left to the
//! kubelet.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use divvy_cdi::file::{self, FileError, Trust};
use tokio::task::spawn_blocking;

use super::{Claims, PluginError, Reference};
use crate::{admin::exit::Failure, journal::Entry};

/// Looks for claims that are gone, round after round.
#[derive(Debug)]
pub(super) struct Gone {
    claims: Claims,
    /// The kubelet's.
    kubelet: PathBuf,
    /// Those that were found gone in the last round: they are ended in the next.
    suspects: BTreeSet<String>,
}

/// The kubelet's own note of the claims that it has.
const STATE: &str = "dra_manager_state";
const MAX_STATE: usize = 64 << 20;

// === impl Gone ===

impl Gone {
    pub(super) fn new(claims: Claims, kubelet: PathBuf) -> Self {
        Self { claims, kubelet, suspects: BTreeSet::new() }
    }

    /// Ends those that were gone before and still are, and says so.
    pub(super) async fn end(&mut self) -> Vec<String> {
        let (machine, kubelet) = (self.claims.0.machine.clone(), self.kubelet.clone());
        let forgotten = spawn_blocking(move || {
            let entries = machine.claims().unwrap_or_default();
            forgotten(entries, &kubelet)
        });
        let mut suspects = BTreeSet::new();
        let (mut said, mut kept) = (Vec::new(), 0);
        for entry in forgotten.await.unwrap_or_default() {
            if self.claims.0.is_in_hand(&entry.uid) {
                continue;
            }
            match self.claims.0.holds(&reference(&entry)).await {
                Ok(None) => {}
                Ok(Some(allocated)) if allocated.is_disjoint(&entry.units()) => {}
                // It says nothing of the others either, and each would be waited for.
                Err(PluginError::Api(_)) => break,
                Ok(Some(_)) | Err(_) => continue,
            }
            if !self.suspects.contains(&entry.uid) {
                suspects.insert(entry.uid);
                continue;
            }
            match self.claims.unprepare(&entry.uid).await {
                Ok(()) => said.push(format!(
                    "claim {}: no allocation of it has these devices any more and the kubelet has forgotten it, so it is ended\n",
                    entry.title()
                )),
                Err(error) => {
                    kept += 1;
                    said.push(Failure::of(error.code(), error.as_ref()).to_string());
                }
            }
        }
        self.claims.0.metrics.orphaned(suspects.len() + kept);
        self.suspects = suspects;
        said
    }
}

fn reference(entry: &Entry) -> Reference {
    let Entry { namespace, name, uid, .. } = entry.clone();
    Reference { namespace, name, uid }
}

/// The claims of which the kubelet has neither a note nor a pod.
fn forgotten(entries: Vec<Entry>, kubelet: &Path) -> Vec<Entry> {
    let pods = kubelet.join("pods");
    if !pods.is_dir() {
        // A pod may be given no more of it than its sockets.
        return Vec::new();
    }
    let state = match file::read(&kubelet.join(STATE), MAX_STATE, &Trust::of_process()) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        // A kubelet that was set up anew.
        Err(FileError::NotFound { .. }) => String::new(),
        // It is not known.
        Err(_) => return Vec::new(),
    };
    let has_pod = |entry: &Entry| {
        let mut of = entry.consumers.iter().filter(|one| one.kind == "Pod");
        of.any(|pod| pods.join(&pod.uid).symlink_metadata().is_ok())
    };
    let is_forgotten = |entry: &Entry| !state.contains(&entry.uid) && !has_pod(entry);
    entries.into_iter().filter(is_forgotten).collect()
}
