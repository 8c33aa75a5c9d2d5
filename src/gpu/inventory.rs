//! An inventory is what a node has at one moment: its driver, its GPUs, their partitions.

use std::{fmt, str::FromStr};

use super::{Device, DeviceName, Interval, Model, Placement, model::has_media_extensions};

/// A node's GPUs, by PCI address.
#[derive(Debug, Clone)]
pub struct Inventory {
    /// The node's name, and so the name of its pool.
    pub node: String,
    /// The driver.
    pub driver: Driver,
    /// The GPUs, by PCI address.
    pub gpus: Vec<Gpu>,
}

/// The driver that the GPUs run on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Driver {
    /// `sim`, `nvidia`.
    pub name: String,
    /// `580.65.06`
    pub version: String,
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
    /// The product.
    pub model: &'static Model,
    /// Whether it gives partitions, and those that exist.
    pub mig: Mig,
    /// How it shares time between processes.
    pub time_slice: Interval,
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

/// `dddd:bb:dd.f`
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PciAddress {
    /// Domain; beyond 16 bits behind some bridges.
    pub domain: u32,
    /// Bus.
    pub bus: u8,
    /// Device, 0 to 31.
    pub device: u8,
    /// Function, 0 to 7.
    pub function: u8,
}

// === impl Inventory ===

impl Inventory {
    /// The GPU with this UUID.
    pub fn gpu(&self, uuid: &str) -> Option<&Gpu> {
        self.gpus.iter().find(|gpu| gpu.uuid == uuid)
    }

    /// Every device that could be given, in the order of first fit: GPUs by PCI address, on each
    /// the smallest profile first, and of a profile the lowest place.
    pub fn devices(&self) -> impl Iterator<Item = Device<'_>> {
        self.gpus.iter().flat_map(|gpu| {
            let whole = (!matches!(gpu.mig, Mig::On(_))).then_some(Device::Gpu(gpu));
            let profiles = if whole.is_some() { &[] } else { gpu.model.profiles };
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

    /// The device of this name, whether or not the GPU's MIG mode lets it be given now.
    pub fn device(&self, name: &DeviceName) -> Option<Device<'_>> {
        let gpu = self.gpus.iter().find(|gpu| gpu.pci == name.pci())?;
        match name {
            DeviceName::Gpu { .. } => Some(Device::Gpu(gpu)),
            DeviceName::Partition { profile, start, .. } => {
                let profile =
                    gpu.model.profiles.iter().find(|p| DeviceName::label(p.name) == *profile)?;
                let placement = profile.placements().find(|place| place.start == *start)?;
                Some(Device::Partition { gpu, profile, placement })
            }
        }
    }
}

// === impl Gpu ===

impl Gpu {
    /// The partitions that exist.
    pub fn partitions(&self) -> &[Partition] {
        match &self.mig {
            Mig::On(partitions) => partitions,
            Mig::Unsupported | Mig::Off => &[],
        }
    }

    /// What stands in the way of a new partition, if anything does: MIG's placement rules.
    pub fn in_the_way(&self, profile: &super::Profile, place: Placement) -> Option<&Partition> {
        self.partitions().iter().find(|there| {
            there.placement.overlaps(place)
                || (has_media_extensions(profile.name) && has_media_extensions(&there.profile))
        })
    }
}

// === impl PciAddress ===

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { domain, bus, device, function } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function}")
    }
}

impl FromStr for PciAddress {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let hex = |part: &str| u32::from_str_radix(part, 16).ok();
        let parse = || {
            let (domain, rest) = text.split_once(':')?;
            let (bus, rest) = rest.split_once(':')?;
            let (device, function) = rest.split_once('.')?;
            let address = Self {
                domain: hex(domain)?,
                bus: u8::try_from(hex(bus)?).ok()?,
                device: u8::try_from(hex(device)?).ok().filter(|&device| device < 32)?,
                function: u8::try_from(hex(function)?).ok().filter(|&function| function < 8)?,
            };
            // One address has one spelling.
            (address.to_string() == text).then_some(address)
        };
        parse().ok_or(())
    }
}
