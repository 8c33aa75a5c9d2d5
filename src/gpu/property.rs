//! A property is what a GPU has besides memory and partitions: its neighbours, its modes, and the
//! fault that keeps it from being given.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::PciAddress;

/// How a GPU shares addresses with the CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Addressing {
    /// Not at all.
    None,
    /// Heterogeneous memory management, in software.
    Hmm,
    /// Address translation services, in hardware.
    Ats,
}

/// An NVLink that is up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct NvLink {
    /// Its number on the GPU.
    pub link: u32,
    /// What is at its other end.
    pub peer: NvLinkPeer,
}

/// What a GPU's NVLink leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NvLinkPeer {
    /// Another GPU, here.
    Gpu(PciAddress),
    /// An NVSwitch, and behind it every GPU that is on it.
    Switch(PciAddress),
    /// Something else, such as a CPU.
    Other(PciAddress),
}

/// A GPU's place in an NVLink fabric that the fabric manager makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fabric {
    /// It is in none.
    None,
    /// It has not begun to register.
    NotStarted,
    /// It is registering.
    InProgress,
    /// It is registered.
    Registered {
        /// UUID of the cluster.
        cluster: String,
        /// The clique whose GPUs it reaches.
        clique: u32,
    },
    /// It could not register.
    Failed {
        /// NVML's answer.
        why: String,
    },
}

/// Which processes a GPU lets in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ComputeMode {
    /// Any number.
    #[default]
    Default,
    /// One at a time; the others fail. MPS needs it: its server is that one.
    ExclusiveProcess,
    /// None that computes.
    Prohibited,
}

/// A GPU that is there and does not answer as it should.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Where it sits.
    pub pci: PciAddress,
    /// Its UUID, if it ever said so.
    pub uuid: Option<String>,
    /// What is wrong with it.
    pub kind: FaultKind,
}

/// What is wrong with a GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FaultKind {
    /// A call about it has not come back in time, and may never.
    Silent {
        /// The call.
        call: &'static str,
    },
    /// It has fallen off the bus, or is no longer usable until it is reset.
    Lost,
    /// A call about it failed.
    Failed {
        /// What failed, and NVML's answer.
        why: String,
    },
}

// === impl Addressing ===

impl fmt::Display for Addressing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::Hmm => "HMM",
            Self::Ats => "ATS",
        })
    }
}

// === impl ComputeMode ===

impl fmt::Display for ComputeMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Default => "Default",
            Self::ExclusiveProcess => "Exclusive_Process",
            Self::Prohibited => "Prohibited",
        })
    }
}

// === impl Fault ===

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.uuid {
            Some(uuid) => write!(f, "GPU {uuid} at {} {}", self.pci, self.kind),
            None => write!(f, "the GPU at {} {}", self.pci, self.kind),
        }
    }
}

// === impl FaultKind ===

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Silent { call } => write!(f, "does not answer {call}"),
            Self::Lost => f.write_str("is lost: it must be reset, or the machine restarted"),
            Self::Failed { why } => write!(f, "fails: {why}"),
        }
    }
}
