//! A group is the devices of a claim that one configuration shares by MPS: one control daemon serves
//! them, and CUDA numbers them in its clients by their place in the group.

use super::{PlanError, Planned, Target};
use crate::claim::{Claim, Configured, DeviceKey, MpsSettings, Sharing};

/// Devices that one control daemon serves.
#[derive(Debug)]
pub(super) struct Group<'a> {
    configured: &'a Configured,
    settings: &'a MpsSettings,
    /// In the order of the allocation, each once.
    targets: Vec<Target>,
}

/// Puts a device that is shared by MPS into the group of its configuration.
pub(super) fn join<'a>(
    groups: &mut Vec<Group<'a>>,
    configured: Option<&'a Configured>,
    planned: &Planned,
) {
    let Some(configured) = configured.filter(|_| !planned.admin) else { return };
    let Sharing::Mps(settings) = &configured.sharing else { return };
    let target = planned.target.clone();
    match groups.iter_mut().find(|group| std::ptr::eq(group.configured, configured)) {
        Some(group) => group.targets.push(target),
        None => groups.push(Group { configured, settings, targets: vec![target] }),
    }
}

// === impl Group ===

impl Group<'_> {
    /// Refuses a limit for a device that is not in the group.
    pub(super) fn check(&self, claim: &Claim) -> Result<(), PlanError> {
        let is_there = |key: &DeviceKey| match key {
            DeviceKey::Index(index) => {
                usize::try_from(*index).is_ok_and(|index| index < self.targets.len())
            }
            DeviceKey::Uuid(uuid) => self.targets.iter().any(|target| target.uuid() == Some(uuid)),
        };
        match self.settings.pinned_memory_per_device.keys().find(|key| !is_there(key)) {
            Some(key) => Err(PlanError::NoSuchDevice {
                claim: claim.title(),
                place: self.configured.place.clone(),
                key: key.to_string(),
                there: self.there(),
            }),
            None => Ok(()),
        }
    }

    /// The refusal of all that are shared by MPS: there is no control daemon yet.
    pub(super) fn unsupported(&self, claim: &Claim) -> PlanError {
        let (claim, place) = (claim.title(), self.configured.place.clone());
        PlanError::Unsupported { claim, place, what: "mps" }
    }

    /// The keys that there are: `0 (GPU-…), 1 (GPU-…)`.
    fn there(&self) -> String {
        let key = |(index, target): (usize, &Target)| match target.uuid() {
            Some(uuid) => format!("{index} ({uuid})"),
            None => format!("{index} (a partition, which has no UUID before it is made)"),
        };
        self.targets.iter().enumerate().map(key).collect::<Vec<_>>().join(", ")
    }
}

// === impl Target ===

impl Target {
    /// Its UUID, where that is known before it is prepared.
    fn uuid(&self) -> Option<&str> {
        match self {
            Self::Gpu { gpu } => Some(gpu),
            Self::Partition { .. } => None,
        }
    }
}
