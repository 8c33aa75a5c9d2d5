//! The builder: an inventory's slices. It does no input or output, and the order is that of first
//! fit: GPUs by PCI address, on each the smallest profile first, of a profile the lowest place.

use std::collections::BTreeMap;

use semver::Version;

use super::{
    Attribute, Capacity, Consumption, CounterSet, Device, Effect, Slice, Taint, normalized,
};
use crate::{
    claim::DRIVER,
    gpu::{self, Fabric, Gpu, Inventory, Mig, Placement, model::has_media_extensions},
    quantity::Quantity,
};

/// The most counter sets of a slice, in Kubernetes.
const MAX_SETS: usize = 8;
/// The most devices of a slice, and of one in which a device consumes counters or is tainted.
const MAX_DEVICES: usize = 128;
const MAX_LINKED_DEVICES: usize = 64;

/// The longest text of an attribute, in Kubernetes.
const MAX_TEXT: usize = 64;

/// The slices of a node's pool: counter sets first, then the devices that consume them. A node
/// without a device has one empty slice: the driver is up.
pub fn slices(inventory: &Inventory) -> Vec<Slice> {
    let devices: Vec<Device> =
        inventory.devices().map(|device| published(&device, inventory)).collect();
    let partitioned = |gpu: &&Gpu| matches!(gpu.mig, Mig::On(_)) || inventory.switches(gpu);
    let partitioned = inventory.gpus.iter().filter(partitioned);
    let sets: Vec<CounterSet> = partitioned.map(counter_set).collect();
    let linked =
        |device: &Device| !device.consumes_counters.is_empty() || !device.taints.is_empty();
    let most = if devices.iter().any(linked) { MAX_LINKED_DEVICES } else { MAX_DEVICES };
    let sets = sets.chunks(MAX_SETS).map(|sets| Slice::SharedCounters(sets.to_vec()));
    let mut slices: Vec<Slice> = sets.collect();
    slices.extend(devices.chunks(most).map(|devices| Slice::Devices(devices.to_vec())));
    if slices.is_empty() {
        slices.push(Slice::Devices(Vec::new()));
    }
    slices
}

/// A device as others see it. Attributes have the names of NVIDIA's driver, in our domain.
fn published(device: &gpu::Device<'_>, inventory: &Inventory) -> Device {
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
    set("driverVersion", normalized(&inventory.driver.version).map(Attribute::Version));
    set("cudaDriverVersion", Some(Attribute::Version(version(inventory.driver.cuda))));
    set("resource.kubernetes.io/pciBusID", text(&gpu.pci.to_string()));
    set("resource.kubernetes.io/pcieRoot", gpu.pcie_root.as_deref().and_then(text));
    let numa = gpu.numa.map(|node| Attribute::Int(node.into()));
    set("resource.kubernetes.io/numaNode", numa);
    if let Fabric::Registered { cluster, clique } = &gpu.fabric {
        set("nvlinkClique", text(&format!("{cluster}.{clique}")));
    }
    let (kind, capacity, consumes_counters) = match device {
        gpu::Device::Gpu(_) => {
            set("uuid", text(&gpu.uuid));
            set("addressingMode", gpu.addressing.and_then(|mode| text(&mode.to_string())));
            // Whole it has what any partition would.
            let all = inventory.switches(gpu).then(|| {
                let CounterSet { name, counters } = counter_set(gpu);
                Consumption { counter_set: name, counters }
            });
            let memory = ("memory", Quantity::bytes(gpu.memory));
            ("gpu", vec![memory], all.into_iter().collect())
        }
        gpu::Device::Partition { profile, placement, .. } => {
            set("profile", text(&profile.name));
            set("parentUUID", text(&gpu.uuid));
            let (size, count) = (profile.memory, profile.engines);
            let capacity = vec![
                ("memory", Quantity::bytes(size.saturating_mul(1 << 20))),
                ("multiprocessors", Quantity::of(profile.multiprocessors)),
                ("copyEngines", Quantity::of(count.copy)),
                ("decoders", Quantity::of(count.decoders)),
                ("encoders", Quantity::of(count.encoders)),
                ("jpegEngines", Quantity::of(count.jpeg)),
                ("ofaEngines", Quantity::of(count.ofa)),
            ];
            ("mig", capacity, vec![consumption(gpu, profile, *placement)])
        }
    };
    set("type", text(kind));
    let capacity = capacity
        .into_iter()
        .map(|(name, value)| (name.to_owned(), Capacity { value, request_policy: None }));
    Device {
        name: device.name().to_string(),
        capacity: capacity.collect(),
        attributes,
        consumes_counters,
        taints: taints(gpu),
        allow_multiple_allocations: false,
    }
}

/// What the partitions of a GPU share. Each memory slice is there once, so two placements that need
/// the same one do not both fit; and so are the media engines of a `+me` profile. These two are all
/// of MIG's placement rules, and the other sums follow: no set of placements that fits needs more
/// multiprocessors than there are.
fn counter_set(gpu: &Gpu) -> CounterSet {
    let ends = gpu.profiles.iter().flat_map(|profile| {
        profile.placements().map(|place| place.start.saturating_add(place.size))
    });
    let slices = ends.max().unwrap_or(0);
    let mut counters: BTreeMap<String, Quantity> =
        (0..slices).map(|slice| (memory_slice(slice), Quantity::of(1))).collect();
    if gpu.profiles.iter().any(|profile| has_media_extensions(&profile.name)) {
        counters.insert(MEDIA.to_owned(), Quantity::of(1));
    }
    CounterSet { name: set_name(gpu), counters }
}

fn consumption(gpu: &Gpu, profile: &gpu::Profile, placement: Placement) -> Consumption {
    let slices = placement.start..placement.start.saturating_add(placement.size);
    let mut counters: BTreeMap<String, Quantity> =
        slices.map(|slice| (memory_slice(slice), Quantity::of(1))).collect();
    if has_media_extensions(&profile.name) {
        counters.insert(MEDIA.to_owned(), Quantity::of(1));
    }
    Consumption { counter_set: set_name(gpu), counters }
}

const MEDIA: &str = "media-extensions";

fn memory_slice(slice: u8) -> String {
    format!("memory-slice-{slice}")
}

fn set_name(gpu: &Gpu) -> String {
    format!("{}-counters", gpu::Device::Gpu(gpu).name())
}

/// A text; what Kubernetes would refuse as too long is left out, not cut: a cut name is another.
fn text(text: &str) -> Option<Attribute> {
    (text.len() <= MAX_TEXT).then(|| Attribute::String(text.to_owned()))
}

/// A GPU whose MIG mode changes at the next reset is not what it will be then: whoever gets it now
/// may lose it.
fn taints(gpu: &Gpu) -> Vec<Taint> {
    let mig = matches!(gpu.mig, Mig::On(_));
    match mig == gpu.mig_pending {
        true => Vec::new(),
        false => vec![Taint {
            key: format!("{DRIVER}/mig-mode-pending"),
            value: if gpu.mig_pending { "on" } else { "off" }.to_owned(),
            effect: Effect::NoSchedule,
        }],
    }
}
