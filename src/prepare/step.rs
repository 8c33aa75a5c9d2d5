//! A step is done and undone here, each with the journal written before and after.

use super::{Node, StepError, Undone};
use crate::{
    emit,
    gpu::{Gpu, GpuError, Inventory, MadePartition, Occupant},
    journal::{Entry, Stage},
    lock::Lock,
    plan::Step,
};
use divvy_cdi::spec;

/// What failed, in words, and why.
type Failed = (String, StepError);

// === impl Node ===

impl Node<'_> {
    /// Notes in each step how it was before.
    pub(super) fn look_up(&self, steps: &mut [Step]) -> Result<(), GpuError> {
        for step in steps {
            if let Step::TimeSlice { gpu, before, .. } = step {
                *before = self.gpus.time_slice(gpu)?;
            }
        }
        Ok(())
    }

    /// Does all that a new entry says, and journals it. After a failure the entry has no steps but
    /// those to undo.
    pub(super) fn act(&self, held: &Lock, entry: &mut Entry) -> Result<(), Failed> {
        let mut done = 0;
        let acted = self.act_counting(held, entry, &mut done);
        if acted.is_err() && entry.steps.len() > done {
            entry.steps.truncate(done);
            // So that nobody who goes on undoing it touches more. Where the journal is what fails,
            // that is said already.
            let _said = self.note(held, entry);
        }
        acted
    }

    /// [`Self::act`]; `done` counts the steps that took effect, or may have.
    fn act_counting(&self, held: &Lock, entry: &mut Entry, done: &mut usize) -> Result<(), Failed> {
        self.note(held, entry)?;
        for index in 0..entry.steps.len() {
            let Some(step) = entry.steps.get_mut(index) else { break };
            // A partition that failed was not made, and one that lies there now is somebody else's.
            // A time slice may have been set, and is set back as it was found.
            if matches!(step, Step::TimeSlice { .. }) {
                *done = index + 1;
            }
            self.step(step).map_err(|error| (step.to_string(), error))?;
            *done = index + 1;
            if matches!(step, Step::Partition(_)) {
                self.note(held, entry)?;
            }
        }
        self.publish(entry)?;
        entry.stage = Stage::Done;
        self.note(held, entry)
    }

    /// Verifies a prepared claim and brings back what is missing, so that its names keep working.
    /// True when something was. Where that fails, its record and spec are gone until it succeeds.
    pub(super) fn ensure(
        &self,
        held: &Lock,
        entry: &mut Entry,
    ) -> Result<bool, super::PrepareError> {
        let inventory = self.gpus.inventory()?;
        let before = entry.clone();
        let mut ensure = || -> Result<bool, Failed> {
            let mut restored = false;
            for index in 0..entry.steps.len() {
                restored |= self.restore(held, entry, index, &inventory)?;
            }
            self.boot.clone_into(&mut entry.boot);
            if *entry != before {
                self.note(held, entry)?;
            }
            Ok(self.publish(entry)? || restored)
        };
        ensure().map_err(|(doing, source)| {
            // What is published may name nodes that are somebody else's by now.
            let (claim, left) = (entry.title(), withdraw(entry));
            super::PrepareError::Step { claim, doing, source: Box::new(source), left }
        })
    }

    /// Does a step of a prepared claim again where the machine has lost it.
    fn restore(
        &self,
        held: &Lock,
        entry: &mut Entry,
        index: usize,
        inventory: &Inventory,
    ) -> Result<bool, Failed> {
        let Some(step) = entry.steps.get_mut(index) else { return Ok(false) };
        let doing = step.to_string();
        match step {
            Step::Partition(made) => {
                let there = inventory.gpu(&made.gpu).map(Gpu::partitions).unwrap_or_default();
                if let Some(there) = there.iter().find(|there| made.is(there)) {
                    // A crash came between making it and noting it.
                    made.uuid = Some(there.uuid.clone());
                    return Ok(false);
                }
                return self.make_again(held, entry, index, inventory).map(|()| true);
            }
            Step::TimeSlice { gpu, interval, .. } => {
                let now = self.gpus.time_slice(gpu);
                if now.map_err(|error| (doing.clone(), error.into()))? == *interval {
                    return Ok(false);
                }
            }
        }
        let Some(step) = entry.steps.get_mut(index) else { return Ok(false) };
        self.step(step).map_err(|error| (doing, error))?;
        self.note(held, entry)?;
        Ok(true)
    }

    /// Makes a lost partition of a prepared claim again, unless somebody else's is there by now.
    fn make_again(
        &self,
        held: &Lock,
        entry: &mut Entry,
        index: usize,
        inventory: &Inventory,
    ) -> Result<(), Failed> {
        let Some(Step::Partition(made)) = entry.steps.get_mut(index) else { return Ok(()) };
        let doing = || Step::Partition(made.clone()).to_string();
        match occupant(made, inventory) {
            // Only its compute instance was lost.
            Some(Occupant::Instance(left)) if made.is_left(left) => {
                self.gpus.destroy_partition(made).map_err(|error| (doing(), error.into()))?;
            }
            Some(there) => return Err((doing(), occupied(made, there).into())),
            None => {}
        }
        // Noted first: after a crash, the one at that place is known to be ours.
        let lost = made.uuid.take();
        self.note(held, entry)?;
        let Some(step) = entry.steps.get_mut(index) else { return Ok(()) };
        let stepped = self.step(step).map_err(|error| (step.to_string(), error));
        if let (Err(_), Step::Partition(made)) = (&stepped, step) {
            // None was made, so that one that comes to lie there is not ours.
            made.uuid = lost;
        }
        let noted = self.note(held, entry);
        stepped.and(noted)
    }

    /// Undoes everything that an entry says, done or not, and removes it; what fails is returned,
    /// and then the entry stays.
    pub(super) fn undo(&self, held: &Lock, entry: &Entry) -> Vec<Undone> {
        // First what containers start by: from here on nobody new gets the devices.
        let mut left = withdraw(entry);
        let mut attempt = |doing: String, result: Result<(), StepError>| {
            let claim = entry.title();
            left.extend(result.err().map(|error| Undone { claim, doing, error }));
        };
        for step in entry.steps.iter().rev() {
            attempt(format!("undoing: {step}"), self.unstep(step));
        }
        if left.is_empty() {
            let removed = self.journal.remove(held, &entry.uid).map_err(StepError::from);
            let (claim, doing) = (entry.title(), "removing the journal entry".to_owned());
            left.extend(removed.err().map(|error| Undone { claim, doing, error }));
        }
        left
    }

    fn step(&self, step: &mut Step) -> Result<(), StepError> {
        match step {
            Step::Partition(made) => {
                let MadePartition { gpu, profile, placement, uuid } = made;
                let partition = self.gpus.create_partition(gpu, profile, *placement)?;
                *uuid = Some(partition.uuid);
            }
            Step::TimeSlice { gpu, interval, .. } => self.gpus.set_time_slice(gpu, *interval)?,
        }
        Ok(())
    }

    fn unstep(&self, step: &Step) -> Result<(), StepError> {
        match step {
            Step::Partition(made) => self.gpus.destroy_partition(made)?,
            Step::TimeSlice { gpu, before, .. } => match self.gpus.set_time_slice(gpu, *before) {
                // A GPU that was taken out took its setting along.
                Ok(()) | Err(GpuError::NoGpu { .. }) => {}
                Err(error) => return Err(error.into()),
            },
        }
        Ok(())
    }

    fn note(&self, held: &Lock, entry: &Entry) -> Result<(), Failed> {
        let written = self.journal.write(held, entry);
        written.map_err(|error| ("writing the journal".to_owned(), error.into()))
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
    let name = emit::spec_name(&entry.uid);
    let spec = spec::remove(&entry.cdi_dir, &name).map(drop).map_err(StepError::from);
    [("removing the record", record), ("removing the CDI spec", spec)]
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
            Step::TimeSlice { gpu, interval, .. } => {
                write!(f, "setting the time slice of {gpu} to {interval}")
            }
        }
    }
}
