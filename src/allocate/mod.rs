//! Allocation chooses the devices of a claim that no scheduler has allocated: on this node, first
//! fit by class, selectors and count.
//!
//! What it cannot honour it refuses: a claim never gets less than it asked for.

mod selector;

use crate::{
    claim::{Allocation, Ask, Claim, Class, Configured, Count, Given, Selector, Wants},
    gpu::{Attribute, Inventory},
    plan::{self, Held, Target},
};

pub use selector::{Condition, SelectorError};

/// Why no devices were chosen.
#[derive(Debug, thiserror::Error)]
pub enum AllocateError {
    /// A selector cannot be evaluated.
    #[error("{place}")]
    Selector {
        /// Where it is written.
        place: String,
        /// Why.
        source: SelectorError,
    },
    /// The class is neither ours nor in the file.
    #[error(
        "claim {claim}: request {request}: DeviceClass {class:?} is not in the file; known without \
         being there are gpu.divvy.dev and mig.gpu.divvy.dev"
    )]
    NoClass {
        /// The claim.
        claim: String,
        /// The request.
        request: String,
        /// The class.
        class: String,
    },
    /// A field needs a full allocator.
    #[error(
        "claim {claim}: {field} cannot be honoured by the allocation on this node yet: allocate the \
         claim (status.allocation), or leave it out"
    )]
    Unsupported {
        /// The claim.
        claim: String,
        /// The field.
        field: String,
    },
    /// Nothing that fits is free.
    #[error(
        "claim {claim}: request {request}: {wanted} asked for, {free} free on node {node}\
         {}",
        Taken(taken)
    )]
    NoDevice {
        /// The claim.
        claim: String,
        /// The request.
        request: String,
        /// How many.
        wanted: u32,
        /// How many could be had.
        free: u32,
        /// The node.
        node: String,
        /// What fits but is taken, and by which claim.
        taken: Vec<String>,
    },
    /// It asks for more than any claim is given.
    #[error(
        "claim {claim}: with request {request} it asks for {wanted} devices; one claim may have at \
         most {MAX_RESULTS}, as in Kubernetes"
    )]
    TooMany {
        /// The claim.
        claim: String,
        /// The request that is too much.
        request: String,
        /// How many it asks for, up to this request.
        wanted: usize,
    },
    /// There is nothing in it.
    #[error("claim {claim}: it requests nothing")]
    Empty {
        /// The claim.
        claim: String,
    },
}

struct Taken<'a>(&'a [String]);

/// Most that one claim may be given, as in Kubernetes.
const MAX_RESULTS: usize = 32;

/// Chooses devices for a claim, given the node and what other claims hold.
///
/// # Errors
/// When it asks for what cannot be evaluated, or for more than is free.
pub fn allocate(
    claim: &Claim,
    classes: &[Class],
    inventory: &Inventory,
    held: &[Held],
) -> Result<Allocation, AllocateError> {
    if claim.requests.is_empty() {
        return Err(AllocateError::Empty { claim: claim.title() });
    }
    if let Some(field) = claim.restrictions.first() {
        return Err(unsupported(claim, format!("spec.devices.{field}")));
    }
    let mut results: Vec<Given> = Vec::new();
    let mut config: Vec<Configured> = Vec::new();
    let mut picked: Vec<Target> = Vec::new();
    for request in &claim.requests {
        let ask = match &request.wants {
            Wants::Exactly(ask) => ask,
            Wants::FirstAvailable(_) => {
                let field = format!("request {}: firstAvailable", request.name);
                return Err(unsupported(claim, field));
            }
        };
        if let Some(field) = ask.restrictions.first() {
            return Err(unsupported(claim, format!("request {}: {field}", request.name)));
        }
        let Count::Exact(wanted) = ask.count else {
            let field = format!("request {}: allocationMode All", request.name);
            return Err(unsupported(claim, field));
        };
        let all = results.len().saturating_add(usize::try_from(wanted).unwrap_or(usize::MAX));
        if all > MAX_RESULTS {
            let (claim, request) = (claim.title(), request.name.clone());
            return Err(AllocateError::TooMany { claim, request, wanted: all });
        }
        let conditions = conditions(claim, &request.name, ask, classes, &mut config)?;
        let fits = inventory
            .devices()
            .filter(|device| conditions.iter().all(|condition| condition.holds(device)));
        let mut free = 0;
        let mut taken = Vec::new();
        for device in fits {
            if free == wanted {
                break;
            }
            match plan::obstacle(&device, held) {
                Some(by) => taken.push(format!("{} {by}", device.name())),
                None if picked.iter().any(|other| other.overlaps(&Target::of(&device))) => {}
                None => {
                    let pool = inventory.node.clone();
                    let (request, device_name) = (request.name.clone(), device.name().to_string());
                    results.push(Given { request, pool, device: device_name, admin: false });
                    picked.push(Target::of(&device));
                    free += 1;
                }
            }
        }
        if free < wanted {
            taken.truncate(4);
            let (claim, request) = (claim.title(), request.name.clone());
            let node = inventory.node.clone();
            return Err(AllocateError::NoDevice { claim, request, wanted, free, node, taken });
        }
    }
    config.extend(claim.config.iter().cloned());
    Ok(Allocation { results, config })
}

/// The conditions of a request and its class; the class's configuration is added for the request.
fn conditions(
    claim: &Claim,
    request: &str,
    ask: &Ask,
    classes: &[Class],
    config: &mut Vec<Configured>,
) -> Result<Vec<Condition>, AllocateError> {
    let mut conditions = Vec::new();
    match classes.iter().find(|class| class.name == ask.class) {
        Some(class) => {
            conditions.extend(parse(&class.selectors)?);
            config.extend(class.config.iter().map(|configured| Configured {
                requests: vec![request.to_owned()],
                ..configured.clone()
            }));
        }
        None => {
            let value = match ask.class.as_str() {
                "gpu.divvy.dev" => "gpu",
                "mig.gpu.divvy.dev" => "mig",
                class => {
                    let (claim, class) = (claim.title(), class.to_owned());
                    let request = request.to_owned();
                    return Err(AllocateError::NoClass { claim, request, class });
                }
            };
            conditions.push(Condition::Attribute(Attribute::Type, value.to_owned()));
        }
    }
    conditions.extend(parse(&ask.selectors)?);
    Ok(conditions)
}

fn parse(selectors: &[Selector]) -> Result<Vec<Condition>, AllocateError> {
    let mut conditions = Vec::new();
    for selector in selectors {
        let parsed = selector::parse(&selector.expression);
        conditions.extend(
            parsed.map_err(|source| AllocateError::Selector {
                place: selector.place.clone(),
                source,
            })?,
        );
    }
    Ok(conditions)
}

fn unsupported(claim: &Claim, field: String) -> AllocateError {
    AllocateError::Unsupported { claim: claim.title(), field }
}

// === impl AllocateError ===

impl AllocateError {
    /// Stable, for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Selector { .. } => "SELECTOR-UNSUPPORTED",
            Self::Unsupported { .. } => "CLAIM-UNSUPPORTED",
            Self::NoClass { .. } | Self::Empty { .. } | Self::TooMany { .. } => "CLAIM-INVALID",
            Self::NoDevice { .. } => "NO-DEVICE",
        }
    }
}

// === impl Taken ===

impl std::fmt::Display for Taken<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            [] => Ok(()),
            taken => write!(f, ": {}", taken.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests;
