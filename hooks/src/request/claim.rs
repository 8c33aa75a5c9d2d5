//! Claims that are prepared: a record turned into devices and the spec files that define them.

use std::path::Path;

use divvy_cdi::{name::QualifiedName, problem::quoted};

use super::{Prepared, Request, Rules, limit, pod::Pod};
use crate::{
    error::HookError,
    log,
    record::{self, ClaimRecord, PodRecord, RecordError},
};

/// The namespace of a claim whose name has none.
const DEFAULT_NAMESPACE: &str = "default";

/// Adds what the pod's record gives the container; nothing if it is not in it.
pub(super) fn of_pod(
    record: &PodRecord,
    pod: &Pod,
    request: &mut Request,
) -> Result<(), HookError> {
    let Some(devices) = record.containers.get(&pod.container) else { return Ok(()) };
    let differs = |found: &str, named: &str| !named.is_empty() && found != named;
    if differs(&record.namespace, &pod.namespace) || differs(&record.name, &pod.name) {
        let PodRecord { namespace, name, .. } = record;
        return Err(HookError::OtherPod {
            what: format!("{pod} has a record that is of pod {namespace}/{name}"),
        });
    }
    let what = pod.to_string();
    same_boot(&record.boot, &what)?;
    for device in devices {
        add(request, &what, &device.name, &device.path, &device.digest)?;
    }
    Ok(())
}

/// Adds the devices of a claim that was prepared by hand, named `[namespace/]name`.
pub(super) fn by_name(
    rules: &Rules<'_>,
    key: &str,
    claim: &str,
    request: &mut Request,
) -> Result<(), HookError> {
    let (namespace, name) = claim.split_once('/').unwrap_or((DEFAULT_NAMESPACE, claim));
    let what = format!("claim {namespace}/{name}");
    let record = match rules.run_dir.local_claim(namespace, name) {
        Ok(Some(record)) => record,
        Ok(None) => {
            return Err(HookError::NotPrepared {
                what,
                path: rules.run_dir.path().join("local").join(namespace).join(name),
                advice: "prepare it on this host with divvy prepare; a claim of a pod has no name \
                         here",
            });
        }
        Err(RecordError::Misplaced { what: "origin", .. }) => {
            let what = format!("{what} belongs to pods, and only their records lead to it");
            return Err(HookError::OtherPod { what });
        }
        Err(RecordError::Name { what, value }) => {
            return Err(HookError::Invalid {
                what: format!("annotation {}", quoted(key)),
                why: format!(
                    "{} is no {what} of a claim; it is a list of [namespace/]name",
                    quoted(&value)
                ),
            });
        }
        Err(error) => return Err(error.into()),
    };
    same_boot(&record.boot, &what)?;
    if record.requests.values().all(Vec::is_empty) {
        return Err(invalid(rules, &record, "its requests hold no device".to_owned()));
    }
    for device in record.requests.values().flatten() {
        let Some(spec) = record.specs.get(device) else {
            return Err(invalid(rules, &record, format!("device {device:?} has no spec")));
        };
        add(request, &what, device, &spec.path, &spec.digest)?;
    }
    Ok(())
}

fn add(
    request: &mut Request,
    what: &str,
    name: &str,
    path: &Path,
    digest: &str,
) -> Result<(), HookError> {
    let name = QualifiedName::parse(name).map_err(|error| HookError::Invalid {
        what: format!("the record of {what}"),
        why: log::chain(&error),
    })?;
    let all = request.prepared.iter().map(|prepared| prepared.names.len()).sum::<usize>();
    limit(all + 1, || format!("the record of {what}"))?;
    let of_spec = |known: &&mut Prepared| known.path == path && known.digest == digest;
    match request.prepared.iter_mut().find(of_spec) {
        Some(known) if known.names.contains(&name) => {}
        Some(known) => known.names.push(name),
        None => request.prepared.push(Prepared {
            what: what.to_owned(),
            path: path.to_owned(),
            digest: digest.to_owned(),
            names: vec![name],
        }),
    }
    Ok(())
}

fn same_boot(boot: &str, what: &str) -> Result<(), HookError> {
    if boot == record::boot_id().map_err(HookError::Host)? {
        Ok(())
    } else {
        Err(HookError::Stale { what: what.to_owned() })
    }
}

fn invalid(rules: &Rules<'_>, claim: &ClaimRecord, why: String) -> HookError {
    RecordError::Invalid { path: rules.run_dir.claim_path(&claim.uid), why }.into()
}
