//! An overlap is two claims that would use the same piece of hardware: a GPU and its partition,
//! two partitions on the same memory slices.

use super::Target;
use crate::gpu::{Device, DeviceName, PciAddress, model::collide};

/// What a claim holds, as the journal has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// `namespace/name`
    pub claim: String,
    /// What it holds.
    pub target: Target,
}

/// What keeps a device from being given, if anything does, to be read behind its name: `is held by
/// claim …`, …
pub fn obstacle(device: &Device<'_>, held: &[Held]) -> Option<String> {
    let target = Target::of(device);
    if let Some(other) = held.iter().find(|held| held.target.overlaps(&target)) {
        let (claim, theirs) = (&other.claim, other.target.name(device.gpu().pci));
        return Some(match other.target == target {
            true => format!("is held by claim {claim}"),
            false => format!("overlaps {theirs}, held by claim {claim}"),
        });
    }
    match device {
        Device::Partition { gpu, profile, placement } => {
            let there = gpu.in_the_way(profile, *placement)?;
            Some(format!(
                "is blocked by {there}; this journal does not know it: another divvy state \
                 directory made it, or somebody by hand"
            ))
        }
        Device::Gpu(_) => None,
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
                (Self::Gpu { .. }, _) | (_, Self::Gpu { .. }) => true,
            }
    }

    /// The name of the device that it is; its GPU sits at `pci`.
    fn name(&self, pci: PciAddress) -> DeviceName {
        match self {
            Self::Gpu { .. } => DeviceName::Gpu { pci },
            Self::Partition { profile, placement, .. } => DeviceName::Partition {
                pci,
                profile: DeviceName::label(profile),
                start: placement.start,
            },
        }
    }
}
