//! Every NVML call fails once: found by the fake's own list of calls, not by hand. What is left is a
//! partition, whole, or nothing.

use divvy::gpu::{Gpus, Partition};
use divvy_fake_nvml::Rule;

use super::{
    Outcome, Test, named,
    support::{Fake, Gpu, fake, made, place},
};

const GPUS: &[Gpu] = &[("A100-40GB", true)];
const UNKNOWN: u32 = 999;
const NOT_FOUND: u32 = 6;

pub(crate) fn tests() -> Vec<Test> {
    named(
        "fault",
        &[
            ("making a partition leaves it whole, or nothing", making),
            ("ending a partition can be tried again until nothing is left", ending),
            ("an instance that ends while it is looked at is no fault", changing),
            ("an inventory is whole, or says which GPU is not", looking),
        ],
    )
}

/// The calls that `act` makes, in order, and which of its name each is.
fn calls(fake: &Fake, act: impl FnOnce(&Fake)) -> Vec<(String, u64)> {
    fake.host.watch().unwrap();
    act(fake);
    let calls = fake.host.calls().unwrap();
    assert!(calls.len() > 3, "{calls:?}");
    let mut counts = std::collections::BTreeMap::new();
    let mut counted = |call: &String| {
        let name = call.split(' ').next().unwrap().to_owned();
        let count = counts.entry(name.clone()).or_insert(0);
        *count += 1;
        (name, *count - 1)
    };
    // A session may end at any time, whatever is done in the next.
    calls.iter().map(&mut counted).filter(|(name, _)| name != "nvmlShutdown").collect()
}

fn fail(fake: &Fake, call: &str, skip: u64, after: bool) {
    let rule = Rule {
        call: call.to_owned(),
        skip,
        times: Some(1),
        fail: Some(UNKNOWN),
        after,
        ..Rule::default()
    };
    fake.host.script(&[rule]).unwrap();
}

fn create(fake: &Fake) -> Result<Partition, divvy::gpu::GpuError> {
    fake.nvml.create_partition(&fake.uuid(0), "2g.10gb", place(2, 2))
}

fn making() -> Outcome {
    let all = calls(&fake(GPUS), |fake| drop(create(fake).unwrap()));
    for after in [false, true] {
        for (call, number) in &all {
            let fake = fake(GPUS);
            fail(&fake, call, *number, after);
            let created = create(&fake);
            fake.host.script(&[]).unwrap();
            let when = format!("{call} {number}, failing after it took effect: {after}");
            let inventory = fake.nvml.inventory().unwrap_or_else(|e| panic!("{when}: {e}"));
            let gpu = &inventory.gpus[0];
            match created {
                Ok(partition) => assert_eq!(gpu.partitions(), [partition], "{when}"),
                Err(_) => assert_eq!(fake.instances(), 0, "{when}"),
            }
        }
    }
    Outcome::Done
}

fn ending() -> Outcome {
    let begin = || {
        let fake = fake(GPUS);
        let partition = create(&fake).unwrap();
        let other = fake.nvml.create_partition(&fake.uuid(0), "2g.10gb", place(0, 2)).unwrap();
        (made(&fake.uuid(0), &partition), other, fake)
    };
    let (ours, _, one) = begin();
    let all = calls(&one, |fake| fake.nvml.destroy_partition(&ours).unwrap());
    for after in [false, true] {
        for (call, number) in &all {
            let (ours, other, fake) = begin();
            fail(&fake, call, *number, after);
            let _tried = fake.nvml.destroy_partition(&ours);
            fake.host.script(&[]).unwrap();
            fake.nvml.destroy_partition(&ours).unwrap();
            let left = fake.inventory().gpus[0].clone();
            assert_eq!(left.partitions(), [other], "{call} {number}, after: {after}");
            assert_eq!(left.instances, [], "{call} {number}, after: {after}");
        }
    }
    Outcome::Done
}

fn changing() -> Outcome {
    let fake = fake(GPUS);
    create(&fake).unwrap();
    let call = "nvmlGpuInstanceGetComputeInstances".to_owned();
    let gone = Rule { call, fail: Some(NOT_FOUND), times: Some(1), ..Rule::default() };
    fake.host.script(&[gone]).unwrap();
    assert_eq!(fake.inventory().gpus[0].partitions().len(), 1);
    Outcome::Done
}

fn looking() -> Outcome {
    let begin = || {
        let fake = fake(GPUS);
        create(&fake).unwrap();
        // Another process, which has learned nothing yet.
        let nvml = divvy::gpu::nvml::Nvml::open(
            fake.host.root(),
            &divvy::gpu::Roots::default(),
            super::support::SOON,
        );
        Fake { nvml: nvml.unwrap(), ..fake }
    };
    let all = calls(&begin(), |fake| drop(fake.nvml.inventory().unwrap()));
    for (call, number) in &all {
        let fake = begin();
        fail(&fake, call, *number, false);
        let when = format!("{call} {number}");
        match fake.nvml.inventory() {
            Ok(found) => match found.gpus.as_slice() {
                [gpu] => assert_eq!((gpu.partitions().len(), found.faults.len()), (1, 0), "{when}"),
                _ => assert!(found.faults[0].to_string().contains(call), "{when}"),
            },
            Err(error) => assert!(error.to_string().contains(call), "{when}: {error}"),
        }
        fake.host.script(&[]).unwrap();
        assert_eq!(fake.inventory().gpus[0].partitions().len(), 1, "{when}");
    }
    Outcome::Done
}
