//! A GPU is what the node hands out, whole or in MIG partitions; [`Gpus`] is what can be done to it.
//!
//! The verbs are ours, not a library's: a backend is small, and what plans and prepares does not
//! know which one it has.

mod device;
mod error;
#[cfg(test)]
pub(crate) mod fixture;
mod health;
mod inventory;
mod missing;
pub mod model;
pub mod nvml;
mod pci;
mod property;
pub mod sim;

use std::{collections::BTreeSet, fmt, path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};

use crate::program::Program;

pub use device::{Device, DeviceName};
pub use error::GpuError;
pub use health::{Checked, Checkup, Event, EventKind, Recovery, Vitals};
pub use inventory::{Driver, Gpu, GpuInstance, Inventory, Mig, Occupant, Partition, Policy};
pub use missing::Missing;
pub use model::{Engines, Model, Placement, Profile};
pub use pci::PciAddress;
pub use property::{Addressing, ComputeMode, Fabric, Fault, FaultKind, NvLink, NvLinkPeer};

/// The GPUs of one node. Every call may change the machine for all its users, and only
/// [`crate::prepare`] makes those that do. Any thread may call it; no GPU waits for another.
pub trait Gpus: fmt::Debug + Send + Sync {
    /// How a later process finds this backend again: the value of `--gpus`.
    fn address(&self) -> &str;

    /// What is there now.
    fn inventory(&self) -> Result<Inventory, GpuError> {
        self.inventory_of(None)
    }

    /// [`Self::inventory`] of the GPUs that sit there alone: no other is waited for.
    fn inventory_of(&self, only: Option<&BTreeSet<PciAddress>>) -> Result<Inventory, GpuError>;

    /// The UUIDs of the GPUs that sit there, as far as they are known without a look: they may be
    /// others by now.
    fn uuids(&self, _at: &BTreeSet<PciAddress>) -> BTreeSet<String> {
        BTreeSet::new()
    }

    /// What each GPU says of its health. A backend of which nothing is known has none to tell of.
    fn checkup(&self) -> Result<Checkup, GpuError> {
        Ok(Checkup::default())
    }

    /// What happened to GPUs since the last call: one caller hears it. Waits for it, but no longer
    /// than `patience`. What happened before the first call is not told.
    fn events(&self, patience: Duration) -> Result<Vec<Event>, GpuError> {
        std::thread::sleep(patience);
        Ok(Vec::new())
    }

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

    /// Switches a GPU's MIG mode, if that takes effect at once: where it needs a reset, or something
    /// uses the GPU, nothing is changed.
    fn set_mig(&self, gpu: &str, on: bool) -> Result<(), GpuError>;

    /// The driver's control program of MPS, where this backend has one.
    fn mps_control(&self) -> Result<Program, GpuError>;

    /// What a container needs to use this GPU (`partition`: this part of it, by UUID) alone. It is not
    /// looked at again: it is as it was in the inventory that it is of.
    fn device_files(&self, gpu: &Gpu, partition: Option<&str>) -> Result<Files, GpuError>;

    /// What a container needs to render and to show with this GPU: its DRM nodes, where it has any.
    fn display_files(&self, gpu: &Gpu) -> Result<Files, GpuError>;

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
    /// Files.
    pub mounts: Vec<MountFile>,
    /// Links in the container's file system.
    pub links: Vec<Link>,
    /// Folders that the container's loader has to find libraries in, the first first.
    pub folders: Vec<String>,
    /// What it does without, in words.
    pub lacking: Vec<String>,
    /// Version of the driver that they are of; empty for those of a device alone.
    pub driver: String,
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
    /// What may be done with it.
    pub kind: MountKind,
}

/// What a container may do with a mounted file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum MountKind {
    /// Read and run it.
    File,
    /// Connect to it.
    Socket,
}

/// A link in a container.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Link {
    /// Where it stands.
    pub path: String,
    /// Where it leads, from its own folder.
    pub target: String,
}

/// Where the files of a driver are, if not where drivers are.
#[derive(Debug, Clone, Default)]
pub struct Roots {
    /// What the driver's own paths are below.
    pub driver: Option<PathBuf>,
    /// What `/dev` with the driver's nodes is below.
    pub dev: Option<PathBuf>,
}

/// The backend that `--gpus` names: `nvml`, `nvml:HOST`, `sim:FILE`. The roots are of the first two; `node` is the
/// node's name where the machine's own is not.
pub fn open(
    address: &str,
    roots: &Roots,
    policy: Policy,
    node: Option<&str>,
) -> Result<Box<dyn Gpus>, GpuError> {
    let nvml = |host: &str| -> Result<Box<dyn Gpus>, GpuError> {
        let nvml = nvml::Nvml::open(host.as_ref(), roots, nvml::Deadlines::default())?;
        Ok(Box::new(nvml.allowing(policy).named(node)))
    };
    match address.split_once(':') {
        None if address == "nvml" => nvml("/"),
        Some(("nvml", host)) if host.starts_with('/') => nvml(host),
        Some(("sim", file)) if !file.is_empty() => {
            Ok(Box::new(sim::Sim::open(file.as_ref())?.allowing(policy).named(node)))
        }
        _ => Err(GpuError::Backend { given: address.to_owned() }),
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

    /// True when `other`, a GPU instance of the same GPU, is what is left of it: the compute
    /// instance, which had the UUID, is gone.
    pub fn is_left(&self, other: &GpuInstance) -> bool {
        self.profile == other.profile
            && self.placement == other.placement
            && other.devices.is_empty()
    }
}
