//! A node's spec names all that it has, for engines that read CDI by themselves, as `nvidia-ctk cdi
//! generate` writes one. It stays until it is written again, so it holds no number of a device node.

use std::{collections::BTreeMap, path::Path};

use divvy_cdi::spec::{ContainerEdits, Device, Spec, Version};

use super::{
    HookError,
    edits::{Scope, VOID, edits},
    hook,
};
use crate::gpu::Files;

/// A device of a node's spec.
#[derive(Debug)]
pub struct Named {
    /// Every name that it goes by.
    pub names: Vec<String>,
    /// What it needs alone.
    pub files: Files,
}

/// What a version of CDI cannot say.
#[derive(Debug, thiserror::Error)]
#[error("CDI {asked} cannot say all of it: {feature} needs CDI {needed}")]
pub struct TooOld {
    /// The version that was asked for.
    pub asked: Version,
    /// The version that is needed.
    pub needed: Version,
    /// What needs it.
    pub feature: &'static str,
}

/// The device that stands for all others.
const ALL: &str = "all";

/// The spec of a node: `common` once, each device under each of its names, and all as one.
///
/// # Errors
/// The hook's program is not there, or not to be trusted.
pub fn node(
    kind: &str,
    mut devices: Vec<Named>,
    mut common: Files,
    hook: &Path,
) -> Result<Spec, HookError> {
    devices.iter_mut().for_each(|device| hook::gather(&mut common, &mut device.files));
    let mut container_edits = edits(common, Scope::Node, hook)?;
    container_edits.env.push(VOID.to_owned());
    let (mut all, mut named) = (Files::default(), Vec::new());
    for Named { names, files } in devices {
        for node in &files.nodes {
            // Partitions of one GPU have its node in common.
            if !all.nodes.iter().any(|there| there.path == node.path) {
                all.nodes.push(node.clone());
            }
        }
        let edits = edits(files, Scope::Node, hook)?;
        named.extend(names.into_iter().map(|name| device(name, edits.clone())));
    }
    if !named.is_empty() {
        named.push(device(ALL.to_owned(), edits(all, Scope::Node, hook)?));
    }
    let mut spec = Spec {
        version: Version::V0_3_0,
        kind: kind.to_owned(),
        annotations: BTreeMap::new(),
        devices: named,
        container_edits,
    };
    spec.version = Version::required_by(&spec);
    Ok(spec)
}

fn device(name: String, container_edits: ContainerEdits) -> Device {
    Device { name, annotations: BTreeMap::new(), container_edits }
}

/// Makes a spec one of at most this version, and says whether it lost the groups that a process
/// which is not root opens some nodes by. What else it cannot say it would have to pass over.
///
/// # Errors
/// That is so.
pub fn lower(spec: &mut Spec, to: Version) -> Result<bool, TooOld> {
    let edits = spec.devices.iter_mut().map(|device| &mut device.container_edits);
    let mut lost = false;
    for edits in edits.chain([&mut spec.container_edits]) {
        if to < Version::V0_7_0 {
            lost |= !edits.additional_gids.is_empty();
            edits.additional_gids.clear();
        }
        if to < Version::V0_4_0 {
            // The options say it as well.
            edits.mounts.iter_mut().for_each(|mount| mount.kind = None);
        }
    }
    let (needed, feature) = Version::needed_by(spec);
    if needed > to {
        return Err(TooOld { asked: to, needed, feature });
    }
    spec.version = needed;
    Ok(lost)
}
