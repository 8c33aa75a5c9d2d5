//! A group is the devices of a claim that one configuration shares by MPS: one control daemon serves
//! them, and CUDA numbers them in its clients by their place in the group.

use std::{collections::BTreeMap, path::PathBuf};

use serde::{Deserialize, Serialize};

use super::{PlanError, Planned, Step, Target};
use crate::{
    claim::{Claim, Configured, DeviceKey, MpsSettings, Sharing},
    gpu::{ComputeMode, Gpu},
    mps::{Running, Setup},
};

/// A control daemon: what it is to be, and what it came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Daemon {
    /// Its name.
    pub name: String,
    /// Whether it serves the shares that several claims have of its one GPU.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub common: bool,
    /// What it serves, as its clients number it.
    pub targets: Vec<Target>,
    /// What it is told.
    pub settings: MpsSettings,
    /// UUIDs of its targets: looked up when it is about to start, as partitions get theirs late.
    #[serde(default)]
    pub devices: Vec<String>,
    /// The compute modes of its GPUs as they were: looked up when they are about to be set.
    #[serde(default)]
    pub modes: BTreeMap<String, ComputeMode>,
    /// Where its directories are, absolute.
    #[serde(default)]
    pub dir: PathBuf,
    /// It, once it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<Running>,
}

/// Devices that one control daemon serves.
#[derive(Debug)]
pub(super) struct Group<'a> {
    configured: &'a Configured,
    settings: &'a MpsSettings,
    /// In the order of the allocation, each once.
    targets: Vec<Target>,
    /// The compute capability of the oldest.
    compute: (u32, u32),
    /// The GPU of which the claim has a share: its daemon serves that of every claim.
    common: Option<&'a str>,
}

/// What the name of a daemon of several claims begins with, before its GPU's UUID. No UID of a claim
/// has its underscore, so that no claim's own daemon is taken for it.
const COMMON: &str = "shared_";

/// From here on MPS has its limits, and `multiUser`.
const VOLTA: (u32, u32) = (7, 0);

/// True for a GPU whose clients of MPS can be limited.
pub fn takes_mps_limits(gpu: &Gpu) -> bool {
    gpu.compute >= VOLTA
}

/// Puts a device that is shared by MPS into the group of its configuration; a share of a GPU into
/// one of its own, as other claims have another configuration.
pub(super) fn join<'a>(
    groups: &mut Vec<Group<'a>>,
    configured: Option<&'a Configured>,
    planned: &Planned,
    gpu: &'a Gpu,
) {
    let Some(configured) = configured.filter(|_| !planned.admin) else { return };
    let Sharing::Mps(settings) = &configured.sharing else { return };
    let target = planned.target.clone();
    let is_share = planned.share.is_some() && matches!(target, Target::Gpu { .. });
    let common = is_share.then_some(gpu.uuid.as_str());
    let of_it = |group: &&mut Group<'_>| {
        std::ptr::eq(group.configured, configured) && group.common == common
    };
    match groups.iter_mut().find(of_it) {
        Some(group) => {
            group.targets.push(target);
            group.compute = group.compute.min(gpu.compute);
        }
        None => {
            let (targets, compute) = (vec![target], gpu.compute);
            groups.push(Group { configured, settings, targets, compute, common });
        }
    }
}

// === impl Group ===

impl Group<'_> {
    /// Refuses a limit for a device that is not in the group, and what its GPUs cannot do.
    pub(super) fn check(&self, claim: &Claim) -> Result<(), PlanError> {
        if self.compute < VOLTA && *self.settings != MpsSettings::default() {
            return Err(PlanError::OldForMps {
                claim: claim.title(),
                place: self.configured.place.clone(),
                settings: self.settings.to_string(),
                compute: self.compute,
            });
        }
        let is_there = |key: &DeviceKey| match key {
            DeviceKey::Index(index) => {
                usize::try_from(*index).is_ok_and(|index| index < self.targets.len())
            }
            DeviceKey::Uuid(uuid) => self.targets.iter().any(|target| target.uuid() == Some(uuid)),
        };
        match self.settings.pinned_memory_per_device.keys().find(|key| !is_there(key)) {
            Some(key) => Err(PlanError::NoSuchDevice {
                claim: claim.title(),
                place: self.configured.place.clone(),
                key: key.to_string(),
                there: self.there(),
            }),
            None => Ok(()),
        }
    }

    /// Starts the daemon of the group that has this place among the claim's.
    pub(super) fn step(&self, claim: &Claim, index: usize) -> Step {
        Step::Mps(Daemon {
            name: match self.common {
                Some(gpu) => format!("{COMMON}{gpu}"),
                None => format!("{}-{index}", claim.uid),
            },
            common: self.common.is_some(),
            targets: self.targets.clone(),
            settings: self.settings.clone(),
            devices: Vec::new(),
            modes: BTreeMap::new(),
            dir: PathBuf::new(),
            running: None,
        })
    }

    /// The keys that there are: `0 (GPU-…), 1 (GPU-…)`.
    fn there(&self) -> String {
        let key = |(index, target): (usize, &Target)| match target.uuid() {
            Some(uuid) => format!("{index} ({uuid})"),
            None => format!("{index} (a partition, which has no UUID before it is made)"),
        };
        self.targets.iter().enumerate().map(key).collect::<Vec<_>>().join(", ")
    }
}

// === impl Daemon ===

impl Daemon {
    /// How it is set up, of the devices that are known.
    pub fn setup(&self) -> Setup {
        let limit = |(index, uuid): (u32, &String)| {
            Some((uuid.clone(), self.settings.pinned_memory_of(index, uuid)?))
        };
        Setup {
            name: self.name.clone(),
            devices: self.devices.clone(),
            active_thread_percentage: self.settings.active_thread_percentage,
            pinned_memory: (0..).zip(&self.devices).filter_map(limit).collect(),
            multi_user: self.settings.multi_user,
            modes: self.modes.clone(),
        }
    }

    /// The claim whose daemon has this name; where it is that of several, a name that none has.
    pub fn owner(name: &str) -> Option<&str> {
        match name.starts_with(COMMON) {
            true => Some(name),
            false => Some(name.rsplit_once('-')?.0),
        }
    }

    /// True when it serves what this device is.
    pub fn serves(&self, target: &Target) -> bool {
        self.targets.contains(target)
    }

    /// The GPUs that it has to itself: the compute mode is that of whole GPUs alone.
    pub fn whole_gpus(&self) -> impl Iterator<Item = &str> {
        self.targets.iter().filter_map(Target::uuid)
    }
}

// === impl Target ===

impl Target {
    /// Its UUID, where that is known before it is prepared.
    fn uuid(&self) -> Option<&str> {
        match self {
            Self::Gpu { gpu } => Some(gpu),
            Self::Partition { .. } | Self::Declared { .. } => None,
        }
    }
}
