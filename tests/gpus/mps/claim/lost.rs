//! What a claim had was lost: its entry, its GPUs, a boot.

use std::fs;

use divvy::gpu::ComputeMode;
use divvy_fake_nvml::Rule;

use super::{
    super::host::{clear, end},
    DIVVY, NODE, UID, WHOLE, World,
};
use crate::{Outcome, support};

pub(super) fn orphan() -> Outcome {
    let world = world!();
    world.claim(WHOLE, "GpuConfig", "{}");
    world.prepare();
    let mut container = world.container(0);
    container.given();
    container.end();
    let entry = world.host.path("divvy/state/claims").join(format!("{UID}.json"));
    let whole = fs::read(&entry).unwrap();
    support::write(&entry, "{");
    let said = world.run(NODE, &["--once"], true);
    assert!(said.contains("its entry was made anew"), "{said}");
    assert_eq!(fs::read(&entry).unwrap(), whole);
    // Damaged, and not to be made anew without its record.
    support::write(&entry, "{");
    fs::remove_file(world.host.path("divvy/run/claims").join(format!("{UID}.json"))).unwrap();
    let said = world.run(NODE, &["--once"], true);
    assert!(said.contains("no container gets its claim any more"), "{said}");
    assert!(
        said.contains(&format!("MPS control daemon {UID}-0: was there for no claim")),
        "{said}"
    );
    world.nothing_left();
    Outcome::Done
}

pub(super) fn missing() -> Outcome {
    let world = world!();
    world.claim(WHOLE, "GpuConfig", "{}");
    world.prepare();
    let libraries = world.host.path("usr/lib/x86_64-linux-gnu");
    let away = world.host.path("usr/lib/away");
    fs::rename(&libraries, &away).unwrap();
    let said = world.run(DIVVY, &["unprepare", "c"], false);
    assert!(said.contains("GPUS-MISSING"), "{said}");
    // All but what only the driver can do.
    assert_eq!(world.processes(), [0; 0]);
    fs::rename(&away, &libraries).unwrap();
    assert_eq!(world.host.fake.inventory().gpus[0].compute_mode, ComputeMode::ExclusiveProcess);
    world.unprepare();
    Outcome::Done
}

pub(super) fn rebooted() -> Outcome {
    let world = world!();
    world.claim(WHOLE, "GpuConfig", "{}");
    world.prepare();
    end(world.pid());
    clear(&world.host.path("divvy/run"));
    fs::remove_dir_all(world.host.path("divvy/run")).unwrap();
    world.host.fake.host.change(|state| state.gpus[0].compute_mode = 0).unwrap();
    let path = world.host.path("divvy/state/claims").join(format!("{UID}.json"));
    let entry: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let boot = entry["boot"].as_str().unwrap();
    let before = fs::read_to_string(&path).unwrap().replace(boot, "the-boot-before");
    support::write(&path, &before);
    let call = "nvmlDeviceGetComputeMode".to_owned();
    world.host.fake.host.script(&[Rule { call, fail: Some(999), ..Rule::default() }]).unwrap();
    let said = world.run(NODE, &["--once"], false);
    assert!(said.contains("nvmlDeviceGetComputeMode"), "{said}");
    world.host.fake.host.script(&[]).unwrap();
    let said = world.run(NODE, &["--once"], true);
    assert!(said.contains("brought back in step"), "{said}");
    assert_eq!(world.mode(0), 3);
    world.unprepare();
    Outcome::Done
}

pub(super) fn orphans() -> Outcome {
    let world = world!();
    let both = "{name: a, exactly: {deviceClassName: gpu.divvy.dev}}, \
                {name: b, exactly: {deviceClassName: gpu.divvy.dev}}";
    world.claim(both, "GpuConfig", "{}");
    world.prepare();
    let call = "nvmlDeviceSetComputeMode".to_owned();
    let gpu = Some(world.host.fake.uuid(0));
    let rule = Rule { call, gpu, fail: Some(999), ..Rule::default() };
    // The first by name cannot be set back; the other is that of the claim.
    let run = world.host.path("divvy/run/mps");
    let (own, first) = (format!("{UID}-0"), "0-0");
    let note = fs::read_to_string(run.join(&own).join("daemon.json")).unwrap();
    let mut note: serde_json::Value = serde_json::from_str(&note).unwrap();
    note["modes"].as_object_mut().unwrap().remove(&world.host.fake.uuid(0));
    support::write(&run.join(&own).join("daemon.json"), &note.to_string());
    note["name"] = first.into();
    note["modes"] = serde_json::json!({ world.host.fake.uuid(0): "Default" });
    fs::create_dir(run.join(first)).unwrap();
    support::write(&run.join(first).join("daemon.json"), &note.to_string());
    fs::remove_file(world.host.path("divvy/state/claims").join(format!("{UID}.json"))).unwrap();
    world.host.fake.host.script(&[rule]).unwrap();
    let said = world.run(NODE, &["--once"], false);
    assert!(said.contains("ending the MPS control daemon 0-0"), "{said}");
    assert!(said.contains(&format!("{own}: was there for no claim")), "{said}");
    world.host.fake.host.script(&[]).unwrap();
    let said = world.run(NODE, &["--once"], true);
    assert!(said.contains("0-0: was there for no claim"), "{said}");
    world.nothing_left();
    Outcome::Done
}
