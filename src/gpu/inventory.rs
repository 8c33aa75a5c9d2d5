//! An inventory is what a node has at one moment: its driver, its GPUs, their partitions.

use std::borrow::Cow;

use super::{
    Addressing, ComputeMode, Device, DeviceName, Fabric, Fault, GpuError, Model, NvLink,
    PciAddress, Placement, Profile, model::collide,
};

/// A node's GPUs, by PCI address.
#[derive(Debug, Clone)]
pub struct Inventory {
    /// The node's name, and so the name of its pool.
    pub node: String,
    /// The driver.
    pub driver: Driver,
    /// The GPUs, by PCI address.
    pub gpus: Vec<Gpu>,
    /// GPUs that are there and do not answer, by PCI address: none of them can be given.
    pub faults: Vec<Fault>,
    /// What may be done with them.
    pub policy: Policy,
}

/// What may be done with GPUs beyond giving them, and partitions that divvy makes, to one claim each.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Policy {
    /// Switch the MIG mode of an idle GPU that needs no reset for it.
    pub switch_mig: bool,
    /// Take a partition that somebody else made for its own: it is ended with its claim.
    pub adopt_mig: bool,
    /// Give GPUs in shares, several claims at once.
    pub shares: bool,
}

/// The driver that the GPUs run on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Driver {
    /// `sim`, `nvidia`.
    pub name: String,
    /// `580.65.06`
    pub version: String,
    /// The newest CUDA that it runs: major, minor.
    pub cuda: (u32, u32),
}

/// One GPU.
#[derive(Debug, Clone)]
pub struct Gpu {
    /// `GPU-…`
    pub uuid: String,
    /// Where it sits; names it for as long as it sits there.
    pub pci: PciAddress,
    /// The number in `/dev/nvidia<minor>`; changes between boots, so nothing is named by it.
    pub minor: u32,
    /// NVML's product name.
    pub product: String,
    /// NVML's brand: `Nvidia`, `Tesla`, `GeForce`.
    pub brand: String,
    /// NVML's architecture: `Hopper`.
    pub architecture: String,
    /// CUDA compute capability: major, minor.
    pub compute: (u32, u32),
    /// Bytes.
    pub memory: u64,
    /// The most that its memory gives, in GB/s.
    pub bandwidth: Option<u32>,
    /// The NUMA node that it is near to, where the machine has more than one.
    pub numa: Option<u32>,
    /// The PCIe root that it hangs from, as sysfs names it: `pci0000:15`.
    pub pcie_root: Option<String>,
    /// How it shares addresses with the CPU, where the driver says so.
    pub addressing: Option<Addressing>,
    /// The NVLinks that are up.
    pub nvlinks: Vec<NvLink>,
    /// Its place in an NVLink fabric.
    pub fabric: Fabric,
    /// Whether it gives partitions, and those that exist.
    pub mig: Mig,
    /// The MIG mode after the next reset: another than now where a change waits for one.
    pub mig_pending: bool,
    /// Its MIG profiles, smallest first; none where the product has no MIG.
    pub profiles: Cow<'static, [Profile]>,
    /// GPU instances that are no partitions.
    pub instances: Vec<GpuInstance>,
    /// Which processes it lets in.
    pub compute_mode: ComputeMode,
}

/// A GPU's MIG mode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mig {
    /// The product has none.
    Unsupported,
    /// Off: the GPU is given whole.
    Off,
    /// On: the GPU is given in partitions only. These exist.
    On(Vec<Partition>),
}

/// A MIG partition that exists: a GPU instance filled by one compute instance.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Partition {
    /// `MIG-…`
    pub uuid: String,
    /// Profile, by name.
    pub profile: String,
    /// Where.
    pub placement: Placement,
    /// GPU instance id; reused after the instance is gone.
    pub gpu_instance: u32,
    /// Compute instance id.
    pub compute_instance: u32,
}

/// A GPU instance that is no partition, and takes the room of one: it has no compute instance, as
/// a crash between making the two leaves it, or it is shared by several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuInstance {
    /// Its id; reused after the instance is gone.
    pub id: u32,
    /// Profile, by name.
    pub profile: String,
    /// Where.
    pub placement: Placement,
    /// UUIDs of the MIG devices that its compute instances are.
    pub devices: Vec<String>,
}

/// What takes a place on a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Occupant<'a> {
    /// A partition.
    Partition(&'a Partition),
    /// A GPU instance that is none.
    Instance(&'a GpuInstance),
}

// === impl Inventory ===

impl Inventory {
    /// Of a node without GPUs.
    pub fn none(node: &str) -> Self {
        let (node, name) = (node.to_owned(), "none".to_owned());
        let driver = Driver { name, version: String::new(), cuda: (0, 0) };
        Self { node, driver, gpus: Vec::new(), faults: Vec::new(), policy: Policy::default() }
    }

    /// The GPU with this UUID.
    pub fn gpu(&self, uuid: &str) -> Option<&Gpu> {
        self.gpus.iter().find(|gpu| gpu.uuid == uuid)
    }

    /// [`Self::gpu`], or why it is not there: one that has never said its UUID may be it.
    pub fn find(&self, uuid: &str) -> Result<&Gpu, GpuError> {
        let may_be = |fault: &&Fault| fault.uuid.as_deref().is_none_or(|its| its == uuid);
        let fault = || self.fault_of(uuid).or_else(|| self.faults.iter().find(may_be));
        self.gpu(uuid).ok_or_else(|| match fault() {
            Some(fault) => GpuError::Fault(fault.clone()),
            None => GpuError::NoGpu { gpu: uuid.to_owned() },
        })
    }

    /// What is wrong with the GPU with this UUID, if anything is and it is known.
    pub fn fault_of(&self, uuid: &str) -> Option<&Fault> {
        self.faults.iter().find(|fault| fault.uuid.as_deref() == Some(uuid))
    }

    /// What is wrong with the GPU that sits there, if anything is.
    pub fn fault(&self, pci: PciAddress) -> Option<&Fault> {
        self.faults.iter().find(|fault| fault.pci == pci)
    }

    /// Every device that could be given, in the order of first fit: GPUs by PCI address, on each
    /// the smallest profile first, and of a profile the lowest place.
    pub fn devices(&self) -> impl Iterator<Item = Device<'_>> {
        self.gpus.iter().flat_map(|gpu| {
            let whole = (!matches!(gpu.mig, Mig::On(_))).then_some(Device::Gpu(gpu));
            let parts = whole.is_none() || self.switches(gpu);
            let profiles = if parts { gpu.profiles.as_ref() } else { &[] };
            let parts = profiles.iter().flat_map(move |profile| {
                profile.placements().map(move |placement| Device::Partition {
                    gpu,
                    profile,
                    placement,
                })
            });
            whole.into_iter().chain(parts)
        })
    }

    /// True for a GPU that is given whole, and in partitions once its MIG mode is switched on.
    pub fn switches(&self, gpu: &Gpu) -> bool {
        self.policy.switch_mig && gpu.mig == Mig::Off && gpu.may_set_mig(true).is_ok()
    }

    /// The device of this name, whether or not the GPU's MIG mode lets it be given now.
    pub fn device(&self, name: &DeviceName) -> Option<Device<'_>> {
        let gpu = self.gpus.iter().find(|gpu| gpu.pci == name.pci())?;
        match name {
            DeviceName::Gpu { .. } => Some(Device::Gpu(gpu)),
            DeviceName::Partition { profile, start, .. } => {
                let profile =
                    gpu.profiles.iter().find(|p| DeviceName::label(&p.name) == *profile)?;
                let placement = profile.placements().find(|place| place.start == *start)?;
                Some(Device::Partition { gpu, profile, placement })
            }
        }
    }
}

// === impl Gpu ===

impl Gpu {
    /// A GPU of this model as it comes out of the box: on its own, undivided.
    pub fn of_model(model: &'static Model, uuid: String, pci: PciAddress, minor: u32) -> Self {
        Self {
            uuid,
            pci,
            minor,
            product: model.product.to_owned(),
            brand: model.brand.to_owned(),
            architecture: model.architecture.to_owned(),
            compute: model.compute,
            memory: model.memory << 20,
            bandwidth: Some(model.bandwidth()),
            numa: None,
            pcie_root: None,
            addressing: None,
            nvlinks: Vec::new(),
            fabric: Fabric::None,
            mig: if model.profiles.is_empty() { Mig::Unsupported } else { Mig::Off },
            mig_pending: false,
            profiles: Cow::Borrowed(model.profiles),
            instances: Vec::new(),
            compute_mode: ComputeMode::Default,
        }
    }

    /// The profile with this name.
    pub fn profile(&self, name: &str) -> Option<&Profile> {
        self.profiles.iter().find(|profile| profile.name == name)
    }

    /// The partition of this profile that exists exactly there.
    pub fn partition(&self, profile: &str, placement: Placement) -> Option<&Partition> {
        let mut all = self.partitions().iter();
        all.find(|there| there.profile == profile && there.placement == placement)
    }

    /// The partition with this UUID, or that there is none.
    pub fn partition_with(&self, uuid: &str) -> Result<&Partition, GpuError> {
        let found = self.partitions().iter().find(|there| there.uuid == uuid);
        found.ok_or_else(|| GpuError::NoPartition {
            gpu: self.uuid.clone(),
            partition: uuid.to_owned(),
        })
    }

    /// The partitions that exist.
    pub fn partitions(&self) -> &[Partition] {
        match &self.mig {
            Mig::On(partitions) => partitions,
            Mig::Unsupported | Mig::Off => &[],
        }
    }

    /// Refuses to switch its MIG mode where that is known to be no use; true when it is so already.
    pub(crate) fn may_set_mig(&self, on: bool) -> Result<bool, GpuError> {
        let (gpu, product) = (self.uuid.clone(), self.product.clone());
        let there = match &self.mig {
            Mig::Unsupported => return Err(GpuError::NoMig { gpu, product }),
            Mig::Off => None,
            Mig::On(partitions) => {
                let instances = self.instances.iter().map(Occupant::Instance);
                partitions.iter().map(Occupant::Partition).chain(instances).next()
            }
        };
        if matches!(self.mig, Mig::On(_)) == on {
            return Ok(true);
        }
        // Before Hopper (compute capability 9) the mode is pending until a reset (dra-drivers.md 4.3).
        if self.compute.0 < 9 {
            return Err(GpuError::MigReset { gpu, product, on });
        }
        match there {
            Some(there) => Err(GpuError::MigBusy { gpu, by: format!("it has {there}") }),
            None => Ok(false),
        }
    }

    /// What stands in the way of a new partition, if anything does: MIG's placement rules.
    pub fn in_the_way(&self, profile: &Profile, place: Placement) -> Option<Occupant<'_>> {
        let partitions = self.partitions().iter().map(Occupant::Partition);
        let mut all = partitions.chain(self.instances.iter().map(Occupant::Instance));
        all.find(|there| collide((&profile.name, place), (there.profile(), there.placement())))
    }
}

// === impl Occupant ===

impl Occupant<'_> {
    fn profile(&self) -> &str {
        match self {
            Self::Partition(partition) => &partition.profile,
            Self::Instance(instance) => &instance.profile,
        }
    }

    fn placement(&self) -> Placement {
        match self {
            Self::Partition(partition) => partition.placement,
            Self::Instance(instance) => instance.placement,
        }
    }
}

impl std::fmt::Display for Occupant<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (profile, placement) = (self.profile(), self.placement());
        match self {
            Self::Partition(Partition { uuid, .. }) => {
                write!(f, "partition {profile} at {placement} ({uuid})")
            }
            Self::Instance(GpuInstance { id, devices, .. }) => match devices.as_slice() {
                [] => write!(
                    f,
                    "GPU instance {id}, {profile} at {placement}, which has no compute instance"
                ),
                devices => write!(
                    f,
                    "GPU instance {id}, {profile} at {placement}, which is {}",
                    devices.join(" and ")
                ),
            },
        }
    }
}
