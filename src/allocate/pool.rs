//! A pool is the devices of a node that claims are given, with what is taken of them.

use std::collections::BTreeMap;

use crate::{
    claim::DRIVER,
    declared::Declaration,
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
        let mut pool = Self::empty(DRIVER, &inventory.node);
        publish::slices(inventory, Offer::default()).into_iter().for_each(|slice| pool.add(slice));
        pool.hold(inventory, held);
        pool
    }

    /// What a node's file declares, and what claims hold of it.
    pub(super) fn declared(node: &str, declaration: &Declaration, held: &[Held]) -> Self {
        let mut pool = Self::empty(&declaration.driver, node);
        pool.devices = declaration.published();
        for device in declaration.published() {
            let target = Target::Declared { device: device.name.clone() };
            let of_it = || held.iter().filter(|held| held.target == target);
            let is_whole =
                |held: &&Held| held.share.is_none() || !device.allow_multiple_allocations;
            if let Some(by) = of_it().find(is_whole) {
                pool.taken.insert(device.name.clone(), format!("held by claim {}", by.claim));
            }
            pool.consume(&device, of_it());
        }
        pool
    }

    fn empty(driver: &str, name: &str) -> Self {
        let (driver, name) = (driver.to_owned(), name.to_owned());
        let (devices, counters, taken, consumed) = Default::default();
        Self { driver, name, devices, counters, taken, consumed }
    }

    /// Takes what claims hold of a node's devices. The counters of what they hold are not
    /// subtracted: whatever overlaps it is taken, which says by whom.
    pub(super) fn hold(&mut self, inventory: &Inventory, held: &[Held]) {
        let shared: BTreeMap<String, Device> = self
            .devices
            .iter()
            .filter(|device| device.allow_multiple_allocations)
            .map(|device| (device.name.clone(), device.clone()))
            .collect();
        for device in inventory.devices() {
            let name = device.name().to_string();
            let published = shared.get(&name);
            if let Some(by) = plan::obstacle(&device, held, published.is_some()) {
                self.taken.insert(name, by.strip_prefix("is ").unwrap_or(&by).to_owned());
                continue;
            }
            let Some(published) = published else { continue };
            let target = Target::of(&device);
            self.consume(published, held.iter().filter(|held| held.target == target));
        }
    }

    /// Takes from a device the shares of it that claims have.
    fn consume<'h>(&mut self, device: &Device, held: impl Iterator<Item = &'h Held>) {
        let consumed = self.consumed.entry(device.name.clone()).or_default();
        for (name, amount) in held.filter_map(|held| held.share.as_ref()).flat_map(|s| &s.consumed)
        {
            let Some((own, _)) = named(&device.capacity, name, &self.driver) else { continue };
            let sum = consumed.entry(own.to_owned()).or_insert(Quantity::ZERO);
            *sum = sum.plus(*amount);
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
