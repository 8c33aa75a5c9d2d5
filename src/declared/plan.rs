//! A plan for declared devices is without steps: they are there, and free or not.

use super::DeviceFile;
use crate::{
    claim::{Allocation, Claim, Given, Share, Sharing},
    plan::{Held, Plan, PlanError, Planned, Target},
    publish,
    quantity::Quantity,
};

// === impl DeviceFile ===

impl DeviceFile {
    /// Plans an allocated claim, beside what others hold.
    ///
    /// # Errors
    /// When a device is not there, or not free.
    pub fn plan(
        &self,
        claim: &Claim,
        allocation: &Allocation,
        held: &[Held],
    ) -> Result<Plan, PlanError> {
        if allocation.results.is_empty() {
            let driver = self.driver().to_owned();
            return Err(PlanError::NotOurs { claim: claim.title(), driver });
        }
        let declaration = self.now();
        let mut devices: Vec<Planned> = Vec::new();
        for given in &allocation.results {
            let device = self.given(claim, given, &declaration)?;
            let planned = Planned {
                request: given.request.clone(),
                pool: given.pool.clone(),
                device: given.device.clone(),
                target: Target::Declared { device: given.device.clone() },
                sharing: Sharing::Exclusive,
                display: false,
                existing: None,
                admin: given.admin,
                share: given.share.clone(),
            };
            if let Some(by) = obstacle(&planned, device, held, &devices) {
                let (claim, device) = (claim.title(), given.device.clone());
                return Err(PlanError::Overlap { claim, device, by });
            }
            devices.push(planned);
        }
        Ok(Plan { devices, steps: Vec::new() })
    }

    /// The device that was given, if it is one of this node.
    fn given<'a>(
        &self,
        claim: &Claim,
        given: &Given,
        declaration: &'a super::Declaration,
    ) -> Result<&'a publish::Device, PlanError> {
        let (claim, device, node) = (claim.title(), given.device.clone(), self.node().to_owned());
        if given.pool != node {
            return Err(PlanError::OtherNode { claim, device, pool: given.pool.clone(), node });
        }
        match declaration.device(&given.device) {
            Some(found) => Ok(&found.published),
            None => {
                let names = declaration.devices.iter().map(|device| &device.published.name);
                let offered = names.take(4).cloned().collect();
                Err(PlanError::NoDevice { claim, device, node, offered })
            }
        }
    }
}

/// What keeps a device from being given, if anything does, to be read behind its name.
fn obstacle(
    planned: &Planned,
    device: &publish::Device,
    held: &[Held],
    earlier: &[Planned],
) -> Option<String> {
    if planned.admin {
        return None;
    }
    let mut others = held.iter().filter(|held| held.target == planned.target);
    let own = earlier.iter().filter(|one| !one.admin && one.target == planned.target);
    let Some(share) = &planned.share else {
        if let Some(other) = others.next() {
            return Some(format!("is held by claim {}", other.claim));
        }
        return own.map(given_already).next();
    };
    let mut shares = Vec::new();
    for other in others {
        match &other.share {
            Some(share) => shares.push(share),
            None => return Some(format!("is held by claim {}", other.claim)),
        }
    }
    for one in own {
        match &one.share {
            Some(share) => shares.push(share),
            None => return Some(given_already(one)),
        }
    }
    too_much(share, device, &shares)
}

fn given_already(one: &Planned) -> String {
    format!("is given to request {} of the claim already", one.request)
}

/// Which capacity is not enough beside other shares, in words.
fn too_much(share: &Share, device: &publish::Device, others: &[&Share]) -> Option<String> {
    for (name, wanted) in &share.consumed {
        let own = name.rsplit_once('/').map_or(name.as_str(), |(_, own)| own);
        let of = |amounts: &std::collections::BTreeMap<String, Quantity>| {
            amounts.get(name).or_else(|| amounts.get(own)).copied().unwrap_or(Quantity::ZERO)
        };
        let capacity = device.capacity.get(name).or_else(|| device.capacity.get(own));
        let all = capacity.map_or(Quantity::ZERO, |capacity| capacity.value);
        let used =
            others.iter().map(|other| of(&other.consumed)).fold(Quantity::ZERO, Quantity::plus);
        let left = all.minus(used);
        if *wanted > left {
            let left = left.max(Quantity::ZERO);
            return Some(format!(
                "has {left} of {name} left beside other shares, and {wanted} is consumed of it"
            ));
        }
    }
    None
}
