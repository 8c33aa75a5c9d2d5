//! A claim is prepared, used and ended, and its daemon with it, whatever happens to either.

use std::{fs, process::Stdio};

use divvy_fake_nvml::{Rule, mps::Script};

use super::{
    super::{host::end, service::Service},
    DIVVY, NODE, PART, UID, WHOLE, World,
};
use crate::{
    Outcome,
    support::{self, eventually},
};

pub(super) fn whole_life() -> Outcome {
    let world = world!();
    let limits = "{defaultActiveThreadPercentage: 40, defaultPinnedDeviceMemoryLimit: 3Gi}";
    world.claim(WHOLE, "GpuConfig", limits);
    let said = world.prepare();
    assert!(said.contains("MPS, 40% of threads, 3Gi pinned memory"), "{said}");
    assert!(!said.contains("note"), "{said}");
    let pid = world.pid();
    assert_eq!(world.mode(0), 3, "EXCLUSIVE_PROCESS");
    let edits = world.edits(0);
    let mounts: Vec<(&str, &str)> = edits["mounts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["containerPath"].as_str().unwrap(), one["options"][0].as_str().unwrap()))
        .collect();
    assert_eq!(mounts, [("/tmp/nvidia-mps", "ro"), ("/dev/shm", "rw")]);
    let (mut one, mut other) = (world.container(0), world.container(0));
    for container in [&mut one, &mut other] {
        let given = container.given();
        let uuid = world.host.fake.uuid(0);
        assert!(given.contains(&format!("percentage=40 memory={uuid}=3G ")), "{given}");
        assert!(given.contains("shared=true"), "{given}");
    }
    // Again: verified, the same, and nobody is disturbed.
    assert!(world.prepare().contains("verified"));
    assert_eq!(world.pid(), pid);
    assert!(one.runs() && other.runs());
    one.end();
    other.end();
    world.unprepare();
    Outcome::Done
}

pub(super) fn killed() -> Outcome {
    let world = world!();
    world.claim(WHOLE, "GpuConfig", "{}");
    world.prepare();
    // Of those that divvy-node has started itself, not of what this test has: they could be in its
    // cgroup.
    for round in 0..2 {
        let before = world.pid();
        end(before);
        let service = Service::new(&format!("node-{}-{round}", std::process::id()));
        let mut node = service.command(&world.command(NODE, &[]));
        let mut node = node.stderr(Stdio::null()).spawn().unwrap();
        eventually("another daemon", || world.noted().is_some_and(|pid| pid != before));
        let pid = world.pid();
        let record = world.host.path(&format!("divvy/run/claims/{UID}.json"));
        eventually("its record", || {
            fs::read_to_string(&record).unwrap().contains(&format!("pid\\\":{pid},"))
        });
        let mut container = world.container(0);
        container.given();
        service.end(node.id());
        assert!(!node.wait().unwrap().success());
        let said = world.run(NODE, &["--once"], true);
        assert!(said.contains("claim default/c: in step"), "{said}");
        assert_eq!(world.pid(), pid);
        assert!(container.runs());
        container.end();
    }
    world.unprepare();
    Outcome::Done
}

pub(super) fn brought_back() -> Outcome {
    let world = world!();
    world.claim(WHOLE, "GpuConfig", "{defaultActiveThreadPercentage: 10}");
    world.prepare();
    let pid = world.pid();
    let entry = world.host.path("divvy/state/claims").join(format!("{UID}.json"));
    let before = fs::read_to_string(&entry).unwrap();
    end(pid);
    let said = world.run(NODE, &["--once"], true);
    assert!(said.contains("brought back in step"), "{said}");
    assert_ne!(world.pid(), pid);
    let mut container = world.container(0);
    assert!(container.given().contains("percentage=10"));
    // As after a crash that came between starting it and noting that.
    let started = world.pid();
    support::write(&entry, &before);
    let said = world.run(NODE, &["--once"], true);
    assert!(said.contains("brought back in step"), "{said}");
    assert_eq!(world.pid(), started);
    assert!(container.runs());
    container.end();
    let said = world.run(NODE, &["--once"], true);
    assert!(said.contains("in step") && !said.contains("back"), "{said}");
    world.unprepare();
    Outcome::Done
}

pub(super) fn partition() -> Outcome {
    let world = world!();
    world.claim(PART, "MigDeviceConfig", "{defaultPinnedDeviceMemoryLimit: 1Gi}");
    world.prepare();
    assert_eq!(world.mode(1), 0, "a partition has no compute mode");
    let uuid = world.host.fake.inventory().gpus[1].partitions()[0].uuid.clone();
    let mut container = world.container(0);
    assert!(container.given().contains(&format!("memory={uuid}=1G ")));
    container.end();
    // Lost, and made again: as another, which only another daemon can serve.
    let pid = world.pid();
    world.host.fake.host.change(|state| state.gpus[1].instances.clear()).unwrap();
    let said = world.run(NODE, &["--once"], true);
    assert!(said.contains("brought back in step"), "{said}");
    let other = world.host.fake.inventory().gpus[1].partitions()[0].uuid.clone();
    assert_ne!(world.pid(), pid);
    let mut container = world.container(0);
    let given = container.given();
    assert!(other != uuid && given.contains(&format!("memory={other}=1G ")), "{given}");
    container.end();
    world.unprepare();
    Outcome::Done
}

pub(super) fn two_gpus() -> Outcome {
    let world = world!();
    let both = "{name: a, exactly: {deviceClassName: gpu.divvy.dev, count: 2}}";
    let limits = "{defaultPerDevicePinnedMemoryLimit: {'1': 2Gi}}";
    world.claim(both, "GpuConfig", limits);
    world.prepare();
    assert_eq!([world.mode(0), world.mode(1), world.mode(2)], [3, 0, 3]);
    let environment = fs::read(format!("/proc/{}/environ", world.pid())).unwrap();
    let devices =
        format!("CUDA_VISIBLE_DEVICES={},{}", world.host.fake.uuid(0), world.host.fake.uuid(2));
    let told = environment.split(|b| *b == 0).any(|one| one == devices.as_bytes());
    assert!(told, "{}", String::from_utf8_lossy(&environment));
    let (mut one, mut other) = (world.container(0), world.container(1));
    let limit = format!("memory={}=2G ", world.host.fake.uuid(2));
    assert!(one.given().contains(&limit) && other.given().contains(&limit));
    one.end();
    other.end();
    world.unprepare();
    Outcome::Done
}

pub(super) fn refused() -> Outcome {
    let world = world!();
    world.claim(WHOLE, "GpuConfig", "{defaultActiveThreadPercentage: 10}");
    let set = "set_default_active_thread_percentage";
    for (script, code, says) in [
        (Script { refuses: Some(set.to_owned()), ..Script::default() }, "MPS-SETTING", "100.0"),
        (Script { answer: Some("?".to_owned()), ..Script::default() }, "MPS-START", "percentage"),
        (Script { dies_after: Some(0), ..Script::default() }, "MPS-START", "Segmentation"),
    ] {
        world.host.fake.host.script_mps(&script).unwrap();
        let said = world.run(DIVVY, &["prepare", "-f", "claim.yaml"], false);
        assert!(said.contains(code) && said.contains(says), "{said}");
        assert!(said.contains(&world.host.fake.uuid(0)), "{said}");
        world.nothing_left();
    }
    world.host.fake.host.script_mps(&Script::default()).unwrap();
    fs::remove_file(world.host.path("usr/bin/nvidia-cuda-mps-control")).unwrap();
    let said = world.run(DIVVY, &["prepare", "-f", "claim.yaml"], false);
    assert!(
        said.contains("NO-DRIVER") && said.contains("opt/bin/nvidia-cuda-mps-control"),
        "{said}"
    );
    world.nothing_left();
    Outcome::Done
}

pub(super) fn modes() -> Outcome {
    let world = world!();
    world.claim(WHOLE, "GpuConfig", "{}");
    // PROHIBITED, by an administrator.
    world.host.fake.host.change(|state| state.gpus[0].compute_mode = 2).unwrap();
    world.prepare();
    assert_eq!(world.mode(0), 3);
    world.host.fake.host.change(|state| state.gpus[0].compute_mode = 0).unwrap();
    let said = world.run(NODE, &["--once"], true);
    assert!(said.contains("brought back in step"), "{said}");
    assert_eq!(world.mode(0), 3);
    // It cannot be set back: said, and done the next time.
    let call = "nvmlDeviceSetComputeMode".to_owned();
    let rule = Rule { call, fail: Some(999), ..Rule::default() };
    world.host.fake.host.script(&[rule]).unwrap();
    let said = world.run(DIVVY, &["unprepare", "c"], false);
    assert!(said.contains("nvmlDeviceSetComputeMode"), "{said}");
    assert_eq!(world.processes(), [0; 0]);
    world.host.fake.host.script(&[]).unwrap();
    world.run(DIVVY, &["unprepare", "c"], true);
    assert_eq!(world.mode(0), 2);
    world.host.fake.host.change(|state| state.gpus[0].compute_mode = 0).unwrap();
    world.nothing_left();
    Outcome::Done
}
