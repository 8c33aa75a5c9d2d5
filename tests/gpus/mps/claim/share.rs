//! Claims that each have a share of one GPU have one daemon.

use std::fs;

use super::{super::host::end, DIVVY, NODE, World, daemons};
use crate::{Outcome, support};

/// Writes a claim that asks for so much of a GPU's memory.
fn share(world: &World, name: &str, number: u32, memory: &str) {
    support::write(
        &world.host.path(&format!("{name}.yaml")),
        &format!(
            "apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {{name: {name}, uid: 0b8f2f4e-6a3c-4d3b-9c55-00000000000{number}}}
spec:
  devices:
    requests:
    - name: a
      exactly: {{deviceClassName: gpu.divvy.dev, capacity: {{requests: {{memory: {memory}}}}}}}
    config:
    - opaque:
        driver: gpu.divvy.dev
        parameters:
          apiVersion: gpu.divvy.dev/v1alpha1
          kind: GpuConfig
          sharing: {{mps: {{defaultActiveThreadPercentage: 30}}}}
"
        ),
    );
}

/// Prepares it on the GPU that it is given.
#[track_caller]
fn prepare(world: &World, name: &str, succeeds: bool) -> String {
    world.run(DIVVY, &["prepare", "--shares", "-f", &format!("{name}.yaml")], succeeds)
}

/// The environment and mounts of the device of a claim.
fn edits_of(world: &World, number: u32) -> String {
    let uid = format!("0b8f2f4e-6a3c-4d3b-9c55-00000000000{number}");
    let path = world.host.path("divvy/cdi").join(format!("gpu.divvy.dev-claim_{uid}.json"));
    let spec: serde_json::Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    spec["devices"][0]["containerEdits"].to_string()
}

pub(super) fn shares() -> Outcome {
    let world = world!();
    share(&world, "one", 1, "20Gi");
    share(&world, "two", 2, "30Gi");
    let said = prepare(&world, "one", true);
    assert!(said.contains("request a: 20Gi of memory is advisory"), "{said}");
    let first = daemons(&world);
    assert_eq!(first.len(), 1, "{first:?}");
    prepare(&world, "two", true);
    assert_eq!(daemons(&world), first);
    let limit = |megabytes| format!("\"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0={megabytes}M\"");
    assert!(edits_of(&world, 1).contains(&limit(20480)), "{}", edits_of(&world, 1));
    assert!(edits_of(&world, 2).contains(&limit(30720)), "{}", edits_of(&world, 2));
    let said = world.run(NODE, &["--once"], true);
    assert!(said.contains("one: in step") && said.contains("two: in step"), "{said}");
    let said = world.run(DIVVY, &["devices"], true);
    assert!(said.contains("default/one, default/two\n"), "{said}");
    // A third has no room beside them, and has the other GPU's. A fourth has none at all.
    share(&world, "three", 3, "40Gi");
    prepare(&world, "three", true);
    assert_eq!(daemons(&world).len(), 2);
    share(&world, "four", 4, "60Gi");
    let said = prepare(&world, "four", false);
    assert!(said.contains("NO-DEVICE") && said.contains("2 with too little memory"), "{said}");
    world.run(DIVVY, &["unprepare", "three"], true);
    world.run(DIVVY, &["unprepare", "one"], true);
    assert_eq!((daemons(&world), world.mode(0)), (first, 3));
    let said = world.run(NODE, &["--once"], true);
    assert!(said.contains("two: in step"), "{said}");
    // As it was before the first, which the last never saw.
    world.run(DIVVY, &["unprepare", "two"], true);
    world.nothing_left();
    Outcome::Done
}

pub(super) fn shares_lost() -> Outcome {
    let world = world!();
    for (name, number) in [("one", 1), ("two", 2)] {
        share(&world, name, number, "20Gi");
        prepare(&world, name, true);
    }
    let first = daemons(&world);
    end(first[0]);
    let said = world.run(NODE, &["--once"], true);
    assert!(said.contains("one: brought back") && said.contains("two: brought back"), "{said}");
    let second = daemons(&world);
    assert_eq!(second.len(), 1, "{second:?}");
    assert_ne!(second, first);
    let said = world.run(NODE, &["--once"], true);
    assert!(said.contains("one: in step") && said.contains("two: in step"), "{said}");
    assert_eq!(daemons(&world), second);
    // Nobody knows of it any more: neither the journal nor what it could be made anew from.
    for number in [1, 2] {
        let entry = format!("0b8f2f4e-6a3c-4d3b-9c55-00000000000{number}.json");
        support::write(&world.host.path("divvy/state/claims").join(&entry), "{");
        fs::remove_file(world.host.path("divvy/run/claims").join(&entry)).unwrap();
    }
    let said = world.run(NODE, &["--once"], true);
    assert!(said.contains("MPS control daemon shared_GPU-"), "{said}");
    world.nothing_left();
    Outcome::Done
}
