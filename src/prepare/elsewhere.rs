//! Elsewhere is another state directory on this machine: what its claims hold shows in their CDI specs,
//! which lie beside ours, and in their records.

use divvy_cdi::file::{self, FileError, MAX_SPEC_BYTES, Trust};

use super::{Node, PrepareError};
use crate::{
    claim::Sharing,
    declared::DeviceFile,
    emit,
    gpu::{Gpu, Inventory},
    journal::Entry,
    plan::{Held, Target},
};

// === impl Node ===

impl Node<'_> {
    /// What claims that this journal does not know hold of these GPUs.
    pub(super) fn held_elsewhere(&self, inventory: &Inventory) -> Result<Vec<Held>, PrepareError> {
        let of_spec = |spec: &str, uid: &str, by: &str| of_spec(spec, uid, by, inventory);
        self.held_by_strangers(&of_spec)
    }

    /// The same of declared devices.
    pub(super) fn declared_elsewhere(&self, file: &DeviceFile) -> Result<Vec<Held>, PrepareError> {
        let declaration = file.now();
        let of_spec = |spec: &str, uid: &str, by: &str| -> Vec<Held> {
            let devices = declaration.devices.iter().map(|device| &device.published.name);
            // The name that it has there, alone or with a share's ID behind it.
            let named = devices.filter(|name| {
                let name = format!("\"{uid}-{name}");
                let mut after = spec.match_indices(&name).map(|(at, _)| at + name.len());
                after.any(|at| spec.get(at..).is_some_and(|rest| rest.starts_with(['"', '-'])))
            });
            named.map(|name| whole(Target::Declared { device: name.clone() }, uid, by)).collect()
        };
        self.held_by_strangers(&of_spec)
    }

    fn held_by_strangers(
        &self,
        of_spec: &dyn Fn(&str, &str, &str) -> Vec<Held>,
    ) -> Result<Vec<Held>, PrepareError> {
        let strangers = self.journal.strangers(self.cdi_dir, self.pool.driver())?;
        Ok(strangers.iter().flat_map(|uid| self.held_by(uid, of_spec)).collect())
    }

    fn held_by(&self, uid: &str, of_spec: &dyn Fn(&str, &str, &str) -> Vec<Held>) -> Vec<Held> {
        let spec = self.cdi_dir.join(emit::spec_name(self.pool.driver(), uid));
        let text = match file::read(&spec, MAX_SPEC_BYTES, &Trust::of_process()) {
            // Gone since it was listed.
            Err(FileError::NotFound { .. }) => return Vec::new(),
            // By what cannot be read no container starts, and the record tells all the same.
            text => text.unwrap_or_default(),
        };
        let by = format!(
            "({}); this journal does not know it: another divvy state directory made it",
            spec.display()
        );
        match self.copied(uid) {
            Some(entry) => entry.held().map(|held| of_entry(held, &entry, &by)).collect(),
            None => of_spec(&String::from_utf8_lossy(&text), uid, &by),
        }
    }
}

/// Its control daemon is not ours, so none of its shares can be had beside one of ours.
fn of_entry(held: Held, entry: &Entry, by: &str) -> Held {
    Held { claim: format!("{} {by}", entry.title()), share: None, switched: false, ..held }
}

/// Without its record, what a spec names counts as held.
fn of_spec(spec: &str, uid: &str, by: &str, inventory: &Inventory) -> Vec<Held> {
    let as_whole = |gpu: &Gpu| (gpu.uuid.clone(), Target::Gpu { gpu: gpu.uuid.clone() });
    let all = inventory.gpus.iter().flat_map(|gpu| {
        let parts = gpu.partitions().iter().map(|there| {
            let (gpu, profile) = (gpu.uuid.clone(), there.profile.clone());
            let placement = there.placement;
            (there.uuid.clone(), Target::Partition { gpu, profile, placement })
        });
        parts.chain([as_whole(gpu)])
    });
    let named = all.filter(|(uuid, _)| spec.contains(uuid));
    named.map(|(_, target)| whole(target, uid, by)).collect()
}

fn whole(target: Target, uid: &str, by: &str) -> Held {
    let (claim, sharing) = (format!("{uid} {by}"), Sharing::Exclusive);
    Held { claim, target, share: None, sharing, switched: false }
}
