//! An entry is what was done for one claim: all that verifying and ending it needs.

use std::{collections::BTreeSet, path::PathBuf};

use divvy_hook::record::{Consumer, Origin, RunDir};
use serde::{Deserialize, Serialize};

use crate::{
    claim::DRIVER,
    emit::{self, Metadata},
    plan::{self, Daemon, Held, Planned, Step, Target},
};

/// What was done for a claim. Says all that undoing it needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Entry {
    /// [`super::VERSION`].
    pub version: u32,
    /// The claim's UID, also the file's name.
    pub uid: String,
    /// The claim's namespace.
    pub namespace: String,
    /// The claim's name.
    pub name: String,
    /// Whose devices these are: a claim may have others of another driver's.
    #[serde(default = "gpu_driver", skip_serializing_if = "is_gpu_driver")]
    pub driver: String,
    /// Who asked for it.
    pub origin: Origin,
    /// [`crate::claim::Claim::digest`] of what was asked for.
    pub asked: String,
    /// The pool that it is on: [`crate::pool::Pool::address`].
    pub gpus: String,
    /// Where its CDI spec is written, absolute.
    pub cdi_dir: PathBuf,
    /// Where its record is written, absolute.
    pub run_dir: PathBuf,
    /// Who may use it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub consumers: Vec<Consumer>,
    /// The boot in which its steps were done: no change of the machine outlives it.
    pub boot: String,
    /// How far it is.
    pub stage: Stage,
    /// Its devices.
    pub devices: Vec<Planned>,
    /// What its containers are told of them, where they are told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Metadata>,
    /// The changes of the machine that are made or about to be, in their order.
    pub steps: Vec<Step>,
}

/// How far a claim is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Stage {
    /// Its steps may or may not be done: being prepared, being ended, or left by a crash. Whoever
    /// finds it with the lock in hand undoes them.
    Started,
    /// It is prepared.
    Done,
}

fn gpu_driver() -> String {
    DRIVER.to_owned()
}

fn is_gpu_driver(driver: &str) -> bool {
    driver == DRIVER
}

// === impl Entry ===

impl Entry {
    /// `namespace/name`
    pub fn title(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// A copy for its record, from which it is made anew where it is damaged: of the claim as it is
    /// prepared, as only then it has a record.
    pub fn copy(&self) -> String {
        let done = Self { stage: Stage::Done, ..self.clone() };
        serde_json::to_string(&done).unwrap_or_default()
    }

    /// The file of its CDI spec.
    pub fn spec_path(&self) -> PathBuf {
        self.cdi_dir.join(emit::spec_name(&self.driver, &self.uid))
    }

    /// The directory of its record.
    pub fn run(&self) -> RunDir {
        RunDir::new(&self.run_dir).of_driver(&self.driver)
    }

    /// The GPUs, or declared devices, on which it has something, or is about to.
    pub fn gpus(&self) -> BTreeSet<String> {
        let steps = self.steps.iter().flat_map(Step::gpus);
        self.devices
            .iter()
            .map(|device| device.target.gpu())
            .chain(steps)
            .map(str::to_owned)
            .collect()
    }

    /// The pieces of hardware that its devices are, or are parts of ([`plan::units`]).
    pub fn units(&self) -> BTreeSet<String> {
        plan::units(self.devices.iter().map(|one| one.device.as_str()))
    }

    /// The GPUs of which it keeps something from others.
    pub(super) fn held_gpus(&self) -> BTreeSet<String> {
        let steps = self.steps.iter().flat_map(Step::gpus).map(str::to_owned);
        self.held().map(|held| held.target.gpu().to_owned()).chain(steps).collect()
    }

    /// What the claim holds, so that no other gets it.
    pub fn held(&self) -> impl Iterator<Item = Held> + '_ {
        let devices = self.devices.iter().filter(|device| !device.admin);
        devices.map(|device| Held {
            claim: self.title(),
            target: device.target.clone(),
            share: device.share.clone(),
            sharing: device.sharing.clone(),
            switched: self.switched(device.target.gpu()),
        })
    }

    fn switched(&self, gpu: &str) -> bool {
        let switches = |step: &Step| matches!(step, Step::MigMode { gpu: of } if of == gpu);
        self.steps.iter().any(switches)
    }

    /// The UUID of the partition that a device of this claim is.
    pub fn partition_of(&self, device: &Planned) -> Option<&str> {
        self.partition(&device.target)
    }

    /// The UUID of the partition that a step of this claim made there, or that was there.
    pub fn partition(&self, target: &Target) -> Option<&str> {
        let Target::Partition { gpu, placement, .. } = target else { return None };
        let made = self.steps.iter().find_map(|step| match step {
            Step::Partition(made) if made.gpu == *gpu && made.placement == *placement => {
                made.uuid.as_deref()
            }
            _ => None,
        });
        let existing = || self.devices.iter().find(|device| device.target == *target);
        made.or_else(|| existing()?.existing.as_deref())
    }

    /// The control daemon of MPS that serves a device of this claim.
    pub fn daemon_of(&self, device: &Planned) -> Option<&Daemon> {
        self.daemons().find(|daemon| !device.admin && daemon.serves(&device.target))
    }

    /// The control daemons of MPS that it has.
    pub fn daemons(&self) -> impl Iterator<Item = &Daemon> {
        self.steps.iter().filter_map(|step| match step {
            Step::Mps(daemon) => Some(daemon),
            Step::Partition(_) | Step::MigMode { .. } | Step::TimeSlice { .. } => None,
        })
    }
}
