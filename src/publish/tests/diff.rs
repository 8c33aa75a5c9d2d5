//! What is written to get from one pool to another.

use serde_json::json;

use super::{Device, Offer, Slice, Taint, node, slices};
use crate::publish::{
    Effect,
    diff::{Writes, diff},
    object::{Object, Pool, timed},
};

/// Three slices: counters, then devices.
fn three() -> Vec<Slice> {
    let mut inventory = node(&[]);
    let gpu = inventory.gpus.remove(1);
    inventory.gpus = (1..=4)
        .map(|bus| {
            let mut gpu = gpu.clone();
            gpu.pci.bus = bus;
            gpu
        })
        .collect();
    let slices = slices(&inventory, Offer::default());
    assert_eq!(slices.len(), 3);
    slices
}

/// These slices as a server has them, all of one generation.
fn there(slices: &[Slice], generation: i64) -> Vec<Object> {
    let pool = Pool {
        driver: "gpu.divvy.dev".to_owned(),
        node: "n".to_owned(),
        node_uid: "u".to_owned(),
        generation,
        count: slices.len(),
    };
    let object = |(index, slice)| {
        let mut value = pool.object(index, slice, None);
        let metadata = &mut value["metadata"];
        assert_eq!(metadata["generateName"], format!("{index:05x}-gpu.divvy.dev-n-"));
        metadata["name"] = format!("{index:05x}-gpu.divvy.dev-n-x").into();
        metadata["resourceVersion"] = "7".into();
        Object::read(&value).unwrap()
    };
    slices.iter().enumerate().map(object).collect()
}

fn written(desired: &[Slice], there: &[Object]) -> (i64, usize, Vec<usize>, usize) {
    let Writes { generation, delete, write } = diff("n", desired, there.iter(), 0);
    let created = write.iter().filter(|(_, over)| over.is_none()).count();
    (generation, delete.len(), write.into_iter().map(|(index, _)| index).collect(), created)
}

fn device(slice: &mut Slice, at: usize) -> &mut Device {
    let Slice::Devices(devices) = slice else { panic!() };
    &mut devices[at]
}

#[test]
fn what_is_right_is_left_alone() {
    let slices = three();
    assert_eq!(written(&slices, &there(&slices, 5)), (5, 0, vec![], 0));
}

#[test]
fn the_generation_rises_with_more_than_one_change_or_a_new_slice() {
    let slices = three();
    assert_eq!(written(&slices, &[]), (1, 0, vec![0, 1, 2], 3));
    let mut one = slices.clone();
    device(&mut one[1], 3).capacity.clear();
    assert_eq!(written(&one, &there(&slices, 5)), (5, 0, vec![1], 0));
    device(&mut one[2], 3).capacity.clear();
    assert_eq!(written(&one, &there(&slices, 5)), (6, 0, vec![0, 1, 2], 0));
    let mut more = slices.clone();
    more.push(slices[2].clone());
    assert_eq!(written(&more, &there(&slices, 5)), (6, 0, vec![0, 1, 2, 3], 1));
    // One less: the pool's count is in all of them.
    assert_eq!(written(&slices[..2], &there(&slices, 5)), (6, 1, vec![0, 1], 0));
    // One that is gone comes back as part of a new whole.
    assert_eq!(written(&slices, &there(&slices, 5)[..2]), (6, 0, vec![0, 1, 2], 1));
    // No generation is had twice, even if all is gone.
    assert_eq!(diff("n", &slices, [].iter(), 9).generation, 10);
}

#[test]
fn what_is_none_of_the_pool_is_deleted() {
    let slices = three();
    let mut objects = there(&slices, 5);
    let strange = |name: &str, generation, pool: &str| Object {
        name: name.to_owned(),
        generation,
        pool: pool.to_owned(),
        ..objects[0].clone()
    };
    let more = [
        strange("00000-gpu.divvy.dev-n-y", 5, "n"),
        strange("00001-gpu.divvy.dev-n-a", 4, "n"),
        strange("00003-gpu.divvy.dev-n-x", 5, "n"),
        strange("n-gpu.divvy.dev-x", 5, "n"),
        strange("0001-x", 5, "n"),
        strange("00002-gpu.divvy.dev-n-z", 5, "m"),
    ];
    objects.extend(more);
    assert_eq!(written(&slices, &objects), (5, 6, vec![], 0));
}

#[test]
fn amounts_are_compared_and_what_the_server_made_of_a_slice_is_accepted() {
    let slices = three();
    let mut objects = there(&slices, 5);
    let spec = |capacity: serde_json::Value, more: &str| {
        let slice =
            json!({ "devices": [{ "name": "d", "capacity": { "memory": capacity } }], more: null });
        let mut value = json!({ "metadata": { "name": "00000-x" }, "spec": slice });
        value["spec"].as_object_mut().unwrap().retain(|_, value| !value.is_null());
        Object::read(&value).unwrap().content
    };
    assert_eq!(spec(json!({ "value": "1024Mi" }), "x"), spec(json!({ "value": "1Gi" }), "x"));
    assert_ne!(spec(json!({ "value": "1024M" }), "x"), spec(json!({ "value": "1Gi" }), "x"));
    assert_eq!(spec(json!({ "value": "1Gi", "new": 1 }), "x"), None);
    // Anything else is written over, once.
    objects[1].content = None;
    assert_eq!(written(&slices, &objects), (5, 0, vec![1], 0));
    objects[1].sent = Some(slices[1].clone());
    assert_eq!(written(&slices, &objects), (5, 0, vec![], 0));
    assert_eq!(Object::read(&json!({ "spec": {} })), None);
    let other = json!({ "metadata": { "name": "x" }, "spec": { "driver": "d", "allNodes": true } });
    assert_eq!(Object::read(&other).unwrap().content, None);
}

#[test]
fn a_taint_keeps_its_time_wherever_its_device_goes() {
    let mut slices = three();
    let taint = Taint::ours("xid", "79", Effect::NoSchedule);
    device(&mut slices[1], 2).taints = vec![taint.clone()];
    let mut objects = there(&slices, 1);
    let time = Some("2026-11-30T12:00:00Z".to_owned());
    device(objects[1].content.as_mut().unwrap(), 2).taints[0].time_added = time.clone();
    // The same is the same, whenever it came.
    assert_eq!(written(&slices, &objects), (1, 0, vec![], 0));
    let moved = device(&mut slices[1], 2).clone();
    let mut other = slices[2].clone();
    *device(&mut other, 0) = moved;
    let mut timed = timed(&other, objects.iter());
    assert_eq!(device(&mut timed, 0).taints[0].time_added, time);
    device(&mut other, 0).taints[0].value = "48".to_owned();
    let mut timed = super::super::object::timed(&other, objects.iter());
    assert_eq!(device(&mut timed, 0).taints[0].time_added, None);
}
