//! A claim is a request for devices, and once it is allocated their names: a ResourceClaim of
//! Kubernetes (resource.k8s.io/v1) or of a person who wrote one by hand.

mod ask;
mod config;
pub(crate) mod field;
mod manifest;
pub(crate) mod name;
mod review;
mod schema;
pub(crate) mod served;
mod share;
pub(crate) mod tree;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::Path,
};

use serde::Serialize;

use divvy_cdi::{doc::DocError, file::FileError, problem::Problem};
use divvy_hook::record::Consumer;

pub(crate) use config::covers;
pub use config::{Configured, DeviceKey, Kind, MpsSettings, Sharing};
pub(crate) use manifest::objects;
pub use manifest::{Class, MAX_BYTES, Manifests};
pub(crate) use name::{is_uid, wrong_with};
pub use review::review;
pub use share::Share;

use crate::{publish::Effect, quantity::Quantity};

/// The name of our driver: in allocations, opaque configuration and attributes.
pub const DRIVER: &str = "gpu.divvy.dev";

/// The name of NVIDIA's own driver.
pub const NVIDIA_DRIVER: &str = "gpu.nvidia.com";

/// A claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Claim {
    /// `metadata.uid`, else made of namespace and name.
    pub uid: String,
    /// Its namespace, `default` when unset.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// What it asks for.
    pub requests: Vec<Request>,
    /// What must hold of its devices together.
    pub constraints: Vec<Constraint>,
    /// The claim's own configuration, which counts until it is allocated.
    pub config: Vec<ConfigEntry>,
    /// What it was given, once it was.
    pub allocation: Option<Allocation>,
    /// The pod's name for it, where a template made it. No part of what is asked for.
    #[serde(skip)]
    pub pod_claim: Option<String>,
    /// Who may use it (`status.reservedFor`). They come and go: no part of what is asked for.
    #[serde(skip)]
    pub consumers: Vec<Consumer>,
}

/// One request of a claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Request {
    /// Its name in the claim.
    pub name: String,
    /// What would do.
    pub wants: Wants,
}

/// What would satisfy a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum Wants {
    /// Exactly this.
    Exactly(Ask),
    /// The first of these, by the name of the subrequest, that can be had.
    FirstAvailable(Vec<(String, Ask)>),
}

/// Devices of a class.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Ask {
    /// The class's name.
    pub class: String,
    /// CEL expressions that all must hold.
    pub selectors: Vec<Selector>,
    /// How many.
    pub count: Count,
    /// For looking on: takes nothing away from others.
    pub admin: bool,
    /// The taints that do not matter.
    pub tolerations: Vec<Toleration>,
    /// How much of each capacity, at least.
    pub capacity: BTreeMap<String, Quantity>,
    /// Fields that this allocator cannot honour.
    pub restrictions: Vec<String>,
}

/// What must hold of an attribute of the devices of some requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Constraint {
    /// `request` or `request/subrequest`; none: all.
    pub requests: Vec<String>,
    /// `domain/name`
    pub attribute: String,
    /// What must hold.
    pub rule: Rule,
}

/// What a constraint demands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Rule {
    /// All devices have the same value.
    Match,
    /// No two devices have the same value.
    Distinct,
}

/// Taints that a request does not mind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Toleration {
    /// Of this key; of every one where it is empty.
    pub key: String,
    /// Of this value; of every one where it is none.
    pub value: Option<String>,
    /// Of this effect; of every one where it is none.
    pub effect: Option<Effect>,
}

/// One entry of a list of configurations, whichever driver it is for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ConfigEntry {
    /// `request` or `request/subrequest`; none: all.
    pub requests: Vec<String>,
    /// What it says, where it is for our driver.
    pub ours: Option<Configured>,
}

/// How many devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Count {
    /// This many, from 1.
    Exact(u32),
    /// All there are.
    All,
}

/// A CEL expression over a device, and where it is written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Selector {
    /// The expression.
    pub expression: String,
    /// `file:line:column: field`, for errors. No part of what is asked for.
    #[serde(skip)]
    pub place: String,
}

/// What a claim was given.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Allocation {
    /// The devices of the driver that it was read for.
    pub results: Vec<Given>,
    /// That driver's configuration, classes' before the claim's.
    pub config: Vec<Configured>,
    /// Every driver that it has devices of. No part of what is asked for.
    #[serde(skip)]
    pub drivers: BTreeSet<String>,
}

/// One device that a request was given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Given {
    /// `request` or `request/subrequest`.
    pub request: String,
    /// The pool: the node.
    pub pool: String,
    /// The device.
    pub device: String,
    /// For looking on: takes nothing away from others.
    pub admin: bool,
    /// Which part of it, where several claims may have it.
    pub share: Option<Share>,
}

/// What errors name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Manifest<'a> {
    pub(crate) file: &'a Path,
    /// A person's text, in which errors have a line; none of what the API server sent.
    pub(crate) bytes: Option<&'a [u8]>,
    /// Whose devices and configuration are read.
    pub(crate) driver: &'a str,
}

/// Why a claim cannot be read from a file.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// The file cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// Neither YAML nor JSON.
    #[error("{file}{}", Colon(source.at))]
    Document {
        /// The file.
        file: String,
        /// Where, and what is wrong.
        source: DocError,
    },
    /// Two objects of a file are one.
    #[error("{file}: {what} is there twice")]
    Twice {
        /// The file.
        file: String,
        /// The object.
        what: String,
    },
    /// A field is wrong.
    #[error(transparent)]
    Invalid(Box<Problem>),
    /// Several things are.
    #[error("{} things are wrong in {file}", problems.len())]
    Many {
        /// The file.
        file: String,
        /// Each of them.
        problems: Vec<ClaimError>,
    },
    /// The file holds other things.
    #[error("{file}: no ResourceClaim in it; it holds {found}")]
    NoClaim {
        /// The file.
        file: String,
        /// The kinds it holds.
        found: String,
    },
    /// The file has claims, but none of this name.
    #[error("{file}: no ResourceClaim {name:?} in it; it holds {}", found.join(", "))]
    NoSuchClaim {
        /// The file.
        file: String,
        /// The name asked for.
        name: String,
        /// The claims it holds.
        found: Vec<String>,
    },
}

struct Colon(Option<divvy_cdi::problem::Position>);

impl fmt::Display for Colon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(at) => write!(f, ":{}:{}", at.line, at.column),
            None => Ok(()),
        }
    }
}

// === impl Claim ===

impl Claim {
    /// `namespace/name`
    pub fn title(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Says whether two readings of a claim ask for the same; where it stands in a file does not
    /// count.
    pub fn digest(&self, classes: &[Class]) -> String {
        let asked = serde_json::to_vec(&(self, classes)).unwrap_or_default();
        divvy_hook::record::digest(&asked)
    }
}

/// The UID of a claim that has none: always the same for the same name.
fn local_uid(namespace: &str, name: &str) -> String {
    let url = format!("https://{DRIVER}/resourceclaims/{namespace}/{name}");
    uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_URL, url.as_bytes()).to_string()
}

// === impl ClaimError ===

impl ClaimError {
    /// Stable, for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::File(file) => file.code(),
            Self::Document { .. }
            | Self::Twice { .. }
            | Self::NoClaim { .. }
            | Self::NoSuchClaim { .. } => "CLAIM-INVALID",
            Self::Invalid(problem) => problem.code,
            Self::Many { problems, .. } => problems.first().map_or("CLAIM-INVALID", Self::code),
        }
    }
}

#[cfg(test)]
mod tests;
