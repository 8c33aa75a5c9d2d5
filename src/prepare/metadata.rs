//! The files that tell a claim's containers what their devices are.

use std::path::Path;

use divvy_cdi::file::{self, Durability, FileError, Trust};

use super::{Node, StepError};
use crate::{
    claim::Claim,
    emit::{self, Metadata},
    gpu::Inventory,
    journal::Entry,
    plan::Plan,
    pool::Pool,
    publish,
};

const MAX_BYTES: usize = 1 << 20;

// === impl Node ===

impl Node<'_> {
    /// What a new claim's containers are told, where they are.
    pub(super) fn metadata(
        &self,
        claim: &Claim,
        plan: &Plan,
        seen: Option<&Inventory>,
    ) -> Option<Metadata> {
        if !self.metadata {
            return None;
        }
        let attributes = |name: &String| match (self.pool, seen) {
            (Pool::Gpus(_), Some(seen)) => {
                Some(publish::attributes(&seen.device(&name.parse().ok()?)?, seen))
            }
            (Pool::Gpus(_), None) => None,
            (Pool::Declared(file), _) => {
                Some(file.now().device(name)?.published.attributes.clone())
            }
        };
        let names = plan.devices.iter().map(|device| &device.device);
        let attributes = names.filter_map(|name| Some((name.clone(), attributes(name)?))).collect();
        Some(Metadata { pod_claim: claim.pod_claim.clone(), attributes })
    }
}

/// Writes the files of an entry that are not there as they should be; false when all were.
pub(super) fn write(entry: &Entry) -> Result<bool, StepError> {
    let mut wrote = false;
    for told in emit::metadata(entry) {
        let there = file::read(&told.path, MAX_BYTES, &Trust::of_process());
        if there.is_ok_and(|there| there == told.text.as_bytes()) {
            continue;
        }
        if let Some(dir) = told.path.parent() {
            file::make_dir(dir, 0o755, Durability::Volatile)?;
        }
        file::replace(&told.path, told.text.as_bytes(), 0o644, Durability::Volatile)?;
        wrote = true;
    }
    Ok(wrote)
}

/// Removes those of a claim, whatever it was told.
pub(super) fn remove(run_dir: &Path, driver: &str, uid: &str) -> Result<(), StepError> {
    let path = emit::metadata_dir(run_dir, driver, uid);
    match std::fs::remove_dir_all(&path) {
        Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
            Err(FileError::Io { path, doing: "remove", source }.into())
        }
        _ => Ok(()),
    }
}
