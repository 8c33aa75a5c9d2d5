//! An overlap is two claims that would use the same piece of hardware: a GPU and its partition,
//! two partitions on the same memory slices.

use super::Target;
use crate::{
    claim::{Share, Sharing},
    gpu::{Device, DeviceName, PciAddress, model::collide},
};

/// What a claim holds, as the journal has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// `namespace/name`
    pub claim: String,
    /// What it holds.
    pub target: Target,
    /// Which part of it; none: all of it.
    pub share: Option<Share>,
    /// How it is shared.
    pub sharing: Sharing,
    /// Its claim switched the MIG mode of that GPU on.
    pub switched: bool,
}

/// What keeps a device from being given, if anything does, to be read behind its name: `is held by
/// claim …`, …
///
/// `shared`: it is to be given in part, so the shares that others have of it are none.
pub fn obstacle(device: &Device<'_>, held: &[Held], shared: bool) -> Option<String> {
    let target = Target::of(device);
    let in_the_way =
        |held: &&Held| held.target.overlaps(&target) && !(shared && held.is_share_of(&target));
    if let Some(other) = held.iter().find(in_the_way) {
        let (claim, theirs) = (&other.claim, other.target.name(device.gpu().pci));
        return Some(match other.target == target {
            true => format!("is held by claim {claim}"),
            false => format!("overlaps {theirs}, held by claim {claim}"),
        });
    }
    match device {
        // One that is there exactly is the device.
        Device::Partition { gpu, profile, placement }
            if gpu.partition(&profile.name, *placement).is_none() =>
        {
            let there = gpu.in_the_way(profile, *placement)?;
            Some(format!(
                "is blocked by {there}; this journal does not know it: another divvy state \
                 directory made it, or somebody by hand"
            ))
        }
        Device::Gpu(_) | Device::Partition { .. } => None,
    }
}

// === impl Held ===

impl Held {
    /// True for a share of this GPU. A partition is made for one claim, and ended with it.
    pub(super) fn is_share_of(&self, target: &Target) -> bool {
        self.share.is_some() && self.target == *target && matches!(target, Target::Gpu { .. })
    }
}

// === impl Target ===

impl Target {
    /// True when both are, in part, the same hardware.
    pub fn overlaps(&self, other: &Target) -> bool {
        self.gpu() == other.gpu()
            && match (self, other) {
                (
                    Self::Partition { placement: one, profile: a, .. },
                    Self::Partition { placement: other, profile: b, .. },
                ) => collide((a, *one), (b, *other)),
                (Self::Declared { .. }, Self::Declared { .. }) => true,
                (Self::Declared { .. }, _) | (_, Self::Declared { .. }) => false,
                (Self::Gpu { .. }, _) | (_, Self::Gpu { .. }) => true,
            }
    }

    /// The name of the device that it is; its GPU sits at `pci`.
    fn name(&self, pci: PciAddress) -> String {
        match self {
            Self::Gpu { .. } => DeviceName::Gpu { pci }.to_string(),
            Self::Partition { profile, placement, .. } => {
                let (profile, start) = (DeviceName::label(profile), placement.start);
                DeviceName::Partition { pci, profile, start }.to_string()
            }
            Self::Declared { device } => device.clone(),
        }
    }
}
