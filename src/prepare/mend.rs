//! Mending makes an entry anew that cannot be read: from the copy in the claim's record. Where there
//! is none, nothing is left of the claim that a container could start by; what lies on the GPUs stays
//! there, as nobody knows whose it is.

use std::path::{Path, PathBuf};

use divvy_cdi::spec;

use super::{Node, PrepareError, StepError};
use crate::{
    emit,
    journal::{Claimed, Entry, Journal},
};

// === impl Node ===

impl Node<'_> {
    /// Puts another entry in the place of a damaged one, which is kept: the path says where. No
    /// entry, where it cannot be made anew. Verifying it is left to whoever goes on with it.
    pub(super) fn mend(
        &self,
        claimed: &mut Claimed<'_>,
    ) -> Result<(PathBuf, Option<Entry>), PrepareError> {
        let kept = claimed.keep_damaged()?;
        let entry = self.copied(claimed.uid());
        match &entry {
            Some(entry) => claimed.write(entry)?,
            None => {
                let (doing, withdrawn) = ("removing its record and spec", self.withdraw(claimed));
                withdrawn.map_err(|source| PrepareError::Step {
                    claim: claimed.uid().to_owned(),
                    doing: doing.to_owned(),
                    source: Box::new(source),
                    left: Vec::new(),
                })?;
                claimed.discard()?;
            }
        }
        Ok((kept, entry))
    }

    /// The copy of an entry in the claim's record.
    fn copied(&self, uid: &str) -> Option<Entry> {
        // Whatever keeps the record from being read: without it there is nothing to go by.
        let record = self.run.claim(uid).ok().flatten()?;
        let entry = record.stamp?.entry;
        Journal::decode(Path::new("the copy"), entry.as_bytes(), uid).ok()
    }

    fn withdraw(&self, claimed: &Claimed<'_>) -> Result<(), StepError> {
        self.run.remove_claim(claimed.uid())?;
        spec::remove(self.cdi_dir, &emit::spec_name(claimed.uid()))?;
        Ok(())
    }
}
