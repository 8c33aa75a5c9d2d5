//! A view is a node at one moment with what claims hold of it: what is published of it while it is in
//! use. A device that a claim has is never withdrawn and its counters never change: a scheduler adds
//! up what is taken from the slices of the day (Kubernetes issue 140802). It is tainted instead.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use divvy_cdi::host::ThisHost;
use divvy_hook::record::Origin;

use super::{Attribute, Consumption, CounterSet, Device, Effect, Offer, Slice, Taint, build};
use crate::{
    claim::DRIVER,
    declared::{self, Declaration, DeviceFile},
    gpu::{self, DeviceName, FaultKind, Gpu, GpuError, Gpus, Inventory, Mig, PciAddress},
    health::Known,
    journal::{Entry, Journal, JournalError},
    plan::{Held, Planned, Target},
};

/// A node and what is known of it.
#[derive(Debug, Clone)]
pub struct View {
    /// What is there of GPUs.
    pub inventory: Inventory,
    /// What a file declares instead.
    pub declared: Option<Arc<Declaration>>,
    /// What claims hold of it.
    pub holds: Vec<Hold>,
    /// What is to be known of the health of its GPUs.
    pub health: Health,
}

/// What is to be known of the health of GPUs.
#[derive(Debug, Clone)]
pub struct Health {
    /// On all of a GPU's devices, by its UUID; on a declared device, by its name.
    pub taints: BTreeMap<String, Vec<Taint>>,
    /// Where GPUs were that are there no more, as far as that is known.
    pub gone: BTreeSet<PciAddress>,
    /// What becomes of who has a GPU that is lost or gone.
    pub effect: Effect,
}

/// What a claim holds, and how it came to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold {
    /// What it holds.
    pub held: Held,
    /// The device's name in the pool.
    pub device: String,
    /// It was prepared by hand: no scheduler knows of it.
    pub local: bool,
}

/// Why a node cannot be looked at.
#[derive(Debug, thiserror::Error)]
pub enum ViewError {
    /// Its GPUs.
    #[error(transparent)]
    Gpu(#[from] GpuError),
    /// What claims hold of them.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

/// On what a claim that was prepared by hand holds, in part or whole. The value is the claim's name,
/// where a taint can say it.
const LOCAL: &str = "local-claim";
/// On what lies across a partition that nobody knows of.
const FOREIGN: &str = "foreign-partition";
/// On a device that is no longer there: a claim's, or one of a GPU that does not answer.
const UNAVAILABLE: &str = "unavailable";

// === impl View ===

impl View {
    /// Looks at a node.
    ///
    /// # Errors
    /// When its GPUs or its journal cannot be read.
    pub fn of(gpus: &dyn Gpus, journal: &Journal, health: Health) -> Result<Self, ViewError> {
        // A claim that ends or begins meanwhile still or already holds what is there.
        let mut holds = held(journal)?;
        let inventory = gpus.inventory()?;
        for hold in held(journal)? {
            if !holds.contains(&hold) {
                holds.push(hold);
            }
        }
        Ok(Self { inventory, declared: None, holds, health })
    }

    /// Looks at a file's devices, and whether the host has what they are of.
    ///
    /// # Errors
    /// When the journal cannot be read.
    pub fn of_declared(file: &DeviceFile, journal: &Journal) -> Result<Self, ViewError> {
        let (holds, inventory) = (held(journal)?, Inventory::none(file.node()));
        let (declared, mut health) = (file.now(), Health::default());
        for device in declared.devices.iter().filter(|device| device.absence(&ThisHost).is_some()) {
            let taint = Taint::of(&declared.driver, UNAVAILABLE, "", Effect::NoSchedule);
            health.taints.insert(device.published.name.clone(), vec![taint]);
        }
        Ok(Self { inventory, declared: Some(declared), holds, health })
    }

    /// What of it is more than whole devices for one claim each.
    pub fn asks(&self) -> Offer {
        if let Some(declared) = &self.declared {
            let shared = |device: &declared::Device| device.published.allow_multiple_allocations;
            let shares = declared.devices.iter().any(shared);
            return Offer { shares, partitions: false, taints: true };
        }
        let is_part = |device: gpu::Device<'_>| matches!(device, gpu::Device::Partition { .. });
        let partitions = self.inventory.devices().any(is_part);
        Offer { shares: self.inventory.policy.shares, partitions, taints: true }
    }

    /// The slices of the node's pool. `before` are those that were published last: what a claim has
    /// and the node has no more is kept from there.
    pub fn slices(&self, offer: Offer, before: &[Slice]) -> Vec<Slice> {
        let inventory = self.unswitched();
        let mut sets = build::sets(&inventory, offer);
        let mut devices: Vec<Device> = build::devices(&inventory, offer)
            .map(|(device, published)| self.tainted(&device, published))
            .collect();
        let declared = self.declared.iter().flat_map(|declared| declared.published());
        devices.extend(declared.map(|device| self.declared(device, offer)));
        let there: BTreeSet<String> = devices.iter().map(|device| device.name.clone()).collect();
        for mut lost in self.lost(&there, before) {
            if !self.consumes_still(&lost, &sets) {
                lost.consumes_counters.clear();
            }
            let known = |name: &str| sets.iter().any(|set| set.name == name);
            let consumed = lost.consumes_counters.iter().map(|of| of.counter_set.as_str());
            let missing: Vec<&str> = consumed.filter(|name| !known(name)).collect();
            let kept = before
                .iter()
                .flat_map(Slice::counter_sets)
                .filter(|set| missing.contains(&set.name.as_str()));
            sets.extend(kept.cloned().collect::<Vec<_>>());
            let taint = self.taint(UNAVAILABLE, "", self.effect(&lost));
            lost.taints.retain(|other| other.key != taint.key);
            lost.taints.push(taint);
            devices.push(lost);
        }
        if !offer.taints {
            devices.retain(|device| device.taints.is_empty() || self.is_held(&device.name));
            devices.iter_mut().for_each(|device| device.taints.clear());
        }
        build::split(&sets, devices)
    }

    /// A declared device with what keeps it from claims, as far as the server can say it.
    fn declared(&self, mut device: Device, offer: Offer) -> Device {
        if !offer.shares {
            device.allow_multiple_allocations = false;
            device.capacity.values_mut().for_each(|capacity| capacity.request_policy = None);
        }
        let local = self.holds.iter().find(|hold| hold.local && hold.device == device.name);
        let taint =
            local.map(|hold| self.taint(LOCAL, &label(&hold.held.claim), Effect::NoSchedule));
        let ill = self.health.taints.get(&device.name);
        device.taints.extend(taint.into_iter().chain(ill.into_iter().flatten().cloned()));
        device
    }

    /// A taint of the driver's domain.
    fn taint(&self, name: &str, value: &str, effect: Effect) -> Taint {
        let driver = self.declared.as_ref().map_or(DRIVER, |declared| &declared.driver);
        Taint::of(driver, name, value, effect)
    }

    /// The inventory with those GPUs as not in MIG mode that a claim switched: they are given whole
    /// again when the last such claim ends, and until then the counters say that they are not. Where
    /// none is switched any more, nothing would say that: there they are what they are.
    fn unswitched(&self) -> Inventory {
        let switched = |gpu: &Gpu| {
            let by = |hold: &Hold| hold.held.switched && hold.held.target.gpu() == gpu.uuid;
            self.holds.iter().any(by)
        };
        let mut inventory = self.inventory.clone();
        let switches = inventory.policy.switch_mig;
        for gpu in &mut inventory.gpus {
            if switches && matches!(gpu.mig, Mig::On(_)) && switched(gpu) {
                (gpu.mig, gpu.mig_pending) = (Mig::Off, false);
            }
        }
        inventory
    }

    /// A device with what keeps it from claims beside what it is.
    fn tainted(&self, device: &gpu::Device<'_>, mut published: Device) -> Device {
        let target = Target::of(device);
        let mut overlapping = self.holds.iter().filter(|hold| hold.held.target.overlaps(&target));
        let is_free = overlapping.clone().next().is_none();
        if let Some(hold) = overlapping.find(|hold| hold.local) {
            let value = label(&hold.held.claim);
            published.taints.push(Taint::ours(LOCAL, &value, Effect::NoSchedule));
        } else if is_free && self.is_blocked(device) {
            published.taints.push(Taint::ours(FOREIGN, "", Effect::NoSchedule));
        }
        let health = self.health.taints.get(&device.gpu().uuid);
        published.taints.extend(health.into_iter().flatten().cloned());
        published
    }

    /// True where a partition lies that is not the device, and is no claim's.
    fn is_blocked(&self, device: &gpu::Device<'_>) -> bool {
        let gpu::Device::Partition { gpu, profile, placement } = device else { return false };
        // Of the inventory itself: here a switched GPU has its partitions.
        let gpu = self.inventory.gpu(&gpu.uuid).unwrap_or(gpu);
        gpu.partition(&profile.name, *placement).is_none()
            && gpu.in_the_way(profile, *placement).is_some()
    }

    /// What the node has no more, as it was published last: what claims of the cluster have, and all of a GPU
    /// that does not answer. A claim may be given a device, and nobody here knows of it yet.
    fn lost(&self, there: &BTreeSet<String>, before: &[Slice]) -> Vec<Device> {
        let held: BTreeSet<&str> = self.of_cluster().map(|hold| hold.device.as_str()).collect();
        let lost = |device: &&Device| {
            let is_kept = held.contains(device.name.as_str()) || self.is_out(&device.name);
            is_kept && !there.contains(&device.name)
        };
        before.iter().flat_map(Slice::devices).filter(lost).cloned().collect()
    }

    /// True for a device of a GPU that does not answer, or is gone.
    fn is_out(&self, device: &str) -> bool {
        let Some(pci) = pci(device) else { return false };
        let answers = self.inventory.gpus.iter().any(|gpu| gpu.pci == pci);
        !answers && (self.inventory.fault(pci).is_some() || self.health.gone.contains(&pci))
    }

    /// What becomes of who has a device that is not there: it may only be in another MIG mode, or slow.
    fn effect(&self, lost: &Device) -> Effect {
        let pci = pci(&lost.name).filter(|_| self.is_out(&lost.name));
        let is_broken = pci.is_some_and(|pci| {
            let fault = self.inventory.fault(pci);
            fault.is_none_or(|fault| fault.kind == FaultKind::Lost)
        });
        if is_broken { self.health.effect } else { Effect::NoSchedule }
    }

    /// False where another GPU sits in the place of the one that the device is of: nothing is taken from that.
    fn consumes_still(&self, lost: &Device, sets: &[CounterSet]) -> bool {
        let there =
            pci(&lost.name).and_then(|pci| self.inventory.gpus.iter().find(|gpu| gpu.pci == pci));
        let of = lost.attributes.get("parentUUID").or_else(|| lost.attributes.get("uuid"));
        let is_same = |gpu: &Gpu| of.is_none_or(|of| *of == Attribute::String(gpu.uuid.clone()));
        let has = |set: &CounterSet, of: &Consumption| {
            of.counters.keys().all(|counter| set.counters.contains_key(counter))
        };
        let fits = |of: &Consumption| {
            let set = sets.iter().find(|set| set.name == of.counter_set);
            set.is_none_or(|set| has(set, of))
        };
        there.is_none_or(is_same) && lost.consumes_counters.iter().all(fits)
    }

    fn is_held(&self, device: &str) -> bool {
        self.of_cluster().any(|hold| hold.device == device)
    }

    fn of_cluster(&self) -> impl Iterator<Item = &Hold> {
        self.holds.iter().filter(|hold| !hold.local)
    }
}

/// What the claims of a journal hold. Of a damaged entry it is not known: it is made anew soon.
fn held(journal: &Journal) -> Result<Vec<Hold>, JournalError> {
    let entries = journal.entries()?.into_iter().flatten();
    Ok(entries.flat_map(|entry| Hold::of(&entry).collect::<Vec<_>>()).collect())
}

/// A claim's `namespace/name` as a label's value; empty where it is none.
fn label(claim: &str) -> String {
    let value = claim.replacen('/', ".", 1);
    if super::limit::is_label_value(&value) { value } else { String::new() }
}

/// Where the GPU of a device sits.
fn pci(device: &str) -> Option<PciAddress> {
    device.parse().ok().map(|name: DeviceName| name.pci())
}

// === impl Health ===

impl Default for Health {
    fn default() -> Self {
        Self { taints: BTreeMap::new(), gone: BTreeSet::new(), effect: Effect::NoSchedule }
    }
}

impl From<&Known> for Health {
    fn from(known: &Known) -> Self {
        Self { taints: known.taints(), gone: known.gone(), effect: known.effect }
    }
}

// === impl ViewError ===

impl ViewError {
    /// Stable, for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Gpu(error) => error.code(),
            Self::Journal(error) => error.code(),
        }
    }
}

// === impl Hold ===

impl Hold {
    /// What the claim of a journal's entry holds.
    pub fn of(entry: &Entry) -> impl Iterator<Item = Self> + '_ {
        let local = entry.origin == Origin::Local;
        let devices = entry.devices.iter().filter(|device| !device.admin);
        let name = move |(held, device): (Held, &Planned)| Self {
            held,
            device: device.device.clone(),
            local,
        };
        entry.held().zip(devices).map(name)
    }
}
