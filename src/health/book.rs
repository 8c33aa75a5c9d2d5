//! A book has what is known of the health of a node's GPUs in one load of the driver, and the rules by
//! which that changes.
//! It does no input or output.
//!
//! What the driver says again whenever it is asked holds for as long as it says so. An XID is said once: it
//! holds until the GPU was reset, which is seen by another load of the driver, by the GPU having been away, by
//! a recovery action that is asked for no more, or by a counter that only grows and now is less.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{
    Cause,
    xid::{Demand, demand},
};
use crate::gpu::{Checked, Checkup, Event, EventKind, Fault, Recovery, Vitals};

/// What is known, in one boot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Book {
    /// [`VERSION`].
    pub(super) version: u32,
    /// The boot.
    pub(super) boot: String,
    /// The load of the driver.
    load: String,
    /// By PCI address.
    gpus: BTreeMap<String, Record>,
}

/// What is known of one GPU.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Record {
    /// Its UUID, if it ever said so.
    pub gpu: Option<String>,
    /// What ails it, or may yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) ailments: Vec<Ailment>,
    /// The most NVLinks that were up.
    #[serde(default)]
    links: u32,
}

/// Something that ails a GPU. Times are seconds since the boot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Ailment {
    pub(super) cause: Cause,
    /// When it was first seen.
    since: u64,
    /// When it was first seen no more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fading: Option<u64>,
    /// How much energy the GPU had used then, or at some time after.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    energy: Option<u64>,
    /// The driver has asked for something to be done since.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    asked: bool,
}

/// The version of books that this build reads and writes.
pub(super) const VERSION: u32 = 1;

// === impl Book ===

impl Book {
    /// An empty one.
    pub fn new(boot: &str) -> Self {
        let (boot, load, gpus) = (boot.to_owned(), String::new(), BTreeMap::new());
        Self { version: VERSION, boot, load, gpus }
    }

    /// The GPUs that were seen in this load of the driver, by PCI address.
    pub fn gpus(&self) -> impl Iterator<Item = (&str, &Record)> {
        self.gpus.iter().map(|(pci, record)| (pci.as_str(), record))
    }

    /// Takes in what all GPUs say now.
    pub fn observe(&mut self, now: u64, checkup: &Checkup) {
        // Another load knows nothing of what the one before knew.
        if self.load != checkup.load {
            self.load.clone_from(&checkup.load);
            self.gpus.clear();
        }
        let answering = checkup.gpus.iter().map(|gpu| gpu.pci);
        let there = answering.chain(checkup.faults.iter().map(|fault| fault.pci));
        let there: Vec<String> = there.map(|pci| pci.to_string()).collect();
        for (pci, record) in &mut self.gpus {
            if !there.contains(pci) {
                record.note(now, Cause::Gone, None);
            }
        }
        for gpu in &checkup.gpus {
            let record = self.gpus.entry(gpu.pci.to_string()).or_default();
            record.answers(now, gpu);
        }
        for fault in &checkup.faults {
            let record = self.gpus.entry(fault.pci.to_string()).or_default();
            record.fails(now, fault);
        }
    }

    /// Takes in something that happened. Of a GPU that was never seen, it is not known what it is.
    pub fn hear(&mut self, now: u64, event: &Event) {
        let EventKind::Xid(xid) = event.kind else { return };
        let holds = matches!(demand(xid), Demand::Reset | Demand::Reboot | Demand::Cables);
        let mut records = self.gpus.values_mut();
        let record = records.find(|record| record.gpu.as_ref() == Some(&event.gpu));
        if let (Some(record), true) = (record, holds) {
            record.note(now, Cause::Xid(xid), None);
        }
    }
}

// === impl Record ===

impl Record {
    /// What ails it now; what weighs most comes first.
    pub fn causes(&self, now: u64) -> Vec<Cause> {
        let stands =
            |ailment: &&Ailment| now.saturating_sub(ailment.since) >= ailment.cause.patience().0;
        let mut causes: Vec<Cause> =
            self.ailments.iter().filter(stands).map(|ailment| ailment.cause).collect();
        causes.sort_unstable();
        causes
    }

    fn has(&self, is: impl Fn(Cause) -> bool) -> bool {
        self.ailments.iter().any(|ailment| is(ailment.cause))
    }

    fn note(&mut self, now: u64, cause: Cause, energy: Option<u64>) {
        match self.ailments.iter_mut().find(|ailment| ailment.cause == cause) {
            Some(known) => known.fading = None,
            None => self.ailments.push(Ailment {
                cause,
                since: now,
                fading: None,
                energy,
                asked: false,
            }),
        }
    }

    /// It is seen no more.
    fn fade(&mut self, now: u64, cause: Cause) {
        self.ailments.retain_mut(|ailment| {
            let (before, after) = cause.patience();
            if ailment.cause != cause {
                return true;
            }
            // What never counted is forgotten.
            let counts = now.saturating_sub(ailment.since) >= before;
            let since = *ailment.fading.get_or_insert(now);
            counts && now.saturating_sub(since) < after
        });
    }

    /// It answers.
    fn answers(&mut self, now: u64, checked: &Checked) {
        if !checked.gpu.is_empty() && self.gpu.as_ref() != Some(&checked.gpu) {
            *self = Self { gpu: Some(checked.gpu.clone()), ..Self::default() };
        }
        let vitals = &checked.vitals;
        // Whoever comes back from there was reset on the way.
        let back = self.has(|cause| matches!(cause, Cause::Gone | Cause::Lost));
        self.ailments.retain(|ailment| !ailment.cause.is_away());
        self.ailments.retain_mut(|ailment| {
            let is_xid = matches!(ailment.cause, Cause::Xid(_));
            !is_xid || !(back || ailment.is_reset(vitals))
        });
        self.links = self.links.max(vitals.nvlinks.unwrap_or(0));
        let action = vitals.recovery;
        let wanted = action.filter(|action| *action != Recovery::Nothing).map(Cause::Recovery);
        // Another action takes the place of the one before.
        if action.is_some() {
            let is_old = |cause| matches!(cause, Cause::Recovery(_)) && wanted != Some(cause);
            self.ailments.retain(|ailment| !is_old(ailment.cause));
        }
        if let Some(wanted) = wanted {
            self.note(now, wanted, None);
        }
        for (cause, ails) in [
            (Cause::RemapFailed, vitals.remap_failed),
            (Cause::RemapPending, vitals.remap_pending),
            (Cause::Uncorrected, vitals.uncorrected.map(|count| count > 0)),
            (Cause::LinksDown, vitals.nvlinks.map(|up| up < self.links)),
            (Cause::Hot, vitals.hot),
            (Cause::Braked, vitals.braked),
        ] {
            match ails {
                Some(true) => self.note(now, cause, None),
                Some(false) => self.fade(now, cause),
                // Nobody says that it is so, or that it is not.
                None => {}
            }
        }
    }

    /// It does not answer.
    fn fails(&mut self, now: u64, fault: &Fault) {
        let known = self.gpu.is_some();
        if fault.uuid.is_some() && self.gpu != fault.uuid {
            let gpu = fault.uuid.clone();
            // One that never said its name may be the same.
            match known {
                true => *self = Self { gpu, ..Self::default() },
                false => self.gpu = gpu,
            }
        }
        let cause = Cause::from(&fault.kind);
        // That it was lost, or gone, is to be known when it is back.
        let passes = |other| matches!(other, Cause::Silent | Cause::Failed) && other != cause;
        self.ailments.retain(|ailment| !passes(ailment.cause));
        self.note(now, cause, None);
    }
}

// === impl Ailment ===

impl Ailment {
    /// Whether the GPU was reset since.
    fn is_reset(&mut self, vitals: &Vitals) -> bool {
        let less = self.energy.zip(vitals.energy).is_some_and(|(then, now)| now < then);
        // The first that is known after the XID will do: what is less than that began anew.
        self.energy = self.energy.or(vitals.energy);
        match vitals.recovery {
            Some(Recovery::Nothing) => less || self.asked,
            Some(_) => {
                self.asked = true;
                less
            }
            None => less,
        }
    }
}
