//! The builder: an inventory's slices. It does no input or output, and the order is that of first
//! fit: GPUs by PCI address, on each the smallest profile first, of a profile the lowest place.

use std::collections::BTreeMap;

use super::{Consumption, CounterSet, Device, Effect, Offer, Slice, Taint, describe};
use crate::{
    gpu::{self, Gpu, Inventory, Mig, Placement, model::has_media_extensions},
    quantity::Quantity,
};

/// The most counter sets of a slice, in Kubernetes.
pub(super) const MAX_SETS: usize = 8;
/// The most devices of a slice, and of one in which a device consumes counters or is tainted.
pub(super) const MAX_DEVICES: usize = 128;
pub(super) const MAX_LINKED_DEVICES: usize = 64;

/// The slices of a node's pool, as nothing of it were held.
pub fn slices(inventory: &Inventory, offer: Offer) -> Vec<Slice> {
    let devices = devices(inventory, offer).map(|(_, device)| device).collect();
    split(&sets(inventory, offer), devices)
}

/// The devices, as they are and as others see them.
pub(super) fn devices(
    inventory: &Inventory,
    offer: Offer,
) -> impl Iterator<Item = (gpu::Device<'_>, Device)> {
    let offered =
        move |device: &gpu::Device<'_>| offer.partitions || matches!(device, gpu::Device::Gpu(_));
    let published = move |device| (device, published(&device, inventory, offer));
    inventory.devices().filter(offered).map(published)
}

/// The counters of the GPUs that have partitions.
pub(super) fn sets(inventory: &Inventory, offer: Offer) -> Vec<CounterSet> {
    let partitioned = |gpu: &&Gpu| matches!(gpu.mig, Mig::On(_)) || inventory.switches(gpu);
    let gpus = inventory.gpus.iter().filter(|_| offer.partitions);
    // A set without a counter is none, and would make the whole slice invalid.
    let sets = gpus.filter(partitioned).map(counter_set);
    sets.filter(|set| !set.counters.is_empty()).collect()
}

/// Slices of as many as one may have: counter sets first, then the devices that consume them. A node
/// without a device has one empty slice: the driver is up.
pub(crate) fn split(sets: &[CounterSet], devices: Vec<Device>) -> Vec<Slice> {
    let linked =
        |device: &Device| !device.consumes_counters.is_empty() || !device.taints.is_empty();
    let most = if devices.iter().any(linked) { MAX_LINKED_DEVICES } else { MAX_DEVICES };
    let sets = sets.chunks(MAX_SETS).map(|sets| Slice::SharedCounters(sets.to_vec()));
    let mut slices: Vec<Slice> = sets.collect();
    let mut devices = devices.into_iter().peekable();
    while devices.peek().is_some() {
        slices.push(Slice::Devices(devices.by_ref().take(most).collect()));
    }
    if slices.is_empty() {
        slices.push(Slice::Devices(Vec::new()));
    }
    slices
}

/// A device as others see it.
fn published(device: &gpu::Device<'_>, inventory: &Inventory, offer: Offer) -> Device {
    let gpu = device.gpu();
    let consumes = match device {
        // Whole it has what any partition would.
        gpu::Device::Gpu(_) => (offer.partitions && inventory.switches(gpu)).then(|| {
            let CounterSet { name, counters } = counter_set(gpu);
            Consumption { counter_set: name, counters }
        }),
        gpu::Device::Partition { profile, placement, .. } => {
            Some(consumption(gpu, profile, *placement))
        }
    };
    let is_shared = describe::is_shared(device, inventory, offer);
    Device {
        name: device.name().to_string(),
        attributes: describe::attributes(device, inventory),
        capacity: describe::capacity(device, is_shared),
        consumes_counters: consumes.filter(|of| !of.counters.is_empty()).into_iter().collect(),
        taints: taints(gpu),
        allow_multiple_allocations: is_shared,
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

/// A GPU whose MIG mode changes at the next reset is not what it will be then: whoever gets it now
/// may lose it.
fn taints(gpu: &Gpu) -> Vec<Taint> {
    let mig = matches!(gpu.mig, Mig::On(_));
    let value = if gpu.mig_pending { "on" } else { "off" };
    let taint = || Taint::ours("mig-mode-pending", value, Effect::NoSchedule);
    (mig != gpu.mig_pending).then(taint).into_iter().collect()
}
