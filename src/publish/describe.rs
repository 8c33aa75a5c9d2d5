//! A description is what others can know of a device: its attributes and capacities.

use std::collections::{BTreeMap, BTreeSet};

use semver::Version;

use super::{Attribute, Capacity, Offer, RequestPolicy, Valid, normalized};
use crate::{
    gpu::{self, Fabric, Gpu, Inventory, Mig, NvLinkPeer, PciAddress},
    plan,
    quantity::Quantity,
};

/// The longest text of an attribute, in Kubernetes.
pub(super) const MAX_TEXT: usize = 64;

/// The step and the least of a share's memory.
const MIB: u64 = 1 << 20;

/// The attributes of a device. They have the names of NVIDIA's driver, in our domain.
pub(crate) fn attributes(
    device: &gpu::Device<'_>,
    inventory: &Inventory,
) -> BTreeMap<String, Attribute> {
    let gpu = device.gpu();
    let mut attributes = BTreeMap::new();
    let mut set = |name: &str, value: Option<Attribute>| {
        if let Some(value) = value {
            attributes.insert(name.to_owned(), value);
        }
    };
    let version = |(major, minor): (u32, u32)| Version::new(major.into(), minor.into(), 0);
    set("productName", text(&gpu.product));
    set("brand", text(&gpu.brand));
    set("architecture", text(&gpu.architecture));
    set("cudaComputeCapability", Some(Attribute::Version(version(gpu.compute))));
    set("driverVersion", normalized(&inventory.driver.version).and_then(short));
    set("cudaDriverVersion", Some(Attribute::Version(version(inventory.driver.cuda))));
    set("resource.kubernetes.io/pciBusID", text(&gpu.pci.to_string()));
    set("resource.kubernetes.io/pcieRoot", gpu.pcie_root.as_deref().and_then(text));
    let numa = gpu.numa.map(|node| Attribute::Int(node.into()));
    set("resource.kubernetes.io/numaNode", numa);
    set("mps", Some(Attribute::Bool(plan::takes_mps_limits(gpu))));
    match device {
        gpu::Device::Gpu(_) => {
            set("type", text("gpu"));
            set("uuid", text(&gpu.uuid));
            set("addressingMode", gpu.addressing.and_then(|mode| text(&mode.to_string())));
            set("timeSlicing", Some(Attribute::Bool(true)));
            set("migCapable", Some(Attribute::Bool(gpu.mig != Mig::Unsupported)));
            let on = (gpu.mig != Mig::Unsupported).then_some(matches!(gpu.mig, Mig::On(_)));
            set("migEnabled", on.map(Attribute::Bool));
            let bandwidth = gpu.bandwidth.map(|bandwidth| Attribute::Int(bandwidth.into()));
            set("memoryBandwidth", bandwidth);
            // Partitions reach no other GPU.
            set("nvlinks", i64::try_from(gpu.nvlinks.len()).ok().map(Attribute::Int));
            set("nvlinkGroup", nvlink_group(gpu, inventory).and_then(|pci| text(&pci.to_string())));
            if let Fabric::Registered { cluster, clique } = &gpu.fabric {
                set("nvlinkClique", text(&format!("{cluster}.{clique}")));
            }
        }
        gpu::Device::Partition { profile, .. } => {
            set("type", text("mig"));
            set("profile", text(&profile.name));
            set("parentUUID", text(&gpu.uuid));
            set("migEnabled", Some(Attribute::Bool(matches!(gpu.mig, Mig::On(_)))));
            // The hardware has no such setting.
            set("timeSlicing", Some(Attribute::Bool(false)));
        }
    }
    attributes
}

/// The capacities of a device.
pub(super) fn capacity(device: &gpu::Device<'_>, is_shared: bool) -> BTreeMap<String, Capacity> {
    let whole = |value| Capacity { value, request_policy: None };
    let (name, capacity) = match device {
        gpu::Device::Gpu(gpu) => {
            let request_policy = is_shared.then(|| by_memory(gpu));
            ("memory", Capacity { value: Quantity::bytes(gpu.memory), request_policy })
        }
        gpu::Device::Partition { profile, .. } => {
            ("memory", whole(Quantity::bytes(profile.memory.saturating_mul(MIB))))
        }
    };
    let mut all = BTreeMap::from([(name.to_owned(), capacity)]);
    if let gpu::Device::Partition { profile, .. } = device {
        let count = profile.engines;
        let engines = [
            ("multiprocessors", profile.multiprocessors),
            ("copyEngines", count.copy),
            ("decoders", count.decoders),
            ("encoders", count.encoders),
            ("jpegEngines", count.jpeg),
            ("ofaEngines", count.ofa),
        ];
        let engines = engines.map(|(name, count)| (name.to_owned(), whole(Quantity::of(count))));
        all.extend(engines);
    }
    all
}

/// True for a device that several claims may have. A partition is made for one.
pub(super) fn is_shared(device: &gpu::Device<'_>, inventory: &Inventory, offer: Offer) -> bool {
    let gpu::Device::Gpu(gpu) = device else { return false };
    offer.shares && inventory.policy.shares && plan::takes_mps_limits(gpu)
}

/// A share is asked for by its memory. Who does not ask for any has all of it, and so the GPU alone.
fn by_memory(gpu: &Gpu) -> RequestPolicy {
    let mib = || Quantity::bytes(MIB);
    let valid = Valid::ValidRange { min: mib(), max: None, step: Some(mib()) };
    RequestPolicy { default: plan::whole_memory(gpu), valid }
}

/// What the GPUs that NVLink joins have in common: the lowest address among them, whether they are
/// joined by links from one to the other, by way of others, or by switches.
fn nvlink_group(gpu: &Gpu, inventory: &Inventory) -> Option<PciAddress> {
    let (mut gpus, mut switches) = (BTreeSet::from([gpu.pci]), BTreeSet::new());
    loop {
        let before = (gpus.len(), switches.len());
        for other in &inventory.gpus {
            let peers = || other.nvlinks.iter().map(|link| link.peer);
            let joined = peers().any(|peer| match peer {
                NvLinkPeer::Gpu(pci) => gpus.contains(&pci),
                NvLinkPeer::Switch(pci) => switches.contains(&pci),
                NvLinkPeer::Other(_) => false,
            });
            if !joined && !gpus.contains(&other.pci) {
                continue;
            }
            gpus.insert(other.pci);
            for peer in peers() {
                match peer {
                    NvLinkPeer::Gpu(pci) => gpus.insert(pci),
                    NvLinkPeer::Switch(pci) => switches.insert(pci),
                    NvLinkPeer::Other(_) => false,
                };
            }
        }
        if before == (gpus.len(), switches.len()) {
            break;
        }
    }
    let joined = gpus.len() > 1 || !switches.is_empty();
    gpus.first().copied().filter(|_| joined)
}

/// A text; what Kubernetes would refuse as too long is left out, not cut: a cut name is another.
fn text(text: &str) -> Option<Attribute> {
    (text.len() <= MAX_TEXT).then(|| Attribute::String(text.to_owned()))
}

/// A version, likewise.
fn short(version: Version) -> Option<Attribute> {
    (version.to_string().len() <= MAX_TEXT).then_some(Attribute::Version(version))
}
