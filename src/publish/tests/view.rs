//! What is published of a node that claims use.

use divvy_cdi::file::{self, Durability};

use super::{Device, Inventory, Offer, Slice, Taint, Target};
use crate::{
    claim::Sharing,
    declared::DeviceFile,
    gpu::{Device as GpuDevice, Fault, FaultKind, Gpu, Mig, Model, fixture::node},
    journal::Journal,
    plan::Held,
    publish::{Attribute, Effect, Health, Hold, View, check},
};

fn hold(inventory: &Inventory, device: &str, local: bool) -> Hold {
    let name = device.parse().unwrap();
    let held = Held {
        claim: "team/train".to_owned(),
        target: Target::of(&inventory.device(&name).unwrap()),
        share: None,
        sharing: Sharing::Exclusive,
        switched: false,
    };
    Hold { held, device: device.to_owned(), local }
}

fn view(inventory: Inventory, holds: Vec<Hold>) -> View {
    View { inventory, declared: None, holds, health: Health::default() }
}

fn published(view: &View, before: &[Slice]) -> Vec<Slice> {
    let slices = view.slices(Offer::default(), before);
    check("n", &slices).unwrap();
    slices
}

/// The names of devices with a taint of this name, and its value.
fn tainted(slices: &[Slice], name: &str) -> Vec<(String, String)> {
    let key = format!("gpu.divvy.dev/{name}");
    let value = |device: &Device| {
        let taint = device.taints.iter().find(|taint| taint.key == key)?;
        assert_eq!(taint.effect, Effect::NoSchedule);
        Some((device.name.clone(), taint.value.clone()))
    };
    slices.iter().flat_map(Slice::devices).filter_map(value).collect()
}

#[test]
fn what_a_claim_of_this_host_holds_is_tainted_with_all_that_overlaps_it() {
    let inventory = node(&[("1g.10gb", 2)]);
    let local = hold(&inventory, "gpu-0000-43-00-1g10gb-2", true);
    let slices = published(&view(inventory.clone(), vec![local]), &[]);
    let found = tainted(&slices, "local-claim");
    assert!(found.iter().all(|(_, claim)| claim == "team.train"), "{found:?}");
    let names: Vec<&str> = found.iter().map(|(name, _)| &name[15..]).collect();
    let all =
        ["1g10gb-2", "1g10gb-me-2", "1g20gb-2", "2g20gb-2", "3g40gb-0", "4g40gb-0", "7g80gb-0"];
    assert_eq!(names, all);
    assert!(tainted(&slices, "foreign-partition").is_empty());
    // A claim of the cluster is known to the scheduler by its counters.
    let cluster = hold(&inventory, "gpu-0000-43-00-1g10gb-2", false);
    let slices = published(&view(inventory, vec![cluster]), &[]);
    assert!(slices.iter().flat_map(Slice::devices).all(|device| device.taints.is_empty()));
}

#[test]
fn what_lies_across_a_partition_that_nobody_knows_is_tainted() {
    let slices = published(&view(node(&[("3g.40gb", 4)]), vec![]), &[]);
    let found = tainted(&slices, "foreign-partition");
    assert_eq!(found.len(), 10, "{found:?}");
    assert!(!found.iter().any(|(name, _)| name.ends_with("3g40gb-4")), "it can be given itself");
}

#[test]
fn what_a_claim_has_stays_with_its_counters_when_it_is_gone() {
    let inventory = node(&[("1g.10gb", 2)]);
    let holds = vec![
        hold(&inventory, "gpu-0000-43-00-1g10gb-2", false),
        hold(&inventory, "gpu-0000-1b-00", false),
    ];
    let before = published(&view(inventory.clone(), holds.clone()), &[]);
    let consumed = |slices: &[Slice]| {
        let held =
            slices.iter().flat_map(Slice::devices).find(|device| device.name.ends_with("1g10gb-2"));
        held.unwrap().consumes_counters.clone()
    };
    let mut gone = view(inventory.clone(), holds);
    gone.inventory.gpus.clear();
    let mut lost = published(&gone, &before);
    for _ in 0..2 {
        let names: Vec<_> =
            tainted(&lost, "unavailable").into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["gpu-0000-1b-00", "gpu-0000-43-00-1g10gb-2"]);
        assert_eq!(lost.iter().flat_map(Slice::devices).count(), 2);
        assert_eq!(consumed(&lost), consumed(&before));
        // The next time they are kept from what is kept.
        lost = published(&gone, &lost);
    }
    // Back, and as before.
    gone.inventory = inventory;
    assert_eq!(published(&gone, &lost), before);
    // With the claims goes the reason to keep them.
    gone.inventory.gpus.clear();
    gone.holds.clear();
    assert_eq!(published(&gone, &lost), [Slice::Devices(Vec::new())]);
}

#[test]
fn all_that_was_published_of_a_gpu_stays_while_it_does_not_answer() {
    let whole = view(node(&[("1g.10gb", 2)]), vec![]);
    let before = published(&whole, &[]);
    let devices = |slices: &[Slice]| slices.iter().flat_map(Slice::devices).cloned().collect();
    let all: Vec<Device> = devices(&before);
    let fault = |gpu: &Gpu, kind| Fault { pci: gpu.pci, uuid: Some(gpu.uuid.clone()), kind };
    let effects = |view: &View, before: &[Slice]| -> Vec<Effect> {
        let slices = view.slices(Offer::default(), before);
        check("n", &slices).unwrap();
        let now: Vec<Device> = devices(&slices);
        assert_eq!(now.len(), all.len());
        let effect = |device: &Device| {
            let before = all.iter().find(|one| one.name == device.name).unwrap();
            assert_eq!(device.consumes_counters, before.consumes_counters);
            let mut taints = device.taints.iter();
            let found = taints.find(|taint| taint.key == "gpu.divvy.dev/unavailable");
            found.map(|taint| taint.effect)
        };
        let mut effects: Vec<Effect> = now.iter().filter_map(effect).collect();
        assert_eq!(effects.len(), all.len() - 1);
        effects.dedup();
        effects
    };
    for (kind, effect) in [
        (FaultKind::Lost, Effect::NoExecute),
        (FaultKind::Silent { call: "nvmlDeviceGetName" }, Effect::NoSchedule),
        (FaultKind::Failed { why: String::new() }, Effect::NoSchedule),
    ] {
        let mut view = whole.clone();
        view.health.effect = Effect::NoExecute;
        let gpu = view.inventory.gpus.remove(1);
        view.inventory.faults.push(fault(&gpu, kind));
        assert_eq!(effects(&view, &before), [effect]);
        // And from then on.
        let kept = view.slices(Offer::default(), &before);
        assert_eq!(effects(&view, &kept), [effect]);
        view.inventory.faults.clear();
        view.inventory.gpus.push(gpu.clone());
        assert_eq!(view.slices(Offer::default(), &kept), before);
        // The driver has it no more, and had it before.
        view.inventory.gpus.pop();
        view.health.gone.insert(gpu.pci);
        assert_eq!(effects(&view, &kept), [Effect::NoExecute]);
        // It never was there.
        view.health.gone.clear();
        assert_eq!(devices(&view.slices(Offer::default(), &kept)), all[..1]);
    }
}

#[test]
fn what_a_claim_has_of_a_gpu_in_whose_place_another_is_takes_nothing_of_that() {
    let inventory = node(&[("1g.10gb", 2)]);
    let holds = vec![hold(&inventory, "gpu-0000-43-00-7g80gb-0", false)];
    let before = published(&view(inventory.clone(), holds.clone()), &[]);
    for (key, mig) in [("A30-24GB", true), ("H100-80GB", true), ("T4-16GB", false)] {
        let mut other = view(inventory.clone(), holds.clone());
        let old = other.inventory.gpus.remove(1);
        let new = Gpu::of_model(Model::by_key(key).unwrap(), "GPU-new".to_owned(), old.pci, 1);
        let mode = if mig { Mig::On(Vec::new()) } else { new.mig.clone() };
        other.inventory.gpus.push(Gpu { mig: mode, mig_pending: mig, ..new });
        let slices = published(&other, &before);
        let devices = || slices.iter().flat_map(Slice::devices);
        let held = devices().find(|device| device.name == "gpu-0000-43-00-7g80gb-0").unwrap();
        let of = held.attributes.get("parentUUID").cloned();
        // Of the same name, it is the new one's.
        if of == Some(Attribute::String("GPU-new".to_owned())) {
            continue;
        }
        assert_eq!(held.consumes_counters, [], "{key}");
        assert_eq!(held.taints.len(), 1);
        assert!(devices().any(|device| device.name != held.name
            && device.name.starts_with("gpu-0000-43-00")
            && device.taints.is_empty()));
    }
}

#[test]
fn a_gpu_that_a_claim_switched_to_mig_is_published_as_before() {
    let mut inventory = node(&[("1g.10gb", 2)]);
    inventory.policy.switch_mig = true;
    let mut off = inventory.clone();
    (off.gpus[1].mig, off.gpus[1].mig_pending) = (Mig::Off, false);
    let before = published(&view(off, vec![]), &[]);
    let mut held = hold(&inventory, "gpu-0000-43-00-1g10gb-2", false);
    held.held.switched = true;
    let all = before.iter().flat_map(Slice::devices);
    assert_eq!(all.filter(|device| device.name.starts_with("gpu-0000-43-00")).count(), 26);
    assert_eq!(published(&view(inventory, vec![held]), &before), before);
}

#[test]
fn a_gpu_that_was_switched_before_the_option_went_is_given_in_parts() {
    let inventory = node(&[("1g.10gb", 2)]);
    let mut held = hold(&inventory, "gpu-0000-43-00-1g10gb-2", false);
    held.held.switched = true;
    let slices = published(&view(inventory, vec![held]), &[]);
    let devices = slices.iter().flat_map(Slice::devices);
    let mut of_gpu = devices.filter(|device| device.name.starts_with("gpu-0000-43-00"));
    // The whole GPU has no counter that would say what is gone of it.
    assert!(of_gpu.clone().count() > 7);
    assert!(of_gpu.all(|device| !device.consumes_counters.is_empty()));
}

#[test]
fn the_health_of_a_gpu_is_on_all_its_devices() {
    let mut view = view(node(&[]), vec![]);
    let taint = Taint::ours("xid", "79", Effect::NoSchedule);
    view.health.taints.insert("GPU-1".to_owned(), vec![taint]);
    let found = tainted(&published(&view, &[]), "xid");
    let parts =
        view.inventory.devices().filter(|device| matches!(device, GpuDevice::Partition { .. }));
    assert_eq!(found.len(), parts.count());
}

#[test]
fn where_taints_are_not_stored_what_they_would_keep_is_left_out() {
    let inventory = node(&[("1g.10gb", 2)]);
    let names = |holds: Vec<Hold>, offer| -> Vec<String> {
        let slices = view(inventory.clone(), holds).slices(offer, &[]);
        let devices = slices.iter().flat_map(Slice::devices);
        assert!(devices.clone().all(|device| device.taints.is_empty()));
        devices.map(|device| device.name.clone()).collect()
    };
    let plain = Offer { taints: false, ..Offer::default() };
    let local = hold(&inventory, "gpu-0000-1b-00", true);
    assert!(!names(vec![local], plain).contains(&"gpu-0000-1b-00".to_owned()));
    let none = Offer { partitions: false, ..plain };
    assert_eq!(names(vec![], none), ["gpu-0000-1b-00"], "and no counter set");
}

#[test]
fn a_declared_device_that_the_host_lacks_is_tainted() {
    let dir = tempfile::tempdir().unwrap();
    let (path, node) = (dir.path().join("devices.yaml"), dir.path().join("node"));
    let text = format!(
        "apiVersion: divvy.dev/v1alpha1\nkind: HostDevices\ndriver: x.example.com\ndevices:\n\
         - {{name: there, containerEdits: {{deviceNodes: [{{path: /dev/null}}]}}}}\n\
         - {{name: gone, containerEdits: {{deviceNodes: [{{path: {}}}]}}}}\n",
        node.display()
    );
    file::replace(&path, text.as_bytes(), 0o600, Durability::Volatile).unwrap();
    let declared = DeviceFile::open(&path, "n".to_owned()).unwrap();
    let journal = Journal::new(&dir.path().join("state"));
    let view = View::of_declared(&declared, &journal).unwrap();
    let slices = view.slices(view.asks(), &[]);
    let taints = |name: &str| {
        let mut devices = slices.iter().flat_map(|slice| slice.devices());
        let device = devices.find(|device| device.name == name).unwrap();
        device.taints.iter().map(|taint| taint.key.clone()).collect::<Vec<_>>()
    };
    assert_eq!(taints("there"), Vec::<String>::new());
    assert_eq!(taints("gone"), ["x.example.com/unavailable"]);
}
