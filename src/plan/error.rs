//! What keeps a claim from being planned.

use crate::{claim::Kind, gpu::Fault};

/// Why a claim cannot be prepared as it is allocated.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// None of its devices are ours.
    #[error("claim {claim}: its allocation has no device of driver {driver}")]
    NotOurs {
        /// The claim.
        claim: String,
        /// The driver.
        driver: String,
    },
    /// It is allocated on another node.
    #[error(
        "claim {claim}: {device} is allocated in pool {pool:?}, and this node's pool is {node:?}"
    )]
    OtherNode {
        /// The claim.
        claim: String,
        /// The device.
        device: String,
        /// Its pool.
        pool: String,
        /// This node.
        node: String,
    },
    /// The node has no such device.
    #[error("claim {claim}: node {node} has no device {device:?}{}", Offered(offered))]
    NoDevice {
        /// The claim.
        claim: String,
        /// The device.
        device: String,
        /// The node.
        node: String,
        /// What there is instead.
        offered: Vec<String>,
    },
    /// Its GPU does not answer as it should.
    #[error("claim {claim}: {device} cannot be given: {fault}")]
    Fault {
        /// The claim.
        claim: String,
        /// The device.
        device: String,
        /// What is wrong.
        fault: Fault,
    },
    /// The GPU's MIG mode does not let it be given that way.
    #[error("claim {claim}: {device}: {why}")]
    MigMode {
        /// The claim.
        claim: String,
        /// The device.
        device: String,
        /// The mode, and what it allows.
        why: &'static str,
    },
    /// Somebody else has it, or a part of it.
    #[error("claim {claim}: {device} {by}")]
    Overlap {
        /// The claim.
        claim: String,
        /// The device.
        device: String,
        /// What has it: `is held by claim …`, …
        by: String,
    },
    /// A configuration names a request that got a device of another kind.
    #[error(
        "claim {claim}: {place}: {} cannot be applied to {device}, which request {request} got: it \
         takes {}",
        kind.name(),
        takes.name()
    )]
    WrongKind {
        /// The claim.
        claim: String,
        /// Where the configuration is written.
        place: String,
        /// What it is for.
        kind: Kind,
        /// The device.
        device: String,
        /// The request.
        request: String,
        /// What the device takes.
        takes: Kind,
    },
    /// A limit of a single device is for none that the configuration is for.
    #[error(
        "claim {claim}: {place}: a limit for {key:?}, which is none of its devices; they are {there}"
    )]
    NoSuchDevice {
        /// The claim.
        claim: String,
        /// Where the configuration is written.
        place: String,
        /// The index or UUID.
        key: String,
        /// Which devices there are.
        there: String,
    },
    /// A device is given in part, and not by MPS.
    #[error(
        "claim {claim}: {device}: its share {share} is {sharing}, and a GPU is given in shares by mps \
         alone"
    )]
    ShareWithoutMps {
        /// The claim.
        claim: String,
        /// The device.
        device: String,
        /// The share's ID.
        share: String,
        /// How the claim shares it.
        sharing: String,
    },
    /// A GPU is too old for what MPS is to be told.
    #[error(
        "claim {claim}: {place}: mps{settings}: MPS takes settings from compute capability 7.0 on, \
         and a GPU of the claim has {}.{}",
        compute.0, compute.1
    )]
    OldForMps {
        /// The claim.
        claim: String,
        /// Where the configuration is written.
        place: String,
        /// The settings, each behind a comma.
        settings: String,
        /// The GPU's compute capability.
        compute: (u32, u32),
    },
}

struct Offered<'a>(&'a [String]);

// === impl PlanError ===

impl PlanError {
    /// Stable, for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotOurs { .. } => "CLAIM-INVALID",
            Self::OtherNode { .. } | Self::NoDevice { .. } | Self::MigMode { .. } => "NO-DEVICE",
            Self::Fault { .. } => "GPU-FAULT",
            Self::Overlap { .. } => "OVERLAP",
            Self::WrongKind { .. } | Self::NoSuchDevice { .. } => "CONFIG-INVALID",
            Self::ShareWithoutMps { .. } | Self::OldForMps { .. } => "CONFIG-UNSUPPORTED",
        }
    }
}

// === impl Offered ===

impl std::fmt::Display for Offered<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            [] => f.write_str("; it has none"),
            offered => write!(f, "; it has {}, …", offered.join(", ")),
        }
    }
}
