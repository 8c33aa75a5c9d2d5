//! The index is the record of a pod: made of the pod and of the records of its claims, and nothing
//! else.

use std::collections::BTreeMap;

use divvy_hook::record::{ClaimRecord, DeviceRef, PodRecord, VERSION};

use super::pod::Pod;

/// What a claim of a pod is to us.
#[derive(Debug, Clone, Copy)]
pub(super) enum Of<'a> {
    /// Our driver gave it devices, and this is its record.
    Us(&'a ClaimRecord),
    /// It has no device of our driver's.
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
            let Some(Of::Us(claim)) = claims.get(one.claim.as_str()) else { continue };
            let requests = claim.requests.iter();
            let named = requests.filter(|(request, _)| match &one.request {
                Some(wanted) => *request == wanted,
                None => true,
            });
            for name in named.flat_map(|(_, names)| names) {
                let Some(spec) = claim.specs.get(name) else { continue };
                if devices.iter().any(|device| device.name == *name) {
                    continue;
                }
                let (path, digest) = (spec.path.clone(), spec.digest.clone());
                devices.push(DeviceRef { name: name.clone(), path, digest });
            }
        }
        if !devices.is_empty() {
            containers.insert(container.clone(), devices);
        }
    }
    let Pod { uid, namespace, name, .. } = pod.clone();
    Some(PodRecord { version: VERSION, uid, namespace, name, boot: boot.to_owned(), containers })
}
