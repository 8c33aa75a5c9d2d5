//! A step is done and undone here, each with the journal written before and after.

use super::{Node, StepError, Undone, daemon::resolve, metadata};
use crate::{
    emit,
    gpu::{Gpu, GpuError, Inventory, MadePartition, Mig, Occupant},
    journal::{Claimed, Entry, Part, Stage},
    plan::{Planned, Step, Target},
};
use divvy_cdi::spec;

/// What failed, in words, and why.
pub(super) type Failed = (String, StepError);

// === impl Node ===

impl Node<'_> {
    /// Does the steps of a new entry, each journalled before, and what they came to after. After a
    /// failure the entry has those to undo. `seen` is what its GPUs were before.
    pub(super) fn act(
        &self,
        claimed: &mut Claimed<'_>,
        entry: &mut Entry,
        steps: Vec<Step>,
        seen: Option<&Inventory>,
    ) -> Result<(), Failed> {
        // A step makes others of the GPUs than were seen.
        let seen = seen.filter(|_| steps.is_empty());
        if steps.is_empty() {
            note(claimed, entry)?;
        }
        for step in steps {
            self.act_on(claimed, entry, step)?;
        }
        self.publish(entry, seen)?;
        entry.stage = Stage::Done;
        note(claimed, entry)
    }

    fn act_on(
        &self,
        claimed: &mut Claimed<'_>,
        entry: &mut Entry,
        mut step: Step,
    ) -> Result<(), Failed> {
        let found = self.look_up(&mut step).and_then(|()| resolve(&mut step, entry));
        found.map_err(|error| (step.to_string(), error.into()))?;
        entry.steps.push(step);
        // With it goes what the step before came to.
        if let Err(failed) = note(claimed, entry) {
            entry.steps.pop();
            return Err(failed);
        }
        let Some(step) = entry.steps.last_mut() else { return Ok(()) };
        let done = self.step(claimed, step).map_err(|error| (step.to_string(), error));
        // A partition that failed was not made, and one that lies there now is somebody else's, unless
        // the failure leaves that open. A time slice may have been set, and is set
        // back as it was found.
        let failed = matches!(&done, Err((_, error)) if !error.leaves_open());
        if failed && matches!(step, Step::Partition(_)) {
            entry.steps.pop();
            // So that nobody who goes on undoing it touches more. Where the journal is what fails,
            // the undoing says so.
            let _said = note(claimed, entry);
        }
        done
    }

    /// Notes in a step how it was before.
    fn look_up(&self, step: &mut Step) -> Result<(), GpuError> {
        match step {
            Step::TimeSlice { gpu, before, .. } => *before = self.pool.gpus()?.time_slice(gpu)?,
            Step::Mps(daemon) => self.look_up_daemon(daemon)?,
            Step::Partition(_) | Step::MigMode { .. } => {}
        }
        Ok(())
    }

    /// Verifies a prepared claim and brings back what is missing, so that its names keep working.
    /// True when something was. Where that fails, its record and spec are gone until it succeeds.
    /// `seen` is of its GPUs, and may be from before the claim was in this hand.
    pub(super) fn ensure(
        &self,
        claimed: &mut Claimed<'_>,
        entry: &mut Entry,
        seen: Option<&Inventory>,
    ) -> Result<bool, super::PrepareError> {
        let before = entry.clone();
        let mut ensure = || -> Result<bool, Failed> {
            let mut restored = false;
            if entry.boot != self.boot {
                self.enter_boot(claimed, entry)?;
            }
            if let Some(seen) = seen {
                restored |= self.find_existing(claimed, entry, seen)?;
                for index in 0..entry.steps.len() {
                    restored |= self.restore(claimed, entry, index, seen)?;
                }
            }
            if *entry != before {
                note(claimed, entry)?;
            }
            Ok(self.publish(entry, None)? || restored)
        };
        ensure().map_err(|(doing, source)| {
            // What is published may name nodes that are somebody else's by now.
            let (claim, left) = (entry.title(), withdraw(entry));
            super::PrepareError::Step { claim, doing, source: Box::new(source), left }
        })
    }

    /// Finds the partitions of somebody else that the claim was given: they may be others by now, at
    /// the same place. True when one is.
    fn find_existing(
        &self,
        claimed: &mut Claimed<'_>,
        entry: &mut Entry,
        seen: &Inventory,
    ) -> Result<bool, Failed> {
        let place = |device: &Planned, inventory: &Inventory| {
            let Target::Partition { gpu, profile, placement } = &device.target else { return None };
            Some(inventory.gpu(gpu)?.partition(profile, *placement)?.uuid.clone())
        };
        let is_lost = |device: &Planned, inventory: &Inventory| {
            device.existing.is_some() && device.existing != place(device, inventory)
        };
        if !entry.devices.iter().any(|device| is_lost(device, seen)) {
            return Ok(false);
        }
        let now = self.looked()?;
        let mut others = false;
        for device in &mut entry.devices {
            if !is_lost(device, &now) {
                continue;
            }
            let Some(other) = place(device, &now) else {
                let (gpu, partition) = (device.target.gpu().to_owned(), device.device.clone());
                let error = GpuError::NoPartition { gpu, partition };
                return Err((format!("finding {}", device.device), error.into()));
            };
            device.existing = Some(other);
            others = true;
        }
        note(claimed, entry)?;
        Ok(others)
    }

    /// Nothing that was done outlives a boot: what is there now, somebody else did.
    fn enter_boot(&self, claimed: &mut Claimed<'_>, entry: &mut Entry) -> Result<(), Failed> {
        if entry.steps.is_empty() {
            self.boot.clone_into(&mut entry.boot);
            return note(claimed, entry);
        }
        let inventory = self.looked()?;
        for step in &mut entry.steps {
            self.look_up(step).map_err(|error| (step.to_string(), error.into()))?;
            if let Step::Partition(made) = &step
                && let Some(there) = occupant(made, &inventory)
            {
                return Err((step.to_string(), occupied(made, there).into()));
            }
        }
        self.boot.clone_into(&mut entry.boot);
        note(claimed, entry)
    }

    pub(super) fn looked(&self) -> Result<Inventory, Failed> {
        let looked = self.pool.gpus().and_then(|gpus| gpus.inventory());
        looked.map_err(|error| ("looking at the GPUs".to_owned(), error.into()))
    }

    /// Does a step of a prepared claim again where the machine has lost it.
    fn restore(
        &self,
        claimed: &mut Claimed<'_>,
        entry: &mut Entry,
        index: usize,
        seen: &Inventory,
    ) -> Result<bool, Failed> {
        let Some(step) = entry.steps.get_mut(index) else { return Ok(false) };
        let doing = step.to_string();
        match step {
            Step::Partition(made) => {
                if is_there(made, seen) {
                    return Ok(false);
                }
                // It may have been made since.
                let now = self.looked()?;
                if is_there(made, &now) {
                    return Ok(false);
                }
                return self.make_again(claimed, entry, index, &now).map(|()| true);
            }
            Step::MigMode { gpu } => {
                if seen.gpu(gpu).is_some_and(|gpu| matches!(gpu.mig, Mig::On(_))) {
                    return Ok(false);
                }
            }
            Step::TimeSlice { gpu, interval, .. } => {
                let now = self.pool.gpus().and_then(|gpus| gpus.time_slice(gpu));
                if now.map_err(|error| (doing.clone(), error.into()))? == *interval {
                    return Ok(false);
                }
            }
            Step::Mps(_) => return self.restore_daemon(claimed, entry, index, seen),
        }
        let Some(step) = entry.steps.get_mut(index) else { return Ok(false) };
        self.step(claimed, step).map_err(|error| (doing, error))?;
        note(claimed, entry)?;
        Ok(true)
    }

    /// Makes a lost partition of a prepared claim again, unless somebody else's is there by now.
    fn make_again(
        &self,
        claimed: &mut Claimed<'_>,
        entry: &mut Entry,
        index: usize,
        inventory: &Inventory,
    ) -> Result<(), Failed> {
        let Some(Step::Partition(made)) = entry.steps.get_mut(index) else { return Ok(()) };
        let doing = || Step::Partition(made.clone()).to_string();
        match occupant(made, inventory) {
            // Only its compute instance was lost.
            Some(Occupant::Instance(left)) if made.is_left(left) => {
                let ended = self.pool.gpus().and_then(|gpus| gpus.destroy_partition(made));
                ended.map_err(|error| (doing(), error.into()))?;
            }
            Some(there) => return Err((doing(), occupied(made, there).into())),
            None => {}
        }
        // Noted first: after a crash, the one at that place is known to be ours.
        let lost = made.uuid.take();
        note(claimed, entry)?;
        let Some(step) = entry.steps.get_mut(index) else { return Ok(()) };
        let stepped = self.step(claimed, step).map_err(|error| (step.to_string(), error));
        if let (Err((_, error)), Step::Partition(made)) = (&stepped, step)
            && !error.leaves_open()
        {
            // None was made, so that one that comes to lie there is not ours.
            made.uuid = lost;
        }
        let noted = note(claimed, entry);
        stepped.and(noted)
    }

    /// Undoes everything that an entry says, done or not, and removes it; what fails is returned,
    /// and then the entry stays.
    pub(super) fn undo(&self, claimed: &mut Claimed<'_>, entry: &Entry) -> Vec<Undone> {
        // First what containers start by: from here on nobody new gets the devices.
        let mut left = self.call.at(Part::Cdi, || withdraw(entry));
        let mut attempt = |doing: String, result: Result<(), StepError>| {
            let claim = entry.title();
            left.extend(result.err().map(|error| Undone { claim, doing, error }));
        };
        // Nothing that was done outlives a boot: what is there now, somebody else did.
        let steps = if entry.boot == self.boot { &*entry.steps } else { &[] };
        for step in steps.iter().rev() {
            attempt(format!("undoing: {step}"), self.unstep(claimed, step));
        }
        if left.is_empty() {
            let removed = claimed.remove(entry).map_err(StepError::from);
            let (claim, doing) = (entry.title(), "removing the journal entry".to_owned());
            left.extend(removed.err().map(|error| Undone { claim, doing, error }));
        }
        left
    }

    fn step(&self, claimed: &Claimed<'_>, step: &mut Step) -> Result<(), StepError> {
        match step {
            Step::MigMode { gpu } => self.pool.gpus()?.set_mig(gpu, true)?,
            // Adopted: it is there.
            Step::Partition(MadePartition { uuid: Some(_), .. }) => {}
            Step::Partition(made) => {
                let MadePartition { gpu, profile, placement, uuid } = made;
                let partition = self.pool.gpus()?.create_partition(gpu, profile, *placement)?;
                *uuid = Some(partition.uuid);
            }
            Step::TimeSlice { gpu, interval, .. } => {
                self.pool.gpus()?.set_time_slice(gpu, *interval)?;
            }
            Step::Mps(daemon) => self.start_daemon(claimed, daemon)?,
        }
        Ok(())
    }

    /// Switches MIG mode off, unless the GPU is still given in partitions: then it is left to who
    /// has the last.
    fn switch_back(&self, gpu: &str) -> Result<(), GpuError> {
        let gpus = self.pool.gpus()?;
        let inventory = gpus.inventory()?;
        let used = |gpu: &Gpu| !gpu.partitions().is_empty() || !gpu.instances.is_empty();
        match inventory.gpu(gpu) {
            Some(there) if !used(there) => gpus.set_mig(gpu, false),
            None if let Some(fault) = inventory.fault_of(gpu) => {
                Err(GpuError::Fault(fault.clone()))
            }
            // A GPU that was taken out took its mode along.
            Some(_) | None => Ok(()),
        }
    }

    fn unstep(&self, claimed: &Claimed<'_>, step: &Step) -> Result<(), StepError> {
        match step {
            Step::MigMode { gpu } => self.switch_back(gpu)?,
            Step::Partition(made) => self.pool.gpus()?.destroy_partition(made)?,
            Step::TimeSlice { gpu, before, .. } => {
                match self.pool.gpus()?.set_time_slice(gpu, *before) {
                    // A GPU that was taken out took its setting along.
                    Ok(()) | Err(GpuError::NoGpu { .. }) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            Step::Mps(daemon) => self.end_daemon(claimed, daemon)?,
        }
        Ok(())
    }
}

pub(super) fn note(claimed: &mut Claimed<'_>, entry: &Entry) -> Result<(), Failed> {
    claimed.write(entry).map_err(|error| ("writing the journal".to_owned(), error.into()))
}

/// Whether the partition is there. One whose UUID is not known, as a crash came between making it
/// and noting that, is known by its place.
fn is_there(made: &mut MadePartition, inventory: &Inventory) -> bool {
    let there = inventory.gpu(&made.gpu).map(Gpu::partitions).unwrap_or_default();
    match there.iter().find(|there| made.is(there)) {
        Some(there) => {
            made.uuid = Some(there.uuid.clone());
            true
        }
        None => false,
    }
}

/// What lies where a partition was, if it is not that one.
fn occupant<'a>(made: &MadePartition, inventory: &'a Inventory) -> Option<Occupant<'a>> {
    let gpu = inventory.gpu(&made.gpu)?;
    gpu.in_the_way(gpu.profile(&made.profile)?, made.placement)
}

fn occupied(made: &MadePartition, by: Occupant<'_>) -> GpuError {
    let MadePartition { gpu, profile, placement, .. } = made.clone();
    GpuError::Occupied { gpu, profile, placement, by: by.to_string() }
}

/// Takes away what containers start by; what fails is returned.
fn withdraw(entry: &Entry) -> Vec<Undone> {
    let record = entry.run().remove_claim(&entry.uid).map(drop).map_err(StepError::from);
    let name = emit::spec_name(&entry.driver, &entry.uid);
    let spec = spec::remove(&entry.cdi_dir, &name).map(drop).map_err(StepError::from);
    let told = metadata::remove(&entry.run_dir, &entry.driver, &entry.uid);
    let told = ("removing what containers were told", told);
    [("removing the record", record), ("removing the CDI spec", spec), told]
        .into_iter()
        .filter_map(|(doing, result)| {
            let (claim, doing) = (entry.title(), doing.to_owned());
            Some(Undone { claim, doing, error: result.err()? })
        })
        .collect()
}

// === impl Step ===

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Step::Partition(MadePartition { gpu, profile, placement, .. }) => {
                write!(f, "making partition {profile} at {placement} of {gpu}")
            }
            Step::MigMode { gpu } => write!(f, "switching MIG mode on for {gpu}"),
            Step::TimeSlice { gpu, interval, .. } => {
                write!(f, "setting the time slice of {gpu} to {interval}")
            }
            Step::Mps(daemon) => {
                write!(f, "starting the MPS control daemon {}", daemon.name)
            }
        }
    }
}
