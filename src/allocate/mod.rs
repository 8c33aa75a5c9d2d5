//! Allocation chooses the devices of a claim that no scheduler has allocated: on this node, from the
//! slices that it publishes, as Kubernetes' allocator would.
//!
//! Depth first and first fit, in the order of requests and of devices; whatever leads nowhere is
//! taken back. What it cannot honour it refuses: a claim never gets less than it asked for. What
//! stands here of Kubernetes' allocator was read, not tried against a cluster.

mod capacity;
mod cel;
mod error;
mod explain;
mod merge;
mod pool;
mod search;
mod wanted;

use crate::{
    claim::{Allocation, Claim, Class, Configured, Given, Share, Toleration},
    declared::Declaration,
    gpu::Inventory,
    plan::Held,
};

pub use cel::CelError;
pub use error::AllocateError;
use pool::Pool;
use search::Search;
use wanted::Wanted;

/// Most that one claim may be given, as in Kubernetes.
const MAX_RESULTS: usize = 32;

/// What was chosen for a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allocated {
    /// The driver whose devices they are.
    pub driver: String,
    /// The pool: the node.
    pub pool: String,
    /// The devices, in the order of the requests.
    pub results: Vec<Chosen>,
    /// The configuration that goes with them, the classes' before the claim's.
    pub config: Vec<Merged>,
}

/// A device that was chosen for a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chosen {
    /// `request` or `request/subrequest`.
    pub request: String,
    /// Its name in the pool.
    pub device: String,
    /// For looking on: takes nothing away from others.
    pub admin: bool,
    /// The request's.
    pub tolerations: Vec<Toleration>,
    /// Which part of it, where several claims may have it.
    pub share: Option<Share>,
}

/// A configuration that goes with the chosen devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Merged {
    /// Who wrote it.
    pub source: Source,
    /// Which one of the source's configurations, from 0.
    pub index: usize,
    /// The requests that it is for; none: all.
    pub requests: Vec<String>,
    /// What it says, where it is for our driver.
    pub ours: Option<Configured>,
}

/// Who wrote a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// The class of this name.
    Class(String),
    /// The claim.
    Claim,
}

/// Chooses devices for a claim, given the node and what other claims hold.
///
/// # Errors
/// When it asks for what cannot be evaluated, or for more than is free.
pub fn allocate(
    claim: &Claim,
    classes: &[Class],
    inventory: &Inventory,
    held: &[Held],
) -> Result<Allocated, AllocateError> {
    choose(claim, classes, &Pool::of(inventory, held))
}

/// The same of a node's declared devices.
///
/// # Errors
/// As [`allocate`].
pub fn declared(
    claim: &Claim,
    classes: &[Class],
    (node, declaration): (&str, &Declaration),
    held: &[Held],
) -> Result<Allocated, AllocateError> {
    choose(claim, classes, &Pool::declared(node, declaration, held))
}

/// [`allocate`], from a pool.
fn choose(claim: &Claim, classes: &[Class], pool: &Pool) -> Result<Allocated, AllocateError> {
    if claim.requests.is_empty() {
        return Err(AllocateError::Empty { claim: claim.title() });
    }
    let search = || {
        let cel = cel::Cel::new().map_err(|error| broken(claim, error.to_string()))?;
        let wanted = wanted::of(claim, classes, &pool.driver, &cel)?;
        Search::new(claim, pool, &cel, &wanted).run()
    };
    let broken = || Err(broken(claim, "the interpreter of CEL ended at once".to_owned()));
    let results = cel::with_stack(search, broken)?;
    let config = merge::merge(claim, classes, &results);
    let (driver, pool) = (pool.driver.clone(), pool.name.clone());
    Ok(Allocated { driver, pool, results, config })
}

fn broken(claim: &Claim, why: String) -> AllocateError {
    AllocateError::Broken { claim: claim.title(), why }
}

// === impl Allocated ===

impl Allocated {
    /// The allocation, as a plan is made of it.
    pub fn allocation(&self) -> Allocation {
        let given = |chosen: &Chosen| Given {
            request: chosen.request.clone(),
            pool: self.pool.clone(),
            device: chosen.device.clone(),
            admin: chosen.admin,
            share: chosen.share.clone(),
        };
        let ours = |merged: &Merged| {
            let requests = merged.requests.clone();
            merged.ours.as_ref().map(|ours| Configured { requests, ..ours.clone() })
        };
        Allocation {
            results: self.results.iter().map(given).collect(),
            config: self.config.iter().filter_map(ours).collect(),
            drivers: [self.driver.clone()].into(),
        }
    }
}

#[cfg(test)]
mod tests;
