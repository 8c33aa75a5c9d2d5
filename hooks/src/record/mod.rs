//! A record is what the node side leaves for the hook in the run directory (`/run/divvy`): which
//! devices a prepared claim has, and which of them each container of a pod gets.
//!
//! ```text
//! /run/divvy/claims/<claim uid>.json          ClaimRecord
//! /run/divvy/drivers/<driver>/claims/…        the same, of drivers other than that of GPUs
//! /run/divvy/pods/<pod uid>.json              PodRecord: the hook's index for pods
//! /run/divvy/local/<namespace>/<name>         link to the ClaimRecord of a claim prepared by hand
//! ```
//!
//! A record names the spec file of each device with its digest, so the hook scans no directory.
//! The format is versioned here and nowhere else; unknown fields of the same version are skipped.

mod digest;
mod dir;
mod error;
mod local;
mod unique;

use std::{collections::BTreeMap, path::PathBuf};

use serde::{Deserialize, Serialize};

pub use digest::digest;
pub use dir::{RunDir, boot_id};
pub use error::RecordError;

/// The version of both formats that this build reads and writes.
pub const VERSION: u32 = 1;

/// The driver of GPUs.
pub const GPU_DRIVER: &str = "gpu.divvy.dev";

/// The class of prepared claims' devices (`<driver>/claim=<claim uid>-<device>`). Only a record leads
/// to them.
pub const CLAIM_CLASS: &str = "claim";

/// The most bytes that a record may have.
pub const MAX_RECORD_BYTES: usize = 1 << 20;

/// A claim that is prepared on this node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimRecord {
    /// [`VERSION`].
    pub version: u32,
    /// Who asked for it.
    pub origin: Origin,
    /// The claim's UID, also the record's file name.
    pub uid: String,
    /// The claim's namespace.
    pub namespace: String,
    /// The claim's name.
    pub name: String,
    /// Who prepared it.
    pub driver: Driver,
    /// The boot it was prepared in ([`boot_id`]): devices do not outlive it.
    pub boot: String,
    /// Request name → CDI names, in the order of allocation.
    #[serde(deserialize_with = "unique::map")]
    pub requests: BTreeMap<String, Vec<String>>,
    /// CDI name → the spec file that defines it.
    #[serde(deserialize_with = "unique::map")]
    pub specs: BTreeMap<String, SpecRef>,
    /// Who may use it (`status.reservedFor`).
    #[serde(default)]
    pub consumers: Vec<Consumer>,
    /// What its spec was made for, besides the boot; none in records of earlier builds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stamp: Option<Stamp>,
}

/// What a spec was made for: where that has changed, the spec is of the past.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    /// Version of the GPUs' driver.
    pub driver: String,
    /// Its MIG partitions, `GPU PROFILE PLACEMENT PARTITION` with the UUIDs of both, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mig: Vec<String>,
    /// A copy of the claim's journal entry, in the node side's own form: none of the hook's business.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub entry: String,
}

/// Where a claim came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// The cluster's API: it belongs to its pods and is never reachable by name.
    Api,
    /// A person on this host, by `divvy prepare`.
    Local,
}

/// The program that prepared a claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Driver {
    /// Its DRA driver name.
    pub name: String,
    /// Its version.
    pub version: String,
}

/// A spec file as it was when the claim was prepared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpecRef {
    /// Absolute.
    pub path: PathBuf,
    /// `sha256:<hex>` of its bytes ([`digest`]).
    pub digest: String,
}

/// Who may use a claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Consumer {
    /// `Pod`.
    pub kind: String,
    /// Its UID.
    pub uid: String,
    /// Its name.
    pub name: String,
}

/// What each container of a pod gets. A container that is not in it gets nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodRecord {
    /// [`VERSION`].
    pub version: u32,
    /// The pod's UID, also the record's file name.
    pub uid: String,
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub name: String,
    /// The boot it was written in ([`boot_id`]).
    pub boot: String,
    /// Container name → its devices, in order.
    #[serde(deserialize_with = "unique::map")]
    pub containers: BTreeMap<String, Vec<DeviceRef>>,
}

/// A device of a container, and the spec file that defines it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceRef {
    /// The CDI name.
    pub name: String,
    /// The spec file, absolute.
    pub path: PathBuf,
    /// `sha256:<hex>` of its bytes ([`digest`]).
    pub digest: String,
}
