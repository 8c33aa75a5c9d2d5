//! The contract of every backend.

use std::collections::BTreeMap;

use divvy::{
    gpu::{ComputeMode, Device, GpuError, Gpus, Interval, Inventory, MadePartition, Mig},
    publish::{self, Offer, Slice},
    quantity::Quantity,
};

use super::{
    Outcome, Test,
    support::{self, Fake, Gpu, fails, made, place},
};

const GPUS: &[Gpu] = &[
    ("H100-80GB", false),
    ("H100-80GB", true),
    ("A100-40GB", true),
    ("A30-24GB", true),
    ("L40S-48GB", false),
    ("T4-16GB", false),
];

type Contract = fn(&dyn Gpus);

const CONTRACT: [(&str, Contract); 9] = [
    ("an inventory says what each GPU is", describes),
    ("every place of every profile can be taken and given back", every_place),
    ("what is in the way is named, and nothing is changed", in_the_way),
    ("what no GPU has is refused", refused),
    ("media extensions exist once", media),
    ("what is not ours stays", not_ours),
    ("time slices and compute modes stay as they were set", settings),
    ("MIG mode is switched where that takes effect at once, and empty", mig_mode),
    ("any order of making and ending keeps to the placement rules", random),
];

pub(crate) fn tests() -> Vec<Test> {
    let mut tests: Vec<Test> = Vec::new();
    for (name, contract) in CONTRACT {
        tests.push((
            format!("contract::sim::{name}"),
            Box::new(move || {
                let folder = support::folder();
                contract(support::shared(&support::sim(folder.path(), GPUS)));
                Outcome::Done
            }),
        ));
        tests.push((
            format!("contract::nvml::{name}"),
            Box::new(move || {
                contract(support::shared(&support::fake(GPUS).nvml));
                Outcome::Done
            }),
        ));
    }
    let nodes = || {
        let fake = support::fake(GPUS);
        match support::no_nodes(&fake) {
            Some(why) => Outcome::Skipped(why),
            None => files(&fake),
        }
    };
    tests.push(("contract::nvml::files".to_owned(), Box::new(nodes)));
    tests.push(("contract::both say the same of all that they do".to_owned(), Box::new(same)));
    tests
}

fn describes(gpus: &dyn Gpus) {
    let inventory = gpus.inventory().unwrap();
    assert_eq!(inventory.gpus.len(), GPUS.len());
    assert!(inventory.gpus.is_sorted_by_key(|gpu| gpu.pci));
    assert_eq!((inventory.driver.version.as_str(), inventory.driver.cuda), ("580.65.06", (13, 0)));
    let h100 = &inventory.gpus[0];
    assert_eq!(h100.product, "NVIDIA H100 80GB HBM3");
    assert_eq!((h100.architecture.as_str(), h100.brand.as_str()), ("Hopper", "Nvidia"));
    assert_eq!((h100.compute, h100.memory), ((9, 0), 81_559 << 20));
    assert_eq!((h100.numa, h100.pcie_root.as_deref()), (Some(0), Some("pci0000:1a")));
    assert_eq!(inventory.gpus[5].numa, Some(1));
    assert_eq!((h100.nvlinks.len(), inventory.gpus[4].nvlinks.len()), (18, 0));
    assert_eq!((&h100.mig, h100.mig_pending), (&Mig::Off, false));
    assert_eq!(inventory.gpus[4].mig, Mig::Unsupported);
    assert!(inventory.gpus[1].mig_pending && matches!(inventory.gpus[1].mig, Mig::On(_)));
    for gpu in &inventory.gpus {
        assert!(gpu.uuid.starts_with("GPU-"), "{}", gpu.uuid);
        let model = divvy::gpu::model::MODELS.iter().find(|model| model.product == gpu.product);
        // The profiles are those of the table, in its order: first fit depends on it.
        assert_eq!(&gpu.profiles[..], model.unwrap().profiles);
    }
    for device in inventory.devices() {
        assert_eq!(inventory.device(&device.name()).unwrap().name(), device.name());
    }
}

fn every_place(gpus: &dyn Gpus) {
    let inventory = gpus.inventory().unwrap();
    for gpu in inventory.gpus.iter().filter(|gpu| matches!(gpu.mig, Mig::On(_))) {
        for profile in gpu.profiles.iter() {
            for placement in profile.placements() {
                let made = gpus.create_partition(&gpu.uuid, &profile.name, placement).unwrap();
                assert_eq!((made.profile.as_str(), made.placement), (&*profile.name, placement));
                let now = gpus.inventory().unwrap();
                assert_eq!(now.gpu(&gpu.uuid).unwrap().partitions(), std::slice::from_ref(&made));
                gpus.destroy_partition(&self::made(&gpu.uuid, &made)).unwrap();
                let now = gpus.inventory().unwrap();
                assert_eq!(now.gpu(&gpu.uuid).unwrap().partitions(), []);
            }
        }
    }
}

fn in_the_way(gpus: &dyn Gpus) {
    let gpu = gpus.inventory().unwrap().gpus[2].uuid.clone();
    let half = gpus.create_partition(&gpu, "3g.20gb", place(4, 4)).unwrap();
    let error = gpus.create_partition(&gpu, "1g.5gb", place(6, 1)).unwrap_err();
    let GpuError::Occupied { by, placement, .. } = &error else { panic!("{error}") };
    assert!(by.contains(&half.uuid) && by.contains("3g.20gb at 4:4"), "{by}");
    assert_eq!((error.code(), *placement), ("OVERLAP", place(6, 1)));
    assert_eq!(gpus.inventory().unwrap().gpus[2].partitions(), std::slice::from_ref(&half));
}

fn refused(gpus: &dyn Gpus) {
    let inventory = gpus.inventory().unwrap();
    let uuid = |index: usize| inventory.gpus[index].uuid.as_str();
    for (profile, placement) in [
        ("3g.20gb", place(2, 4)),
        ("3g.20gb", place(4, 3)),
        ("1g.5gb", place(7, 1)),
        ("9g", place(0, 1)),
    ] {
        let error = gpus.create_partition(uuid(2), profile, placement).unwrap_err();
        assert!(matches!(error, GpuError::NoPlacement { .. }), "{error}");
    }
    for whole in [0, 4] {
        let error = gpus.create_partition(uuid(whole), "1g.10gb", place(0, 1)).unwrap_err();
        assert!(matches!(error, GpuError::MigOff { .. }), "{error}");
    }
    fails(gpus.create_partition("GPU-none", "1g.5gb", place(0, 1)), "NO-DEVICE", "GPU-none");
    fails(gpus.set_time_slice("GPU-none", Interval::Long), "NO-DEVICE", "GPU-none");
    fails(gpus.time_slice("GPU-none"), "NO-DEVICE", "GPU-none");
    fails(gpus.set_compute_mode("GPU-none", ComputeMode::Default), "NO-DEVICE", "GPU-none");
    fails(support::device_files(gpus, "GPU-none", None), "NO-DEVICE", "GPU-none");
    fails(support::device_files(gpus, uuid(2), Some("MIG-none")), "NO-DEVICE", "MIG-none");
}

fn media(gpus: &dyn Gpus) {
    for (index, profile) in [(1, "1g.10gb+me"), (3, "1g.6gb+me")] {
        let gpu = gpus.inventory().unwrap().gpus[index].uuid.clone();
        let first = gpus.create_partition(&gpu, profile, place(0, 1)).unwrap();
        fails(gpus.create_partition(&gpu, profile, place(1, 1)), "OVERLAP", &first.uuid);
    }
}

fn not_ours(gpus: &dyn Gpus) {
    let gpu = gpus.inventory().unwrap().gpus[2].uuid.clone();
    let first = gpus.create_partition(&gpu, "1g.5gb", place(0, 1)).unwrap();
    gpus.destroy_partition(&made(&gpu, &first)).unwrap();
    // Somebody else's, at the same place: its instance id is ours of before.
    let other = gpus.create_partition(&gpu, "1g.5gb", place(0, 1)).unwrap();
    assert_ne!(first.uuid, other.uuid);
    assert_eq!(first.gpu_instance, other.gpu_instance);
    gpus.destroy_partition(&made(&gpu, &first)).unwrap();
    let elsewhere = MadePartition { placement: place(1, 1), uuid: None, ..made(&gpu, &other) };
    gpus.destroy_partition(&elsewhere).unwrap();
    let another = MadePartition { profile: "1g.10gb".to_owned(), uuid: None, ..made(&gpu, &other) };
    gpus.destroy_partition(&another).unwrap();
    assert_eq!(gpus.inventory().unwrap().gpus[2].partitions(), std::slice::from_ref(&other));
    // Without a UUID, which a crash leaves, profile and place decide.
    gpus.destroy_partition(&MadePartition { uuid: None, ..made(&gpu, &other) }).unwrap();
    assert_eq!(gpus.inventory().unwrap().gpus[2].partitions(), []);
    gpus.destroy_partition(&made("GPU-none", &other)).unwrap();
}

fn settings(gpus: &dyn Gpus) {
    let gpu = gpus.inventory().unwrap().gpus[0].uuid.clone();
    assert_eq!(gpus.time_slice(&gpu).unwrap(), Interval::Default);
    for (_, interval) in Interval::ALL {
        gpus.set_time_slice(&gpu, interval).unwrap();
        assert_eq!(gpus.time_slice(&gpu).unwrap(), interval);
    }
    for mode in [ComputeMode::ExclusiveProcess, ComputeMode::Prohibited, ComputeMode::Default] {
        gpus.set_compute_mode(&gpu, mode).unwrap();
        assert_eq!(gpus.inventory().unwrap().gpus[0].compute_mode, mode);
    }
}

fn mig_mode(gpus: &dyn Gpus) {
    let uuids: Vec<String> =
        gpus.inventory().unwrap().gpus.iter().map(|gpu| gpu.uuid.clone()).collect();
    gpus.set_mig(&uuids[0], true).unwrap();
    gpus.set_mig(&uuids[0], true).unwrap();
    let part = gpus.create_partition(&uuids[0], "1g.10gb", place(0, 1)).unwrap();
    fails(gpus.set_mig(&uuids[0], false), "GPU-IN-USE", &part.uuid);
    gpus.destroy_partition(&made(&uuids[0], &part)).unwrap();
    gpus.set_mig(&uuids[0], false).unwrap();
    gpus.set_mig(&uuids[2], true).unwrap();
    fails(gpus.set_mig(&uuids[2], false), "MIG-RESET", "-mig 0, nvidia-smi -i GPU-");
    fails(gpus.set_mig(&uuids[5], true), "NO-DEVICE", "Tesla T4, which has no MIG mode");
    let inventory = gpus.inventory().unwrap();
    assert_eq!(inventory.gpus[0].mig, Mig::Off);
    let pending: Vec<bool> = inventory.gpus.iter().map(|gpu| gpu.mig_pending).collect();
    assert_eq!(pending, [false, true, true, true, false, false]);
}

fn random(gpus: &dyn Gpus) {
    walk(gpus, 7);
}

/// Makes and ends partitions at random; what came of each.
fn walk(gpus: &dyn Gpus, seed: u64) -> Vec<String> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut said = Vec::new();
    for _ in 0..60 {
        let inventory = gpus.inventory().unwrap();
        let gpu = &inventory.gpus[random.usize(1..4)];
        let there = gpu.partitions();
        for (index, one) in there.iter().enumerate() {
            assert!(there[..index].iter().all(|other| !other.placement.overlaps(one.placement)));
        }
        if !there.is_empty() && random.u8(0..3) == 0 {
            let which = &there[random.usize(0..there.len())];
            gpus.destroy_partition(&made(&gpu.uuid, which)).unwrap();
            said.push(format!("{} ended {} at {}", gpu.pci, which.profile, which.placement));
            continue;
        }
        let profile = &gpu.profiles[random.usize(0..gpu.profiles.len())];
        let places: Vec<_> = profile.placements().collect();
        let at = places[random.usize(0..places.len())];
        let free = gpu.in_the_way(profile, at).is_none();
        let asked = Device::Partition { gpu, profile, placement: at };
        assert_eq!(fits(&inventory, &asked), free, "{} has {there:?}", asked.name());
        let made = gpus.create_partition(&gpu.uuid, &profile.name, at);
        assert_eq!(made.is_ok(), free, "{} at {at}: {made:?}", profile.name);
        let came =
            made.map_or_else(|error| error.code().to_owned(), |p| p.gpu_instance.to_string());
        said.push(format!("{} {} at {at}: {came}", gpu.pci, profile.name));
    }
    said
}

/// Whether a scheduler finds room for a device beside what is made on its GPU, by the counters of the slices.
fn fits(inventory: &Inventory, asked: &Device<'_>) -> bool {
    let slices = publish::slices(inventory, Offer::default());
    let sets: Vec<_> = slices.iter().flat_map(Slice::counter_sets).collect();
    let published: Vec<_> = slices.iter().flat_map(Slice::devices).collect();
    let consumes = |device: &Device<'_>| {
        let name = device.name().to_string();
        let found = published.iter().find(|published| published.name == name);
        found.unwrap_or_else(|| panic!("{name} is not published")).consumes_counters.clone()
    };
    let gpu = asked.gpu();
    let made = gpu.partitions().iter().map(|partition| {
        let profile = gpu.profiles.iter().find(|profile| profile.name == partition.profile);
        let (profile, placement) = (profile.unwrap(), partition.placement);
        consumes(&Device::Partition { gpu, profile, placement })
    });
    let mut used = BTreeMap::new();
    for of in made.chain([consumes(asked)]).flatten() {
        for (counter, value) in of.counters {
            let sum = used.entry((of.counter_set.clone(), counter)).or_insert(Quantity::of(0));
            *sum = sum.plus(value);
        }
    }
    used.iter().all(|((set, counter), sum)| {
        let set = sets.iter().find(|one| one.name == *set).unwrap();
        sum <= &set.counters[counter]
    })
}

/// The simulation is held to NVML.
fn same() -> Outcome {
    for seed in 0..4 {
        let folder = support::folder();
        let sim = support::sim(folder.path(), GPUS);
        assert_eq!(walk(&sim, seed), walk(&support::fake(GPUS).nvml, seed), "seed {seed}");
    }
    Outcome::Done
}

fn files(fake: &Fake) -> Outcome {
    let gpus = &fake.nvml;
    let gpu = fake.uuid(1);
    let whole = support::device_files(gpus, &fake.uuid(0), None).unwrap();
    assert_eq!(whole.nodes[0].path, "/dev/nvidia0");
    assert!(whole.nodes[0].host_path.ends_with("dev/nvidia0"));
    assert_eq!((whole.nodes[0].node.major, whole.nodes[0].node.minor), (195, 0));
    let partition = gpus.create_partition(&gpu, "1g.10gb", place(3, 1)).unwrap();
    let part = support::device_files(gpus, &gpu, Some(&partition.uuid)).unwrap();
    // The nodes of capabilities were not there: who needs one makes it.
    let nodes =
        part.nodes.iter().map(|n| (n.path.as_str(), n.node.major, n.node.minor, n.node.mode));
    assert_eq!(
        nodes.collect::<Vec<_>>(),
        [
            ("/dev/nvidia1", 195, 1, 0o666),
            ("/dev/nvidia-caps/nvidia-cap147", 236, 147, 0o444),
            ("/dev/nvidia-caps/nvidia-cap148", 236, 148, 0o444),
        ]
    );
    let control = gpus.driver_files().unwrap().nodes;
    let control: Vec<_> = control.iter().map(|node| node.path.as_str()).collect();
    assert_eq!(
        control,
        ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset"]
    );
    Outcome::Done
}
