//! Mending makes an entry anew that cannot be read: from the copy in the claim's record. Where there
//! is none, nothing is left of the claim that a container could start by; what lies on the GPUs stays
//! there, as nobody knows whose it is, and is named as far as the claim's spec names it.

use std::path::{Path, PathBuf};

use divvy_cdi::{
    file::{self, MAX_SPEC_BYTES, Trust},
    spec,
};

use super::{Node, PrepareError, StepError, metadata};
use crate::{
    emit,
    gpu::{Gpu, Occupant},
    journal::{Claimed, Entry, Journal, JournalError},
};

/// What became of a damaged entry.
pub(super) struct Mended {
    /// Where it was put.
    pub(super) kept: PathBuf,
    /// The claim, where its entry was made anew.
    pub(super) entry: Option<Entry>,
    /// What was wrong, and what of the claim stays on the GPUs.
    pub(super) error: JournalError,
    /// Something does.
    pub(super) left: bool,
}

// === impl Node ===

impl Node<'_> {
    /// Puts another entry in the place of a damaged one, which is kept. No entry, where it cannot be
    /// made anew. Verifying it is left to whoever goes on with it.
    pub(super) fn mend(
        &self,
        claimed: &mut Claimed<'_>,
        error: JournalError,
    ) -> Result<Mended, PrepareError> {
        let kept = claimed.keep_damaged()?;
        if let Some(entry) = self.copied(claimed.uid()) {
            claimed.write(&entry)?;
            return Ok(Mended { kept, entry: Some(entry), error, left: false });
        }
        // Before the spec goes, which is the last to name it.
        let left = self.left_of(claimed.uid());
        let (doing, withdrawn) = ("removing its record and spec", self.withdraw(claimed));
        withdrawn.map_err(|source| PrepareError::Step {
            claim: claimed.uid().to_owned(),
            doing: doing.to_owned(),
            source: Box::new(source),
            left: Vec::new(),
        })?;
        claimed.discard()?;
        let error = match error {
            JournalError::Invalid { path, why } if !left.is_empty() => {
                let why = format!("{why}; its claim had {}", left.join(" and "));
                JournalError::Invalid { path, why }
            }
            error => error,
        };
        Ok(Mended { kept, entry: None, error, left: !left.is_empty() })
    }

    /// What a claim's spec names of the GPUs that are there: partitions, which stay, and whole GPUs,
    /// whose time slices and compute modes may be the claim's still.
    fn left_of(&self, uid: &str) -> Vec<String> {
        let path = self.cdi_dir.join(emit::spec_name(self.pool.driver(), uid));
        let spec = file::read(&path, MAX_SPEC_BYTES, &Trust::of_process()).unwrap_or_default();
        let spec = String::from_utf8_lossy(&spec);
        let inventory = self.pool.gpus().and_then(|gpus| gpus.inventory());
        let gpus = inventory.map(|inventory| inventory.gpus).unwrap_or_default();
        let of_gpu = |gpu: &Gpu| {
            let parts = gpu.partitions().iter().filter(|there| spec.contains(&there.uuid));
            let part = |there| format!("{} of {}", Occupant::Partition(there), gpu.uuid);
            let whole = spec.contains(&gpu.uuid).then(|| format!("GPU {}", gpu.uuid));
            parts.map(part).chain(whole).collect::<Vec<_>>()
        };
        gpus.iter().flat_map(of_gpu).collect()
    }

    /// The copy of an entry in the claim's record.
    pub(super) fn copied(&self, uid: &str) -> Option<Entry> {
        // Whatever keeps the record from being read: without it there is nothing to go by.
        let record = self.run.claim(uid).ok().flatten()?;
        let entry = record.stamp?.entry;
        Journal::decode(Path::new("the copy"), entry.as_bytes(), uid).ok()
    }

    fn withdraw(&self, claimed: &Claimed<'_>) -> Result<(), StepError> {
        self.run.remove_claim(claimed.uid())?;
        metadata::remove(self.run.path(), self.pool.driver(), claimed.uid())?;
        spec::remove(self.cdi_dir, &emit::spec_name(self.pool.driver(), claimed.uid()))?;
        Ok(())
    }
}
