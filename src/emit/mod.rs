//! What goes out for a prepared claim: a CDI spec with its devices, and the record by which the
//! hook finds them.

mod hook;
mod mps;

use std::{collections::BTreeMap, path::Path};

use divvy_cdi::{
    host::NodeKind,
    spec::{ContainerEdits, Device, DeviceNode, DeviceType, Mount, Spec, Version},
};
use divvy_hook::record::{self, CLAIM_KIND, ClaimRecord, Driver, SpecRef};

use crate::{
    claim::DRIVER,
    gpu::{Files, MountFile, MountKind, NodeFile},
    journal::Entry,
    mps::Access,
    plan::Planned,
};

pub use hook::{HOOK, HookError};

/// The file name of a claim's spec.
pub fn spec_name(uid: &str) -> String {
    format!("{OF_CLAIM}{uid}.json")
}

/// Whether a claim's spec has this file name.
pub fn is_spec(name: &str) -> bool {
    name.starts_with(OF_CLAIM) && name.ends_with(".json")
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
pub fn spec(parts: Vec<Part<'_>>, mut common: Files, hook: &Path) -> Result<Spec, HookError> {
    let edit = hook::edit(hook, &mut common)?;
    let mut shared = edits(common);
    shared.hooks.extend(edit);
    // Keeps NVIDIA's own runtime, where it is the low-level one, from adding every GPU.
    shared.env.push("NVIDIA_VISIBLE_DEVICES=void".to_owned());
    let device = |part: Part<'_>| {
        let mut container_edits = edits(part.files);
        container_edits.env.push(format!("{}={}", variable(part.device), part.uuid));
        if let Some(access) = &part.mps {
            mps::edit(access, &mut container_edits);
        }
        Device { name: part.name, annotations: BTreeMap::new(), container_edits }
    };
    let mut spec = Spec {
        version: Version::V0_3_0,
        kind: CLAIM_KIND.to_owned(),
        annotations: BTreeMap::new(),
        devices: parts.into_iter().map(device).collect(),
        container_edits: shared,
    };
    spec.version = Version::required_by(&spec);
    Ok(spec)
}

/// The record of a claim whose spec has these bytes.
pub fn record(entry: &Entry, bytes: &[u8]) -> ClaimRecord {
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
    }
}

fn edits(files: Files) -> ContainerEdits {
    let node = |file: NodeFile| DeviceNode {
        host_path: (file.host_path != file.path).then_some(file.host_path),
        path: file.path,
        kind: Some(match file.node.kind {
            NodeKind::Block => DeviceType::Block,
            NodeKind::Char => DeviceType::Char,
            NodeKind::Fifo => DeviceType::Fifo,
        }),
        major: i64::from(file.node.major),
        minor: i64::from(file.node.minor),
        ..DeviceNode::default()
    };
    let mount = |file: MountFile| Mount {
        host_path: file.host_path,
        container_path: file.path,
        options: options(file.kind).iter().map(|&option| option.to_owned()).collect(),
        // runc tells a bind mount by its options; crun may crash on a mount without type.
        kind: Some("bind".to_owned()),
    };
    ContainerEdits {
        device_nodes: files.nodes.into_iter().map(node).collect(),
        mounts: files.mounts.into_iter().map(mount).collect(),
        ..ContainerEdits::default()
    }
}

fn options(kind: MountKind) -> &'static [&'static str] {
    match kind {
        MountKind::File => &["ro", "nosuid", "nodev", "rbind", "rprivate"],
        // Nobody connects to a socket that is read-only.
        MountKind::Socket => &["nosuid", "nodev", "noexec", "rbind", "rprivate"],
    }
}

/// `DIVVY_GPU_0000_1B_00`: tells a container with several devices which is which. The name is
/// the device's, so that two claims in one container never fight over one variable.
fn variable(device: &str) -> String {
    format!("DIVVY_{}", device.replace(['-', '.'], "_").to_ascii_uppercase())
}

#[cfg(test)]
mod tests;
