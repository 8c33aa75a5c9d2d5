//! A plan says what a claim's devices are on this node and which steps make them ready. It is made
//! from the claim, the inventory and what other claims hold, and changes nothing.

mod error;
mod mps;
mod overlap;
mod share;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::{
    claim::{Allocation, Claim, Configured, Given, Kind, Share, Sharing},
    gpu::{
        Device, DeviceName, Interval, Inventory, MadePartition, Mig, Partition, PciAddress,
        Placement,
    },
};

pub use error::PlanError;
pub use mps::{Daemon, takes_mps_limits};
pub use overlap::{Held, obstacle};
pub use share::whole_memory;

/// What is to be prepared for a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The claim's devices, in the order of its allocation.
    pub devices: Vec<Planned>,
    /// What must be done, in order.
    pub steps: Vec<Step>,
}

/// A device of a claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Planned {
    /// `request` or `request/subrequest`.
    pub request: String,
    /// Pool.
    pub pool: String,
    /// Name in the pool.
    pub device: String,
    /// What it is on this node.
    pub target: Target,
    /// How the claim's processes share it.
    pub sharing: Sharing,
    /// Its containers render and show with it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub display: bool,
    /// UUID of the partition that it is, where somebody else made it: it is neither made nor ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub existing: Option<String>,
    /// For looking on: takes nothing away from others.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub admin: bool,
    /// Which part of it, where several claims may have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<Share>,
}

/// The part of the node that a device is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum Target {
    /// A whole GPU, by UUID.
    Gpu {
        /// Its UUID.
        gpu: String,
    },
    /// The partition of a GPU at a place.
    Partition {
        /// UUID of the GPU.
        gpu: String,
        /// Profile, by name.
        profile: String,
        /// Where.
        placement: Placement,
    },
    /// A declared device.
    Declared {
        /// Its name.
        device: String,
    },
}

/// A change of the machine, with what is needed to undo it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum Step {
    /// Switches MIG mode on; undone by switching it off, once the GPU has no partition any more.
    MigMode {
        /// UUID of the GPU.
        gpu: String,
    },
    /// Makes a partition; undone by ending it.
    Partition(MadePartition),
    /// Sets a GPU's time slice; undone by setting it as it was.
    TimeSlice {
        /// UUID of the GPU.
        gpu: String,
        /// What it is set to.
        interval: Interval,
        /// What it was: looked up when it is about to be set.
        before: Interval,
    },
    /// Starts a control daemon of MPS, with its GPUs to itself; undone by ending it, and setting
    /// their compute modes as they were.
    Mps(Daemon),
}

/// Plans an allocated claim.
///
/// # Errors
/// When a device is not there, not free, or not to be had in that way.
pub fn plan(
    claim: &Claim,
    allocation: &Allocation,
    inventory: &Inventory,
    held: &[Held],
) -> Result<Plan, PlanError> {
    if allocation.results.is_empty() {
        let driver = crate::claim::DRIVER.to_owned();
        return Err(PlanError::NotOurs { claim: claim.title(), driver });
    }
    let mut plan = Plan { devices: Vec::new(), steps: Vec::new() };
    let mut groups = Vec::new();
    for given in &allocation.results {
        let device = find(claim, given, inventory)?;
        let configured = configured(claim, given, &device, allocation)?;
        let sharing = configured.map_or(Sharing::Exclusive, |found| found.sharing.clone());
        let planned = Planned {
            request: given.request.clone(),
            pool: given.pool.clone(),
            device: given.device.clone(),
            target: Target::of(&device),
            existing: existing(&device, inventory),
            sharing,
            display: configured.is_some_and(|found| found.display),
            admin: given.admin,
            share: given.share.clone(),
        };
        let overlap =
            |by| PlanError::Overlap { claim: claim.title(), device: given.device.clone(), by };
        if !planned.admin {
            share::check(claim, &planned, device.gpu())?;
            if let Some(by) = obstacle(&device, held, planned.share.is_some())
                .or_else(|| share::obstacle(&planned, device.gpu(), held, &plan.devices))
            {
                return Err(overlap(by));
            }
            let mut earlier = plan.devices.iter().filter(|earlier| !earlier.admin);
            match earlier.find(|earlier| earlier.target.overlaps(&planned.target)) {
                // Two requests of a claim may be the same GPU in turns: it is one claim's. Or each
                // a share of it.
                Some(same) if may_share(same, &planned) => {
                    plan.devices.push(planned);
                    continue;
                }
                Some(other) => {
                    let request = &other.request;
                    let by = format!("is given to request {request} of the claim already");
                    return Err(overlap(by));
                }
                None => {}
            }
        }
        plan.steps.extend(switch(&device, held, &plan.steps));
        plan.steps.extend(step(&planned, &device));
        mps::join(&mut groups, configured, &planned, device.gpu());
        plan.devices.push(planned);
    }
    groups.iter().try_for_each(|group| group.check(claim))?;
    // Last: partitions have their UUIDs by then.
    plan.steps.extend(groups.iter().enumerate().map(|(index, group)| group.step(claim, index)));
    Ok(plan)
}

/// Where the GPUs of these devices sit.
pub fn addresses<'a>(devices: impl IntoIterator<Item = &'a str>) -> BTreeSet<PciAddress> {
    let address = |device: &str| Some(device.parse::<DeviceName>().ok()?.pci());
    devices.into_iter().filter_map(address).collect()
}

/// The pieces of hardware that devices of these names are, or are parts of: where a GPU sits, or the
/// name of a declared device.
pub fn units<'a>(devices: impl IntoIterator<Item = &'a str>) -> BTreeSet<String> {
    let unit = |device: &str| match device.parse::<DeviceName>() {
        Ok(name) => name.pci().to_string(),
        Err(()) => device.to_owned(),
    };
    devices.into_iter().map(unit).collect()
}

/// The device that was given, if the node can give it.
fn find<'a>(
    claim: &Claim,
    given: &Given,
    inventory: &'a Inventory,
) -> Result<Device<'a>, PlanError> {
    let (claim, device, node) = (claim.title(), given.device.clone(), inventory.node.clone());
    if given.pool != node {
        return Err(PlanError::OtherNode { claim, device, pool: given.pool.clone(), node });
    }
    let known = given.device.parse::<DeviceName>().ok();
    let fault = known.as_ref().and_then(|name| inventory.fault(name.pci()));
    if let Some(fault) = fault {
        return Err(PlanError::Fault { claim, device, fault: fault.clone() });
    }
    let Some(found) = known.and_then(|name| inventory.device(&name)) else {
        let mut offered: Vec<_> =
            inventory.devices().map(|device| device.name().to_string()).collect();
        offered.truncate(4);
        return Err(PlanError::NoDevice { claim, device, node, offered });
    };
    let why = match (&found, &found.gpu().mig) {
        (Device::Gpu(_), Mig::On(_)) if !given.admin => {
            "the GPU is in MIG mode, and only its partitions can be given"
        }
        (Device::Partition { gpu, .. }, Mig::Off) if inventory.switches(gpu) => return Ok(found),
        (Device::Partition { gpu, .. }, Mig::Off) if gpu.may_set_mig(true).is_ok() => {
            "the GPU is not in MIG mode; with --switch-mig divvy switches it on"
        }
        (Device::Partition { .. }, Mig::Off) => {
            "the GPU is not in MIG mode, and before Hopper switching it on takes a reset: \
             nvidia-smi -mig 1, and nvidia-smi --gpu-reset while nothing uses the GPU"
        }
        (Device::Partition { .. }, Mig::Unsupported) => "the GPU has no MIG mode",
        (Device::Partition { .. }, _) if given.admin => {
            "adminAccess to a MIG device comes with a later version"
        }
        _ => return Ok(found),
    };
    Err(PlanError::MigMode { claim, device, why })
}

/// The configuration that counts: the last one that names the request or, naming none, is for
/// devices of this kind. The claim's stand after the classes'.
fn configured<'a>(
    claim: &Claim,
    given: &Given,
    device: &Device<'_>,
    allocation: &'a Allocation,
) -> Result<Option<&'a Configured>, PlanError> {
    let takes = Kind::of(device);
    let counts = allocation.config.iter().rev().find(|one| one.is_for(&given.request, takes));
    match counts {
        Some(Configured { kind, place, .. }) if *kind != takes => Err(PlanError::WrongKind {
            claim: claim.title(),
            place: place.clone(),
            kind: *kind,
            device: given.device.clone(),
            request: given.request.clone(),
            takes,
        }),
        counts => Ok(counts),
    }
}

fn may_share(one: &Planned, other: &Planned) -> bool {
    one.target == other.target
        && one.sharing == other.sharing
        && one.share.is_some() == other.share.is_some()
        && matches!(one.sharing, Sharing::TimeSlicing(_) | Sharing::Mps(_))
}

/// The partition that somebody made where this device is, unless it is to be adopted.
fn existing(device: &Device<'_>, inventory: &Inventory) -> Option<String> {
    let there = there(device).filter(|_| !inventory.policy.adopt_mig)?;
    Some(there.uuid.clone())
}

fn there<'a>(device: &Device<'a>) -> Option<&'a Partition> {
    match device {
        Device::Partition { gpu, profile, placement } => gpu.partition(&profile.name, *placement),
        Device::Gpu(_) => None,
    }
}

/// The switch of MIG mode that a partition needs, or that another claim did: whoever leaves the GPU
/// last undoes it.
fn switch(device: &Device<'_>, held: &[Held], steps: &[Step]) -> Option<Step> {
    let Device::Partition { gpu, .. } = device else { return None };
    let switched = |held: &Held| held.switched && held.target.gpu() == gpu.uuid;
    let step = Step::MigMode { gpu: gpu.uuid.clone() };
    let needed = gpu.mig == Mig::Off || held.iter().any(switched);
    (needed && !steps.contains(&step)).then_some(step)
}

fn step(planned: &Planned, device: &Device<'_>) -> Option<Step> {
    if planned.admin || planned.existing.is_some() {
        return None;
    }
    match (&planned.target, &planned.sharing) {
        (Target::Partition { gpu, profile, placement }, _) => {
            Some(Step::Partition(MadePartition {
                gpu: gpu.clone(),
                profile: profile.clone(),
                placement: *placement,
                // There already: adopted.
                uuid: there(device).map(|there| there.uuid.clone()),
            }))
        }
        (Target::Gpu { gpu }, Sharing::TimeSlicing(interval)) => {
            let (gpu, interval) = (gpu.clone(), *interval);
            Some(Step::TimeSlice { gpu, interval, before: Interval::Default })
        }
        (Target::Gpu { .. }, Sharing::Exclusive | Sharing::Mps(_))
        | (Target::Declared { .. }, _) => None,
    }
}

// === impl Target ===

impl Target {
    /// The part of the node that a device is.
    pub fn of(device: &Device<'_>) -> Self {
        let gpu = device.gpu().uuid.clone();
        match device {
            Device::Gpu(_) => Self::Gpu { gpu },
            Device::Partition { profile, placement, .. } => Self::Partition {
                gpu,
                profile: profile.name.clone().into_owned(),
                placement: *placement,
            },
        }
    }

    /// UUID of the GPU that it is, or is a part of; the name of a declared device. It is what is locked
    /// and indexed.
    pub fn gpu(&self) -> &str {
        match self {
            Self::Gpu { gpu } | Self::Partition { gpu, .. } => gpu,
            Self::Declared { device } => device,
        }
    }
}

// === impl Step ===

impl Step {
    /// UUIDs of the GPUs that it changes.
    pub fn gpus(&self) -> Vec<&str> {
        match self {
            Self::Partition(made) => vec![&made.gpu],
            Self::MigMode { gpu } | Self::TimeSlice { gpu, .. } => vec![gpu],
            Self::Mps(daemon) => daemon.targets.iter().map(Target::gpu).collect(),
        }
    }
}

#[cfg(test)]
mod tests;
