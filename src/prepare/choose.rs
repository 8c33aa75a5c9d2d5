//! What a claim gets: as it is allocated, or else chosen here.

use std::{
    borrow::Cow,
    collections::BTreeSet,
    time::{Duration, SystemTime},
};

use super::{Node, PrepareError};
use crate::{
    allocate::{self, AllocateError},
    claim::{Allocation, Claim, Class},
    declared::DeviceFile,
    gpu::{Gpus, Inventory},
    journal::Claimed,
    plan::{self, Plan, PlanError},
    pool::Pool,
};

/// How often devices are chosen anew for a claim, where others were faster.
const CHOICES: usize = 16;

/// How coarse the clock of a file system may be.
const CLOCK: Duration = Duration::from_millis(20);

// === impl Node ===

impl Node<'_> {
    /// What the claim gets, of devices that nobody else changes from here on, and how its GPUs are.
    pub(super) fn plan(
        &self,
        claimed: &mut Claimed<'_>,
        claim: &Claim,
        classes: &[Class],
    ) -> Result<(Plan, Option<Inventory>), PrepareError> {
        let mut tries = 0;
        loop {
            tries += 1;
            let planned = match self.pool {
                Pool::Gpus(gpus) => self
                    .plan_gpus(gpus, claimed, claim, classes)
                    .map(|(plan, seen)| (plan, Some(seen))),
                Pool::Declared(file) => {
                    self.plan_declared(file, claimed, claim, classes).map(|plan| (plan, None))
                }
            };
            match planned {
                // Others took what was chosen, or gave back what was missing.
                Err(PrepareError::Plan(PlanError::Overlap { .. }))
                    if claim.allocation.is_none() && tries < CHOICES => {}
                Err(PrepareError::Allocate(AllocateError::NoDevice { .. })) if tries == 1 => {}
                planned => return planned,
            }
        }
    }

    fn plan_declared(
        &self,
        file: &DeviceFile,
        claimed: &mut Claimed<'_>,
        claim: &Claim,
        classes: &[Class],
    ) -> Result<Plan, PrepareError> {
        let elsewhere = self.declared_elsewhere(file)?;
        let allocation = match &claim.allocation {
            Some(allocation) => Cow::Borrowed(allocation),
            None => {
                let mut held = claimed.held_by_others(None)?;
                held.extend_from_slice(&elsewhere);
                let allocated = self.pool.look()?.allocate(claim, classes, &held)?;
                Cow::Owned(allocated.allocation())
            }
        };
        let devices = allocation.results.iter().map(|given| given.device.clone()).collect();
        claimed.lock_gpus(&devices)?;
        let mut held = claimed.held_by_others(Some(&devices))?;
        held.extend(elsewhere);
        Ok(file.plan(claim, &allocation, &held)?)
    }

    fn plan_gpus(
        &self,
        gpus: &dyn Gpus,
        claimed: &mut Claimed<'_>,
        claim: &Claim,
        classes: &[Class],
    ) -> Result<(Plan, Inventory), PrepareError> {
        let looked = SystemTime::now();
        let addresses = |allocation: &Allocation| {
            plan::addresses(allocation.results.iter().map(|given| given.device.as_str()))
        };
        let (mut inventory, elsewhere, allocation) = match &claim.allocation {
            Some(allocation) => {
                let at = addresses(allocation);
                // What is seen behind the lock is not looked at again.
                claimed.lock_gpus(&gpus.uuids(&at))?;
                // No other GPU is waited for.
                let inventory = gpus.inventory_of(Some(&at))?;
                let elsewhere = self.held_elsewhere(&inventory)?;
                (inventory, elsewhere, Cow::Borrowed(allocation))
            }
            None => {
                // Before what is there: a claim that ends in between still holds it.
                let mut held = claimed.held_by_others(None)?;
                let inventory = gpus.inventory()?;
                let elsewhere = self.held_elsewhere(&inventory)?;
                held.extend_from_slice(&elsewhere);
                let allocated = allocate::allocate(claim, classes, &inventory, &held)?;
                (inventory, elsewhere, Cow::Owned(allocated.allocation()))
            }
        };
        let at = addresses(&allocation);
        let given = inventory.gpus.iter().filter(|gpu| at.contains(&gpu.pci));
        let uuids: BTreeSet<String> = given.map(|gpu| gpu.uuid.clone()).collect();
        // What somebody did to them meanwhile is not what was seen.
        if claimed.lock_gpus(&uuids)? + CLOCK >= looked {
            inventory = gpus.inventory_of(Some(&at))?;
        }
        let mut held = claimed.held_by_others(Some(&uuids))?;
        held.extend(elsewhere);
        match plan::plan(claim, &allocation, &inventory, &held) {
            // What the node has instead is to be said.
            Err(PlanError::NoDevice { .. }) => {
                inventory = gpus.inventory()?;
                Ok((plan::plan(claim, &allocation, &inventory, &held)?, inventory))
            }
            planned => Ok((planned?, inventory)),
        }
    }
}
