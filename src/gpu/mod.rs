//! A GPU is what the node hands out, whole or in MIG partitions; [`Gpus`] is what can be done to it.
//!
//! The verbs are ours, not a library's: a backend is small, and what plans and prepares does not
//! know which one it has.

mod device;
#[cfg(test)]
pub(crate) mod fixture;
mod inventory;
mod missing;
pub mod model;
mod pci;
mod property;
pub mod sim;

use std::{fmt, path::PathBuf, sync::Arc};

use serde::{Deserialize, Serialize};

pub use device::{Attribute, Device, DeviceName};
pub use inventory::{Driver, Gpu, GpuInstance, Inventory, Mig, Occupant, Partition};
pub use missing::Missing;
pub use model::{Engines, Model, Placement, Profile};
pub use pci::PciAddress;
pub use property::{Addressing, ComputeMode, Fabric, Fault, FaultKind, NvLink, NvLinkPeer};

use divvy_cdi::file::FileError;

/// The GPUs of one node. Every call may change the machine for all its users, and only
/// [`crate::prepare`] makes those that do. Any thread may call it; no GPU waits for another.
pub trait Gpus: fmt::Debug + Send + Sync {
    /// How a later process finds this backend again: the value of `--gpus`.
    fn address(&self) -> &str;

    /// What is there now.
    fn inventory(&self) -> Result<Inventory, GpuError>;

    /// Makes a partition of this profile exactly there. On failure nothing is left half made.
    fn create_partition(
        &self,
        gpu: &str,
        profile: &str,
        placement: Placement,
    ) -> Result<Partition, GpuError>;

    /// Ends the partition of this profile at this place. One that is gone is no error, and one
    /// with another UUID is not ours: it stays. Without a UUID (a crash came between making and
    /// noting it) profile and place decide.
    fn destroy_partition(&self, made: &MadePartition) -> Result<(), GpuError>;

    /// How long a process runs before the next one's turn. No part of the inventory, as asking
    /// costs a process on real GPUs; one that cannot be time-sliced says so here.
    fn time_slice(&self, gpu: &str) -> Result<Interval, GpuError>;

    /// Sets how long a process runs before the next one's turn, for the whole GPU.
    fn set_time_slice(&self, gpu: &str, interval: Interval) -> Result<(), GpuError>;

    /// Sets which processes a GPU lets in.
    fn set_compute_mode(&self, gpu: &str, mode: ComputeMode) -> Result<(), GpuError>;

    /// What a container needs to use this GPU (`partition`: this part of it) alone.
    fn device_files(&self, gpu: &str, partition: Option<&str>) -> Result<Files, GpuError>;

    /// What a container needs besides, whichever device it has: control nodes, driver files.
    fn driver_files(&self) -> Result<Files, GpuError>;
}

/// A partition that divvy made or was about to make.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MadePartition {
    /// UUID of its GPU.
    pub gpu: String,
    /// Profile, by name.
    pub profile: String,
    /// Where.
    pub placement: Placement,
    /// Its UUID, once it is known to be made.
    pub uuid: Option<String>,
}

/// How long a process runs before the next one's turn (`nvidia-smi compute-policy`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Interval {
    /// The driver's choice.
    #[default]
    Default,
    /// Short.
    Short,
    /// Medium.
    Medium,
    /// Long.
    Long,
}

/// Nodes and files of the host that a container gets, and what its environment says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Files {
    /// Device nodes.
    pub nodes: Vec<NodeFile>,
    /// Files, mounted read-only.
    pub mounts: Vec<MountFile>,
}

/// A device node of the host and its path in the container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeFile {
    /// In the container.
    pub path: String,
    /// On the host.
    pub host_path: String,
    /// As the host shows it now; injection checks that it still does.
    pub node: divvy_cdi::host::Node,
}

/// A file of the host and its path in the container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountFile {
    /// In the container.
    pub path: String,
    /// On the host.
    pub host_path: String,
}

/// Why the GPUs could not be looked at or changed.
#[derive(Debug, thiserror::Error)]
pub enum GpuError {
    /// The value of `--gpus` names no backend.
    #[error("{given:?} is no GPU backend: {}", Backend(given))]
    Backend {
        /// What was given.
        given: String,
    },
    /// They were there when a claim was prepared, and are not now.
    #[error("the GPUs {address} cannot be reached")]
    Missing {
        /// [`Gpus::address`].
        address: String,
        /// Why.
        #[source]
        source: Arc<GpuError>,
    },
    /// The node file does not say what it must.
    #[error("{}: {message}", path.display())]
    NodeFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        message: String,
    },
    /// The state that the simulated node keeps cannot be read back.
    #[error("{}: the simulated node's state is damaged: {message}", path.display())]
    State {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        message: String,
    },
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// The lock that orders changes could not be taken.
    #[error(transparent)]
    Lock(#[from] crate::lock::LockError),
    /// No GPU has this UUID.
    #[error("no GPU {gpu} on this node")]
    NoGpu {
        /// The UUID asked for.
        gpu: String,
    },
    /// The GPU gives no MIG partitions.
    #[error("GPU {gpu} has no MIG mode, or it is off")]
    MigOff {
        /// The GPU's UUID.
        gpu: String,
    },
    /// The product has no such profile, or not there.
    #[error("GPU {gpu} has no place {placement} for profile {profile}")]
    NoPlacement {
        /// The GPU's UUID.
        gpu: String,
        /// The profile asked for.
        profile: String,
        /// The place asked for.
        placement: Placement,
    },
    /// Something else lies there. NVML says no more than INSUFFICIENT_RESOURCES.
    #[error("GPU {gpu}: no room for {profile} at {placement}: {by} is in the way")]
    Occupied {
        /// The GPU's UUID.
        gpu: String,
        /// The profile asked for.
        profile: String,
        /// The place asked for.
        placement: Placement,
        /// What is there.
        by: String,
    },
    /// The GPU has no partition with this UUID.
    #[error("GPU {gpu} has no partition {partition}")]
    NoPartition {
        /// The GPU's UUID.
        gpu: String,
        /// The partition's UUID.
        partition: String,
    },
    /// A node that the container needs is not there, or is no device node.
    #[error("{} is no device node of this host", path.display())]
    NoNode {
        /// Where it should be.
        path: PathBuf,
        /// The system's answer.
        #[source]
        source: Option<std::io::Error>,
    },
}

/// The backend that `--gpus` names: `sim:FILE`.
pub fn open(address: &str) -> Result<Box<dyn Gpus>, GpuError> {
    match address.split_once(':') {
        Some(("sim", file)) if !file.is_empty() => Ok(Box::new(sim::Sim::open(file.as_ref())?)),
        _ => Err(GpuError::Backend { given: address.to_owned() }),
    }
}

/// What `--gpus` should have been.
struct Backend<'a>(&'a str);

// === impl Backend ===

impl fmt::Display for Backend<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            "sim" | "sim:" => f.write_str("the file is missing behind sim:"),
            file if !file.contains(':') && file.contains(['.', '/']) => {
                write!(f, "did you mean sim:{file}, a simulated node?")
            }
            _ => f.write_str("this version has sim:FILE, a simulated node"),
        }
    }
}

// === impl GpuError ===

impl GpuError {
    /// Stable, for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Backend { .. } => "NO-GPUS",
            Self::NodeFile { .. } | Self::State { .. } => "GPUS-INVALID",
            Self::File(error) => error.code(),
            Self::Missing { source, .. } => source.code(),
            Self::Lock(_) => "STATE-DIR",
            Self::NoGpu { .. }
            | Self::MigOff { .. }
            | Self::NoPlacement { .. }
            | Self::NoPartition { .. } => "NO-DEVICE",
            Self::Occupied { .. } => "OVERLAP",
            Self::NoNode { .. } => "DEVICE-GONE",
        }
    }
}

// === impl Interval ===

impl Interval {
    /// Every interval, by the name that a claim uses.
    pub const ALL: [(&'static str, Interval); 4] = [
        ("Default", Self::Default),
        ("Short", Self::Short),
        ("Medium", Self::Medium),
        ("Long", Self::Long),
    ];
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Default => "Default",
            Self::Short => "Short",
            Self::Medium => "Medium",
            Self::Long => "Long",
        })
    }
}

// === impl MadePartition ===

impl MadePartition {
    /// True when `other`, a partition of the same GPU, is this one.
    pub fn is(&self, other: &Partition) -> bool {
        self.profile == other.profile
            && self.placement == other.placement
            && self.uuid.as_ref().is_none_or(|uuid| *uuid == other.uuid)
    }
}
