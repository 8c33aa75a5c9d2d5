mod controller;
mod diff;
mod server;
mod view;

use super::{
    Attribute, Device, Offer, RequestPolicy, Slice, Taint, Valid, check, normalized, slices,
};
use crate::{
    gpu::{Gpu, Inventory, Mig, NvLink, NvLinkPeer, PciAddress, fixture::node, model::MODELS},
    plan::Target,
    quantity::Quantity,
};

fn devices(inventory: &Inventory) -> Vec<Device> {
    let slices = slices(inventory, Offer::default());
    slices.iter().flat_map(Slice::devices).cloned().collect()
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
                "memoryBandwidth": {"int": 3352},
                "migCapable": {"bool": true},
                "migEnabled": {"bool": false},
                "mps": {"bool": true},
                "nvlinks": {"int": 0},
                "productName": {"string": "NVIDIA H100 80GB HBM3"},
                "resource.kubernetes.io/pciBusID": {"string": "0000:1b:00.0"},
                "timeSlicing": {"bool": true},
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
    assert_eq!(part["attributes"]["migEnabled"]["bool"], true);
    assert_eq!(part["capacity"]["memory"]["value"], "10Gi");
    let consumes = &part["consumesCounters"][0];
    assert_eq!(consumes["counterSet"], "gpu-0000-43-00-counters");
    assert_eq!(
        consumes["counters"],
        serde_json::json!({"memory-slice-2": {"value": "1"}, "media-extensions": {"value": "1"}})
    );
}

/// The counters say exactly what the placement rules say. There is one of each, so a set of devices fits
/// where each two of it do, and so it is with the rules: all pairs are all sets.
#[test]
fn counters_are_the_placement_rules() {
    for model in MODELS.iter().filter(|model| !model.profiles.is_empty()) {
        for switches in [false, true] {
            let mut inventory = node(&[]);
            inventory.gpus.truncate(1);
            let (uuid, pci) = ("GPU-0".to_owned(), inventory.gpus[0].pci);
            let gpu = Gpu::of_model(model, uuid, pci, 0);
            inventory.policy.switch_mig = switches;
            inventory.gpus[0] = match switches && model.compute.0 >= 9 {
                true => gpu,
                false => Gpu { mig: Mig::On(Vec::new()), mig_pending: true, ..gpu },
            };
            let slices = slices(&inventory, Offer::default());
            check("n", &slices).unwrap();
            let set = &slices[0].counter_sets()[0];
            assert!(set.counters.values().all(|value| *value == Quantity::of(1)));
            let published = devices(&inventory);
            let all: Vec<_> = inventory.devices().map(|device| Target::of(&device)).collect();
            for (one, a) in published.iter().zip(&all) {
                let [of_one] = one.consumes_counters.as_slice() else { panic!("{one:?}") };
                assert!(of_one.counters.iter().all(|(name, value)| set.counters[name] == *value));
                for (other, b) in published.iter().zip(&all).filter(|(_, b)| *b != a) {
                    let of_other = &other.consumes_counters[0].counters;
                    let fits = of_one.counters.keys().all(|name| !of_other.contains_key(name));
                    assert_eq!(fits, !a.overlaps(b), "{}: {a:?} {b:?}", model.key);
                }
            }
        }
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
    let slices = slices(&inventory, Offer::default());
    let names: Vec<String> = devices(&inventory).into_iter().map(|device| device.name).collect();
    let expected: Vec<String> = inventory.devices().map(|d| d.name().to_string()).collect();
    assert_eq!(names, expected);
    check("n", &slices).unwrap();
    assert_eq!(slices.iter().map(|slice| slice.counter_sets().len()).sum::<usize>(), 20);
    assert_eq!(format!("{slices:?}"), format!("{:?}", super::slices(&inventory, Offer::default())));
    inventory.gpus.clear();
    assert_eq!(super::slices(&inventory, Offer::default()), [Slice::Devices(Vec::new())]);
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

#[test]
fn gpus_that_nvlink_joins_have_a_group_in_common() {
    let mut inventory = node(&[]);
    let model = inventory.gpus.remove(1);
    let gpu = |bus: u8, peers: &[NvLinkPeer]| {
        let mut gpu = Gpu { mig: Mig::Off, mig_pending: false, ..model.clone() };
        gpu.pci.bus = bus;
        gpu.nvlinks = (0..).zip(peers).map(|(link, &peer)| NvLink { link, peer }).collect();
        gpu
    };
    let at = |bus| PciAddress { bus, ..model.pci };
    let (to, switch) = (|bus| NvLinkPeer::Gpu(at(bus)), |bus| NvLinkPeer::Switch(at(bus)));
    inventory.gpus = vec![
        gpu(1, &[to(2)]),
        gpu(2, &[to(1), to(3)]),
        gpu(3, &[to(2)]),
        gpu(4, &[switch(9)]),
        gpu(5, &[switch(9), switch(8)]),
        gpu(6, &[switch(8)]),
        gpu(7, &[NvLinkPeer::Other(at(0))]),
        gpu(0xb, &[]),
    ];
    let groups = devices(&inventory).into_iter().map(|device| {
        device.attributes.get("nvlinkGroup").map(ToString::to_string).unwrap_or_default()
    });
    let (direct, switched) = ("\"0000:01:00.0\"", "\"0000:04:00.0\"");
    assert_eq!(
        groups.collect::<Vec<_>>(),
        [direct, direct, direct, switched, switched, switched, "", ""]
    );
}

#[test]
fn a_gpu_is_shared_where_that_is_asked_for_and_mps_can_limit_it() {
    let mut inventory = node(&[]);
    assert!(devices(&inventory).iter().all(|device| !device.allow_multiple_allocations));
    inventory.policy.shares = true;
    inventory.gpus[0].memory += 1;
    let shared = devices(&inventory);
    check("n", &slices(&inventory, Offer::default())).unwrap();
    let is_shared = |device: &Device| device.allow_multiple_allocations;
    assert_eq!(shared.iter().filter(|device| is_shared(device)).count(), 1, "no partition");
    let memory = serde_json::to_value(&shared[0].capacity["memory"]).unwrap();
    let policy =
        serde_json::json!({"default": "81559Mi", "validRange": {"min": "1Mi", "step": "1Mi"}});
    assert_eq!(memory, serde_json::json!({"value": "85520809985", "requestPolicy": policy}));
    let off = slices(&inventory, Offer { shares: false, ..Offer::default() });
    assert!(!off.iter().flat_map(Slice::devices).any(is_shared));
    inventory.gpus[0].compute = (6, 1);
    assert!(!devices(&inventory).iter().any(is_shared));
}

#[test]
fn slices_are_read_back_as_they_were_written() {
    let mut inventory = node(&[("1g.10gb", 2)]);
    inventory.policy.shares = true;
    inventory.gpus[0].mig_pending = true;
    for slice in slices(&inventory, Offer::default()) {
        let json = serde_json::to_string(&slice).unwrap();
        assert_eq!(serde_json::from_str::<Slice>(&json).unwrap(), slice);
        // However an amount is written.
        let other = json.replace("\"10Gi\"", "\"10240Mi\"");
        assert_eq!(serde_json::from_str::<Slice>(&other).unwrap(), slice);
    }
}

#[test]
fn what_kubernetes_would_refuse_names_the_device_the_field_and_the_limit() {
    type Break = fn(&mut Device);
    let mut inventory = node(&[]);
    inventory.policy.shares = true;
    let broken: [(Break, &str); 12] = [
        (|d| d.name = "A".repeat(70), "name: AAAA"),
        (
            |d| drop(d.attributes.insert("a-b".to_owned(), Attribute::Int(1))),
            "attributes[\"a-b\"]: a-b; Kubernetes takes a C identifier of 32",
        ),
        (
            |d| drop(d.attributes.insert("x.Y/a".to_owned(), Attribute::Int(1))),
            "behind a domain or none",
        ),
        (
            |d| drop(d.attributes.insert("a".to_owned(), Attribute::String("x".repeat(65)))),
            "64 bytes at most",
        ),
        (
            |d| (0..32).for_each(|i| drop(d.attributes.insert(format!("x{i}"), Attribute::Int(1)))),
            "attributes and capacity: ",
        ),
        (
            |d| d.taints = vec![Taint::ours("x", "-", super::Effect::None); 17],
            "taints: 17; Kubernetes takes at most 16",
        ),
        (
            |d| d.taints = vec![Taint::ours("x", "-", super::Effect::None)],
            "taints: -; Kubernetes takes a label's value",
        ),
        (
            |d| d.allow_multiple_allocations = false,
            "requestPolicy: there; Kubernetes takes it with",
        ),
        (
            |d| policy(d).default = "1500Ki".parse().unwrap(),
            "1500Ki; Kubernetes takes a default on the steps",
        ),
        (|d| policy(d).default = "1Ti".parse().unwrap(), "a default in the range"),
        (
            |d| policy(d).valid = Valid::ValidValues(vec![Quantity::of(2), Quantity::of(1)]),
            "them rising",
        ),
        (
            |d| {
                d.consumes_counters = vec![super::Consumption {
                    counter_set: "x".to_owned(),
                    counters: [("a".to_owned(), Quantity::of(1))].into(),
                }];
            },
            "consumesCounters[\"x\"]: no such set",
        ),
    ];
    for (change, says) in broken {
        let mut slices = slices(&inventory, Offer::default());
        let Some(Slice::Devices(devices)) = slices.last_mut() else { panic!() };
        change(&mut devices[0]);
        let name = devices[0].name.clone();
        let error = check("n", &slices).unwrap_err().to_string();
        assert!(error.contains(says), "{says}: {error}");
        assert!(error.starts_with(&name), "{error}");
    }
    let mut twice = slices(&inventory, Offer::default());
    twice.push(twice[1].clone());
    let error = check("n", &twice).unwrap_err().to_string();
    assert_eq!(error, "gpu-0000-1b-00: name: twice; Kubernetes takes a name once");
    assert!(check("N", &twice).unwrap_err().to_string().starts_with("the pool: name: N"));
}

fn policy(device: &mut Device) -> &mut RequestPolicy {
    device.capacity.get_mut("memory").unwrap().request_policy.as_mut().unwrap()
}
