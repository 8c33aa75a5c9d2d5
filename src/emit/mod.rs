//! What goes out for a prepared claim: a CDI spec with its devices, and the record by which the
//! hook finds them.

mod edits;
mod hook;
mod metadata;
mod mps;
mod node;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use divvy_cdi::spec::{ContainerEdits, Device, Spec, Version};
use divvy_hook::record::{self, CLAIM_CLASS, ClaimRecord, Driver, SpecRef, Stamp};

use crate::{
    claim::{DRIVER, is_uid},
    gpu::Files,
    journal::Entry,
    mps::Access,
    plan::{Planned, Target},
};

use edits::{Scope, VOID, edits};
pub use hook::{HOOK, HookError};
pub use metadata::{Metadata, Told, metadata, metadata_dir};
pub use node::{Named, TooOld, lower, node};

/// The file name of a claim's spec.
pub fn spec_name(driver: &str, uid: &str) -> String {
    format!("{driver}{OF_CLAIM}{uid}.json")
}

/// The UID of the claim whose spec, of this driver's, has this file name.
pub fn uid_of<'a>(driver: &str, name: &'a str) -> Option<&'a str> {
    let rest = name.strip_prefix(driver)?.strip_prefix(OF_CLAIM)?;
    rest.strip_suffix(".json").filter(|uid| is_uid(uid))
}

const OF_CLAIM: &str = "-claim_";

/// The CDI kind of a driver's prepared claims.
fn kind(driver: &str) -> String {
    format!("{driver}/{CLAIM_CLASS}")
}

/// The CDI name of a claim's device, as its entry has it.
pub fn cdi_name(Entry { driver, uid, .. }: &Entry, device: &Planned) -> String {
    name_of(driver, uid, device)
}

fn name_of(driver: &str, uid: &str, device: &Planned) -> String {
    format!("{}={}", kind(driver), device_name(uid, device))
}

/// The name of a claim's device in its spec. Shares are told apart by how their IDs begin, as a claim may have several
/// of one device; all of an ID would make the name longer than some take.
pub fn device_name(uid: &str, Planned { device, share, .. }: &Planned) -> String {
    match share {
        Some(share) => {
            format!("{uid}-{device}-{}", share.id.get(..SHARE).unwrap_or(share.id.as_str()))
        }
        None => format!("{uid}-{device}"),
    }
}

/// As many characters of a share's ID.
const SHARE: usize = 8;

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
pub fn spec(mut parts: Vec<Part<'_>>, mut common: Files, hook: &Path) -> Result<Spec, HookError> {
    parts.iter_mut().for_each(|part| hook::gather(&mut common, &mut part.files));
    let mut shared = edits(common, Scope::Claim, hook)?;
    shared.env.push(VOID.to_owned());
    let device = |part: Part<'_>| {
        let mut container_edits = edits(part.files, Scope::Claim, hook)?;
        container_edits.env.push(format!("{}={}", variable(part.device), part.uuid));
        if let Some(access) = &part.mps {
            mps::edit(access, &mut container_edits);
        }
        Ok(Device { name: part.name, annotations: BTreeMap::new(), container_edits })
    };
    Ok(of_claim(DRIVER, parts.into_iter().map(device).collect::<Result<_, _>>()?, shared))
}

/// The spec of a claim on declared devices: each by its name there and in the pool, with its edits.
pub fn declared(driver: &str, parts: Vec<(String, &str, ContainerEdits)>) -> Spec {
    let device = |(name, device, mut container_edits): (String, &str, ContainerEdits)| {
        // No device is without: a spec could not have it.
        container_edits.env.push(format!("{}={device}", variable(&format!("{driver}_{device}"))));
        Device { name, annotations: BTreeMap::new(), container_edits }
    };
    of_claim(driver, parts.into_iter().map(device).collect(), ContainerEdits::default())
}

fn of_claim(driver: &str, devices: Vec<Device>, container_edits: ContainerEdits) -> Spec {
    let mut spec = Spec {
        version: Version::V0_3_0,
        kind: kind(driver),
        annotations: BTreeMap::new(),
        devices,
        container_edits,
    };
    spec.version = Version::required_by(&spec);
    spec
}

/// Adds the files by which its containers are told what they have.
pub fn tell(spec: &mut Spec, entry: &Entry) {
    spec.devices.extend(metadata(entry).iter().map(Told::device));
    spec.version = Version::required_by(spec);
}

/// The record of a claim whose spec has these bytes, and is for this version of the driver.
pub fn record(entry: &Entry, bytes: &[u8], driver: &str) -> ClaimRecord {
    let mut requests = BTreeMap::<String, Vec<String>>::new();
    let mut specs = BTreeMap::new();
    let (path, digest) = (entry.spec_path(), record::digest(bytes));
    let told = metadata(entry);
    for device in &entry.devices {
        let name = cdi_name(entry, device);
        // Containers name requests, never subrequests.
        let request = device.request.split('/').next().unwrap_or_default();
        requests.entry(request.to_owned()).or_default().push(name.clone());
        specs.insert(name, SpecRef { path: path.clone(), digest: digest.clone() });
    }
    for told in told {
        let name = told.cdi_name(entry);
        requests.entry(told.request).or_default().push(name.clone());
        specs.insert(name, SpecRef { path: path.clone(), digest: digest.clone() });
    }
    ClaimRecord {
        version: record::VERSION,
        origin: entry.origin,
        uid: entry.uid.clone(),
        namespace: entry.namespace.clone(),
        name: entry.name.clone(),
        driver: Driver {
            name: entry.driver.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        },
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
