//! A pool is the devices of a node that claims are given, with what is taken of them.

use std::collections::BTreeMap;

use crate::{
    claim::DRIVER,
    gpu::Inventory,
    plan::{self, Held, Target},
    publish::{self, Device, Offer, Slice},
    quantity::Quantity,
};

/// A driver's devices on a node.
#[derive(Debug, Clone)]
pub(super) struct Pool {
    /// Whose devices they are.
    pub(super) driver: String,
    /// The node's name.
    pub(super) name: String,
    /// The devices, in the order in which they are tried.
    pub(super) devices: Vec<Device>,
    /// What there is of each counter of each set.
    pub(super) counters: BTreeMap<(String, String), Quantity>,
    /// Devices that cannot be had, and why: `held by claim …`. Who only looks on has them still.
    pub(super) taken: BTreeMap<String, String>,
    /// What other claims consume of devices that several may have.
    pub(super) consumed: BTreeMap<String, BTreeMap<String, Quantity>>,
}

// === impl Pool ===

impl Pool {
    /// What a node publishes, and what claims hold of it.
    pub(super) fn of(inventory: &Inventory, held: &[Held]) -> Self {
        let mut pool = Self {
            driver: DRIVER.to_owned(),
            name: inventory.node.clone(),
            devices: Vec::new(),
            counters: BTreeMap::new(),
            taken: BTreeMap::new(),
            consumed: BTreeMap::new(),
        };
        publish::slices(inventory, Offer::default()).into_iter().for_each(|slice| pool.add(slice));
        pool.hold(inventory, held);
        pool
    }

    /// Takes what claims hold of a node's devices. The counters of what they hold are not
    /// subtracted: whatever overlaps it is taken, which says by whom.
    pub(super) fn hold(&mut self, inventory: &Inventory, held: &[Held]) {
        let shared: BTreeMap<&str, &Device> = self
            .devices
            .iter()
            .filter(|device| device.allow_multiple_allocations)
            .map(|device| (device.name.as_str(), device))
            .collect();
        for device in inventory.devices() {
            let name = device.name().to_string();
            let published = shared.get(name.as_str());
            if let Some(by) = plan::obstacle(&device, held, published.is_some()) {
                self.taken.insert(name, by.strip_prefix("is ").unwrap_or(&by).to_owned());
                continue;
            }
            let Some(published) = published else { continue };
            let target = Target::of(&device);
            let consumed = self.consumed.entry(name).or_default();
            let shares = held.iter().filter(|held| held.target == target);
            for (name, amount) in
                shares.filter_map(|held| held.share.as_ref()).flat_map(|s| &s.consumed)
            {
                let Some((own, _)) = named(&published.capacity, name, &self.driver) else {
                    continue;
                };
                let sum = consumed.entry(own.to_owned()).or_insert(Quantity::ZERO);
                *sum = sum.plus(*amount);
            }
        }
    }

    pub(super) fn add(&mut self, slice: Slice) {
        match slice {
            Slice::Devices(devices) => self.devices.extend(devices),
            Slice::SharedCounters(sets) => {
                for set in sets {
                    let name = |counter| (set.name.clone(), counter);
                    self.counters.extend(
                        set.counters.into_iter().map(|(counter, value)| (name(counter), value)),
                    );
                }
            }
        }
    }
}

/// The value under a name with a domain, which the driver's own may stand without; and of one without,
/// which may stand with it.
pub(super) fn named<'a, T>(
    values: &'a BTreeMap<String, T>,
    name: &str,
    driver: &str,
) -> Option<(&'a str, &'a T)> {
    let other = match name.split_once('/') {
        Some((domain, id)) => (domain == driver).then(|| id.to_owned()),
        None => Some(format!("{driver}/{name}")),
    };
    let found = values.get_key_value(name);
    let found = found.or_else(|| other.and_then(|other| values.get_key_value(&other)));
    found.map(|(name, value)| (name.as_str(), value))
}
