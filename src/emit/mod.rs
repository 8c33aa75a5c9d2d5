//! What goes out for a prepared claim: a CDI spec with its devices, and the record by which the
//! hook finds them.

mod edits;
mod hook;
mod mps;
mod node;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use divvy_cdi::spec::{Device, Spec, Version};
use divvy_hook::record::{self, CLAIM_KIND, ClaimRecord, Driver, SpecRef, Stamp};

use crate::{
    claim::{DRIVER, is_uid},
    gpu::Files,
    journal::Entry,
    mps::Access,
    plan::{Planned, Target},
};

use edits::{Numbers, VOID, edits};
pub use hook::{HOOK, HookError};
pub use node::{Named, TooOld, lower, node};

/// The file name of a claim's spec.
pub fn spec_name(uid: &str) -> String {
    format!("{OF_CLAIM}{uid}.json")
}

/// The UID of the claim whose spec has this file name.
pub fn uid_of(name: &str) -> Option<&str> {
    name.strip_prefix(OF_CLAIM)?.strip_suffix(".json").filter(|uid| is_uid(uid))
}

const OF_CLAIM: &str = "gpu.divvy.dev-claim_";

/// The CDI name of a claim's device.
pub fn cdi_name(uid: &str, device: &Planned) -> String {
    format!("{CLAIM_KIND}={}", device_name(uid, device))
}

/// The name of a claim's device in its spec. Shares are told apart by their IDs: a claim may have
/// several of one device.
pub fn device_name(uid: &str, Planned { device, share, .. }: &Planned) -> String {
    match share {
        Some(share) => format!("{uid}-{device}-{}", share.id),
        None => format!("{uid}-{device}"),
    }
}

/// One device of a spec: its names there and in the pool, the UUID of what it is, and its files.
#[derive(Debug)]
pub struct Part<'a> {
    /// [`device_name`].
    pub name: String,
    /// Name in the pool.
    pub device: &'a str,
    /// UUID of the GPU or partition.
    pub uuid: &'a str,
    /// What it needs alone.
    pub files: Files,
    /// Where its control daemon of MPS is, if it has one.
    pub mps: Option<Access>,
}

/// The spec of a claim: `common` once, and each device. `hook` is the program that edits the file
/// systems of containers, where there is something to edit.
///
/// # Errors
/// The program is not there, or not to be trusted.
pub fn spec(parts: Vec<Part<'_>>, common: Files, hook: &Path) -> Result<Spec, HookError> {
    let mut shared = edits(common, Numbers::Fixed, hook)?;
    shared.env.push(VOID.to_owned());
    let device = |part: Part<'_>| {
        let mut container_edits = edits(part.files, Numbers::Fixed, hook)?;
        container_edits.env.push(format!("{}={}", variable(part.device), part.uuid));
        if let Some(access) = &part.mps {
            mps::edit(access, &mut container_edits);
        }
        Ok(Device { name: part.name, annotations: BTreeMap::new(), container_edits })
    };
    let mut spec = Spec {
        version: Version::V0_3_0,
        kind: CLAIM_KIND.to_owned(),
        annotations: BTreeMap::new(),
        devices: parts.into_iter().map(device).collect::<Result<_, _>>()?,
        container_edits: shared,
    };
    spec.version = Version::required_by(&spec);
    Ok(spec)
}

/// The record of a claim whose spec has these bytes, and is for this version of the driver.
pub fn record(entry: &Entry, bytes: &[u8], driver: &str) -> ClaimRecord {
    let mut requests = BTreeMap::<String, Vec<String>>::new();
    let mut specs = BTreeMap::new();
    let (path, digest) = (entry.spec_path(), record::digest(bytes));
    for device in &entry.devices {
        let name = cdi_name(&entry.uid, device);
        // Containers name requests, never subrequests.
        let request = device.request.split('/').next().unwrap_or_default();
        requests.entry(request.to_owned()).or_default().push(name.clone());
        specs.insert(name, SpecRef { path: path.clone(), digest: digest.clone() });
    }
    ClaimRecord {
        version: record::VERSION,
        origin: entry.origin,
        uid: entry.uid.clone(),
        namespace: entry.namespace.clone(),
        name: entry.name.clone(),
        driver: Driver { name: DRIVER.to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() },
        boot: entry.boot.clone(),
        requests,
        specs,
        consumers: entry.consumers.clone(),
        stamp: Some(Stamp { driver: driver.to_owned(), mig: mig(entry), entry: entry.copy() }),
    }
}

/// The partitions of a claim.
fn mig(entry: &Entry) -> Vec<String> {
    let partition = |device: &Planned| match (&device.target, entry.partition_of(device)) {
        (Target::Partition { gpu, profile, placement }, Some(uuid)) => {
            Some(format!("{gpu} {profile} {placement} {uuid}"))
        }
        _ => None,
    };
    let partitions: BTreeSet<String> = entry.devices.iter().filter_map(partition).collect();
    partitions.into_iter().collect()
}

/// `DIVVY_GPU_0000_1B_00`: tells a container with several devices which is which. The name is
/// the device's, so that two claims in one container never fight over one variable.
fn variable(device: &str) -> String {
    format!("DIVVY_{}", device.replace(['-', '.'], "_").to_ascii_uppercase())
}

#[cfg(test)]
mod tests;
