//! Health is what a GPU says of itself beside its inventory: what happens to it, and what its driver
//! knows of its memory, clocks and links.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Fault, PciAddress};

/// The health of all GPUs at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Checkup {
    /// The load of the driver that says it: another after each reload.
    pub load: String,
    /// Those that answer.
    pub gpus: Vec<Checked>,
    /// Those that do not.
    pub faults: Vec<Fault>,
}

/// What a GPU says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checked {
    /// Its UUID.
    pub gpu: String,
    /// Where it sits.
    pub pci: PciAddress,
    /// What it says.
    pub vitals: Vitals,
}

/// What a GPU's driver knows of it. What the product or the driver does not say, or does not say
/// just now, is none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Vitals {
    /// Memory rows or pages wait for a reset to be replaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remap_pending: Option<bool>,
    /// A memory row could not be replaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remap_failed: Option<bool>,
    /// Memory errors that were not corrected, since the last reset or load of the driver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uncorrected: Option<u64>,
    /// The hardware slows itself down for heat.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hot: Option<bool>,
    /// The hardware is slowed down by the power supply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub braked: Option<bool>,
    /// What the driver wants done to it (R565 and newer).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recovery: Option<Recovery>,
    /// NVLinks that are up; none in MIG mode, in which they are off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nvlinks: Option<u32>,
    /// Millijoules since the GPU was initialized: it only grows, and begins anew with a reset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub energy: Option<u64>,
}

/// What a driver wants done to a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Recovery {
    /// Nothing.
    Nothing,
    /// A reset of the GPU.
    Reset,
    /// A restart of the machine.
    Reboot,
    /// That nothing uses its links to other GPUs, and then to be asked again.
    DrainLinks,
    /// That what runs ends, and then a reset: a part of it is out of use.
    DrainAndReset,
    /// Something that this build has no word for.
    Other,
}

/// Something that happened to a GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// UUID of the GPU.
    pub gpu: String,
    /// What happened.
    pub kind: EventKind,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventKind {
    /// The driver reported this error (NVIDIA's XID catalogue).
    Xid(u64),
    /// Something of which its vitals or the inventory say more.
    Changed,
    /// Nothing will be told of it, for this reason.
    Unwatched(String),
}

// === impl Vitals ===

impl Vitals {
    /// The same, where all that is not said is well.
    pub(crate) fn or_well(self) -> Self {
        Self {
            remap_pending: self.remap_pending.or(Some(false)),
            remap_failed: self.remap_failed.or(Some(false)),
            uncorrected: self.uncorrected.or(Some(0)),
            hot: self.hot.or(Some(false)),
            braked: self.braked.or(Some(false)),
            recovery: self.recovery.or(Some(Recovery::Nothing)),
            ..self
        }
    }
}

// === impl Recovery ===

impl fmt::Display for Recovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nothing => "none",
            Self::Reset => "reset",
            Self::Reboot => "reboot",
            Self::DrainLinks => "drain-links",
            Self::DrainAndReset => "drain-and-reset",
            Self::Other => "other",
        })
    }
}
