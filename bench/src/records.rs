//! The records that the node side keeps of prepared claims, as the bench needs them.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use divvy_hook::record::{
    ClaimRecord, Consumer, DeviceRef, Driver, Origin, PodRecord, RunDir, SpecRef, VERSION, boot_id,
    digest,
};

use crate::nvidia::uuid;
use crate::room::Room;
use crate::workload::{POD, Workload};

/// Writes a record for every claim of a workload, and the pod's, whose container gets `devices`.
pub(crate) fn write(room: &Room, workload: &Workload, devices: &[String]) -> Result<()> {
    let run_dir = RunDir::new(room.run_dir());
    let boot = boot_id()?;
    let mut granted = Vec::new();
    for (number, (path, content)) in (0..).zip(&workload.specs) {
        if !path.starts_with("/var/run/cdi/") {
            continue;
        }
        let spec: serde_json::Value = serde_json::from_str(content)?;
        let text =
            |pointer| spec.pointer(pointer).and_then(|v| v.as_str()).context("no claim spec");
        let name = format!("{}={}", text("/kind")?, text("/devices/0/name")?);
        let digest = digest(content.as_bytes());
        if devices.contains(&name) {
            let (name, digest) = (name.clone(), digest.clone());
            granted.push(DeviceRef { name, path: path.into(), digest });
        }
        let consumer = Consumer { kind: "Pod".into(), uid: uuid(number), name: "train-0".into() };
        run_dir.write_claim(&ClaimRecord {
            version: VERSION,
            origin: Origin::Api,
            uid: uuid(9000 + number),
            namespace: "team".into(),
            name: format!("claim-{number}"),
            driver: Driver { name: "gpu.divvy.dev".into(), version: "0.1.0".into() },
            boot: boot.clone(),
            requests: BTreeMap::from([("gpu".into(), vec![name.clone()])]),
            specs: BTreeMap::from([(name, SpecRef { path: path.into(), digest })]),
            consumers: vec![consumer],
            stamp: None,
        })?;
    }
    run_dir.write_pod(&PodRecord {
        version: VERSION,
        uid: POD.into(),
        namespace: "team".into(),
        name: "train-0".into(),
        boot,
        containers: BTreeMap::from([("main".into(), granted)]),
    })?;
    Ok(())
}
