//! The index is the record of a pod: made of the pod and of the records of its claims, and nothing
//! else.

use std::collections::BTreeMap;

use divvy_hook::record::{ClaimRecord, DeviceRef, PodRecord, VERSION};

use super::pod::{Pod, Use};

/// What a claim of a pod is to us.
#[derive(Debug, Clone, Copy)]
pub(super) enum Of<'a> {
    /// Drivers of ours gave it devices, and these are their records.
    Us(&'a BTreeMap<String, ClaimRecord>),
    /// It has no device of ours.
    Others,
}

/// The record of a pod whose claims are these; none where no container of it may wait for one.
pub(super) fn record(pod: &Pod, boot: &str, claims: &BTreeMap<&str, Of<'_>>) -> Option<PodRecord> {
    let is_ours = |of: &Of<'_>| matches!(of, Of::Us(_));
    if !pod.has_handler && !claims.values().any(is_ours) {
        return None;
    }
    let mut containers = BTreeMap::new();
    for (container, uses) in &pod.containers {
        let mut devices: Vec<DeviceRef> = Vec::new();
        for one in uses {
            let Some(Of::Us(records)) = claims.get(one.claim.as_str()) else { continue };
            for device in records.values().flat_map(|claim| named(claim, one)) {
                if devices.iter().all(|known| known.name != device.name) {
                    devices.push(device);
                }
            }
        }
        if !devices.is_empty() {
            containers.insert(container.clone(), devices);
        }
    }
    let Pod { uid, namespace, name, .. } = pod.clone();
    Some(PodRecord { version: VERSION, uid, namespace, name, boot: boot.to_owned(), containers })
}

/// The devices of a claim that a container names.
fn named<'a>(claim: &'a ClaimRecord, one: &'a Use) -> impl Iterator<Item = DeviceRef> + 'a {
    let requests = claim.requests.iter();
    let named = requests
        .filter(|(request, _)| one.request.as_ref().is_none_or(|wanted| *request == wanted));
    named.flat_map(|(_, names)| names).filter_map(|name| {
        let spec = claim.specs.get(name)?;
        let (path, digest) = (spec.path.clone(), spec.digest.clone());
        Some(DeviceRef { name: name.clone(), path, digest })
    })
}
