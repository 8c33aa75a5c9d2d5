//! A cause is what ails a GPU: how it shows in taints and in words, and what becomes of it.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::xid::{Demand, demand, meaning};
use crate::{
    gpu::{FaultKind, Recovery},
    publish::Effect,
};

/// What ails a GPU; what weighs most comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Cause {
    /// The driver had it since it was loaded, and has it no more.
    Gone,
    /// It has fallen off the bus.
    Lost,
    /// The driver reported an error that only a reset takes back.
    Xid(u64),
    /// The driver wants something done to it.
    Recovery(Recovery),
    /// Calls about it do not come back.
    Silent,
    /// Calls about it fail.
    Failed,
    /// Memory could not be replaced.
    RemapFailed,
    /// Memory waits for a reset to be replaced.
    RemapPending,
    /// Memory errors were not corrected.
    Uncorrected,
    /// Fewer NVLinks are up than were.
    LinksDown,
    /// The hardware slows it down for heat.
    Hot,
    /// The hardware slows it down for power.
    Braked,
}

/// What may be done to who has an ill GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weight {
    /// It is of no use until it is reset: who has it has nothing.
    Broken,
    /// It works, and is to be reset, or looked at.
    Worn,
    /// It may pass by itself.
    Passing,
}

// === impl Cause ===

impl Cause {
    /// What it means for a GPU.
    pub fn weight(self) -> Weight {
        match self {
            Self::Gone
            | Self::Lost
            | Self::Xid(_)
            | Self::Recovery(Recovery::Reset | Recovery::Reboot) => Weight::Broken,
            Self::Recovery(_) | Self::RemapFailed | Self::RemapPending | Self::Uncorrected => {
                Weight::Worn
            }
            Self::Silent | Self::Failed | Self::LinksDown | Self::Hot | Self::Braked => {
                Weight::Passing
            }
        }
    }

    /// The effect of its taint, `broken` for a GPU that is of no use.
    pub fn effect(self, broken: Effect) -> Effect {
        match self.weight() {
            Weight::Broken => broken,
            Weight::Worn | Weight::Passing => Effect::NoSchedule,
        }
    }

    /// For how many seconds it has to be there before it counts, and to be gone before it does no more.
    /// A GPU at the edge of its temperature goes up and down in seconds.
    pub(super) fn patience(self) -> (u64, u64) {
        match self {
            Self::Hot | Self::Braked => (10, 60),
            Self::LinksDown => (10, 0),
            _ => (0, 0),
        }
    }

    /// True where the GPU does not answer: it has no device to be tainted, but those that are kept.
    pub fn is_away(self) -> bool {
        matches!(self, Self::Gone | Self::Lost | Self::Silent | Self::Failed)
    }

    /// The name of its taint in our domain, and its value; none where the GPU does not answer.
    pub(super) fn taint(self) -> Option<(&'static str, String)> {
        let plain = |name: &'static str| Some((name, String::new()));
        match self {
            Self::Gone | Self::Lost | Self::Silent | Self::Failed => None,
            Self::Xid(xid) => Some(("xid", xid.to_string())),
            Self::Recovery(action) => Some(("recovery", action.to_string())),
            Self::RemapFailed => plain("memory-remap-failed"),
            Self::RemapPending => plain("memory-remap-pending"),
            Self::Uncorrected => plain("memory-errors"),
            Self::LinksDown => plain("nvlink-down"),
            Self::Hot => plain("thermal-slowdown"),
            Self::Braked => plain("power-brake"),
        }
    }

    /// What it is called in metrics.
    pub fn name(self) -> String {
        match self {
            Self::Gone => "gone".to_owned(),
            Self::Lost => "lost".to_owned(),
            Self::Silent => "silent".to_owned(),
            Self::Failed => "failed".to_owned(),
            Self::Xid(xid) => format!("xid-{xid}"),
            Self::Recovery(action) => format!("recovery-{action}"),
            other => other.taint().map(|(name, _)| name.to_owned()).unwrap_or_default(),
        }
    }
}

impl From<&FaultKind> for Cause {
    fn from(kind: &FaultKind) -> Self {
        match kind {
            FaultKind::Lost => Self::Lost,
            FaultKind::Silent { .. } => Self::Silent,
            FaultKind::Failed { .. } => Self::Failed,
        }
    }
}

impl fmt::Display for Cause {
    /// What it is, and what to do.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const RESET: &str = "end what uses it and reset it: nvidia-smi --gpu-reset";
        const LOOK: &str = "see nvidia-smi -q and dmesg";
        match self {
            Self::Gone => {
                write!(f, "the driver has it no more: see dmesg, and restart the machine")
            }
            Self::Lost => write!(f, "lost: reset it, or restart the machine"),
            Self::Silent => write!(f, "does not answer: see dmesg; it may have to be reset"),
            Self::Failed => write!(f, "calls about it fail: {LOOK}"),
            Self::Xid(xid) => {
                let what = meaning(*xid).unwrap_or("not in the catalogue of this build");
                match demand(*xid) {
                    Demand::Reboot => write!(f, "XID {xid}, {what}: restart the machine"),
                    Demand::Cables => write!(f, "XID {xid}, {what}: look at its cables"),
                    Demand::Nothing | Demand::Driver | Demand::Reset => {
                        write!(f, "XID {xid}, {what}: {RESET}")
                    }
                }
            }
            Self::Recovery(action) => match action {
                Recovery::Reboot => write!(f, "the driver asks to restart the machine"),
                Recovery::DrainLinks => {
                    write!(f, "the driver asks to end what uses its NVLinks, and to look again")
                }
                Recovery::Reset | Recovery::DrainAndReset => {
                    write!(f, "the driver asks for a reset: {RESET}")
                }
                Recovery::Nothing | Recovery::Other => {
                    write!(f, "the driver asks for something new: {LOOK}")
                }
            },
            Self::RemapFailed => {
                write!(f, "memory could not be replaced: the GPU is to be replaced")
            }
            Self::RemapPending => write!(f, "memory is to be replaced: {RESET}"),
            Self::Uncorrected => write!(f, "memory errors were not corrected: {RESET}"),
            Self::LinksDown => write!(f, "NVLinks are down that were up: see nvidia-smi nvlink -s"),
            Self::Hot => write!(f, "slowed down by heat: see to its cooling"),
            Self::Braked => write!(f, "slowed down by its power supply: see to the power supply"),
        }
    }
}
