use std::collections::BTreeMap;

use super::{Attribute, Device, Slice, normalized, slices};
use crate::{
    gpu::{
        Gpu, Inventory, Mig,
        fixture::node,
        model::{MODELS, has_media_extensions},
    },
    quantity::Quantity,
};

fn devices(inventory: &Inventory) -> Vec<Device> {
    let of = |slice| match slice {
        Slice::Devices(devices) => devices,
        Slice::SharedCounters(_) => Vec::new(),
    };
    slices(inventory).into_iter().flat_map(of).collect()
}

#[test]
fn a_whole_gpu_and_a_partition_say_what_they_are() {
    let devices = devices(&node(&[]));
    let whole = serde_json::to_value(&devices[0]).unwrap();
    assert_eq!(
        whole,
        serde_json::json!({
            "name": "gpu-0000-1b-00",
            "attributes": {
                "architecture": {"string": "Hopper"},
                "brand": {"string": "Nvidia"},
                "cudaDriverVersion": {"version": "13.0.0"},
                "cudaComputeCapability": {"version": "9.0.0"},
                "driverVersion": {"version": "1.0.0"},
                "productName": {"string": "NVIDIA H100 80GB HBM3"},
                "resource.kubernetes.io/pciBusID": {"string": "0000:1b:00.0"},
                "type": {"string": "gpu"},
                "uuid": {"string": "GPU-0"},
            },
            "capacity": {"memory": {"value": "81559Mi"}},
        })
    );
    let part = devices.iter().find(|d| d.name == "gpu-0000-43-00-1g10gb-me-2").unwrap();
    let part = serde_json::to_value(part).unwrap();
    assert_eq!(part["attributes"]["profile"]["string"], "1g.10gb+me");
    assert_eq!(part["attributes"]["parentUUID"]["string"], "GPU-1");
    assert_eq!(part["capacity"]["memory"]["value"], "10Gi");
    let consumes = &part["consumesCounters"][0];
    assert_eq!(consumes["counterSet"], "gpu-0000-43-00-counters");
    assert_eq!(
        consumes["counters"],
        serde_json::json!({"memory-slice-2": "1", "media-extensions": "1"})
    );
}

/// The counters say exactly what the placement rules say: of any set of partitions, drawn at random
/// over and over, the one fits where and only where the other does.
#[test]
fn counters_are_the_placement_rules() {
    let mut random = fastrand::Rng::with_seed(3);
    for model in MODELS.iter().filter(|model| !model.profiles.is_empty()) {
        let mut inventory = node(&[]);
        inventory.gpus.truncate(1);
        let (uuid, pci) = ("GPU-0".to_owned(), inventory.gpus[0].pci);
        let gpu = Gpu::of_model(model, uuid, pci, 0);
        inventory.gpus[0] = Gpu { mig: Mig::On(Vec::new()), mig_pending: true, ..gpu };
        let all: Vec<_> = inventory.devices().collect();
        let published = devices(&inventory);
        let Slice::SharedCounters(sets) = &slices(&inventory)[0] else { panic!() };
        let mut seen = (0, 0);
        for _ in 0..2000 {
            let count = random.usize(1..=5);
            let picked: Vec<usize> = (0..count).map(|_| random.usize(0..all.len())).collect();
            let parts: Vec<_> = picked
                .iter()
                .map(|at| match all[*at] {
                    crate::gpu::Device::Partition { profile, placement, .. } => {
                        (profile.name.as_ref(), placement)
                    }
                    crate::gpu::Device::Gpu(_) => panic!(),
                })
                .collect();
            let clash = |(a, one): &(&str, crate::gpu::Placement), (b, two)| {
                one.overlaps(two) || (has_media_extensions(a) && has_media_extensions(b))
            };
            let feasible = parts.iter().enumerate().all(|(at, one)| {
                parts[at + 1..].iter().all(|(name, place)| !clash(one, (*name, *place)))
            });
            let mut used = BTreeMap::<&str, Quantity>::new();
            for at in &picked {
                for (name, value) in &published[*at].consumes_counters[0].counters {
                    let sum = used.entry(name).or_insert(Quantity::ZERO);
                    *sum = sum.plus(*value);
                }
            }
            let fits = used.iter().all(|(name, sum)| *sum <= sets[0].counters[*name]);
            assert_eq!(fits, feasible, "{}: {parts:?}", model.key);
            if fits { seen.0 += 1 } else { seen.1 += 1 }
        }
        assert!(seen.0 > 50 && seen.1 > 50, "{seen:?}");
    }
}

/// What follows from the slices needs no counter of its own.
#[test]
fn no_set_that_fits_has_more_multiprocessors_than_the_gpu() {
    for model in MODELS.iter().filter(|model| !model.profiles.is_empty()) {
        let most = model.profiles.iter().map(|profile| profile.multiprocessors).max().unwrap();
        // By dynamic programming over memory slices: the most that fit below each.
        let mut best = [0_u32; 9];
        for end in 1..=8_u8 {
            best[usize::from(end)] = best[usize::from(end) - 1];
            for profile in model.profiles {
                for place in profile.placements().filter(|place| place.start + place.size == end) {
                    let sum = best[usize::from(place.start)] + profile.multiprocessors;
                    best[usize::from(end)] = best[usize::from(end)].max(sum);
                }
            }
        }
        assert!(best[8] <= most, "{}: {} > {most}", model.key, best[8]);
    }
}

#[test]
fn slices_keep_kubernetes_limits_and_their_order() {
    let mut inventory = node(&[]);
    let model = inventory.gpus.remove(1);
    for bus in 0..20 {
        let mut gpu = model.clone();
        gpu.pci.bus = 0x80 + bus;
        inventory.gpus.push(gpu);
    }
    let slices = slices(&inventory);
    let names: Vec<String> = devices(&inventory).into_iter().map(|device| device.name).collect();
    let expected: Vec<String> = inventory.devices().map(|d| d.name().to_string()).collect();
    assert_eq!(names, expected);
    let mut sets = 0;
    for slice in &slices {
        match slice {
            Slice::SharedCounters(of) => {
                sets += of.len();
                assert!(of.len() <= 8 && of.iter().all(|set| set.counters.len() <= 32));
            }
            Slice::Devices(of) => assert!(of.len() <= 64),
        }
    }
    assert_eq!(sets, 20);
    assert_eq!(format!("{slices:?}"), format!("{:?}", super::slices(&inventory)));
    let text = |value: &Attribute| match value {
        Attribute::String(text) => text.len(),
        other => other.to_string().len(),
    };
    for device in devices(&inventory) {
        assert!(device.name.len() <= 63);
        assert!(device.attributes.len() + device.capacity.len() <= 32);
        assert!(device.attributes.values().all(|value| text(value) <= 64));
    }
    inventory.gpus.clear();
    assert_eq!(super::slices(&inventory), [Slice::Devices(Vec::new())]);
}

#[test]
fn versions_of_drivers_become_semantic() {
    for (text, version) in [
        ("580.65.06", "580.65.6"),
        ("13.0", "13.0.0"),
        ("v1.2", "1.2.0"),
        ("6.12.12.1", "6.12.12+1"),
        ("1.2.3-rc.1", "1.2.3-rc.1"),
        ("1.02-rc", "1.2.0-rc"),
    ] {
        assert_eq!(normalized(text).unwrap().to_string(), version);
    }
    for text in ["", "x", "1..2", "1.x", "99999999999999999999", "1.2.3.?"] {
        assert_eq!(normalized(text), None, "{text}");
    }
}
