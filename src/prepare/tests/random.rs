//! Random walks: claims come and go, processes crash, the machine reboots, somebody else makes
//! partitions. After each step nothing is given twice, and what is not ours is still there.

use super::*;
use crate::{
    journal::Entry,
    plan::{Step, Target},
};

const STEPS: usize = 40;
const WALKS: u64 = 30;

/// Claims that want much of the same.
const WANTED: [(&str, &str); 8] = [
    ("a", "gpu-0000-1b-00"),
    ("b", "gpu-0000-1b-00"),
    ("c", "gpu-0000-43-00-1g10gb-0"),
    ("d", "gpu-0000-43-00-3g40gb-0"),
    ("e", "gpu-0000-43-00-3g40gb-4"),
    ("f", "gpu-0000-43-00-1g10gb-me-5"),
    ("g", "gpu-0000-43-00-1g10gb-me-0"),
    ("h", "gpu-0000-43-00-7g80gb-0"),
];

fn claims() -> Vec<Claim> {
    let text: String = WANTED
        .iter()
        .map(|(name, device)| {
            let config = match device.ends_with("1b-00") {
                true => {
                    "\n      config: [{source: FromClaim, opaque: {driver: gpu.divvy.dev, parameters: \
                     {apiVersion: gpu.divvy.dev/v1alpha1, kind: GpuConfig, sharing: {timeSlicing: \
                     {interval: Long}}}}}]"
                }
                false => "",
            };
            format!(
                "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {{name: {name}}}\n\
                 spec: {{devices: {{requests: [{{name: r, exactly: {{deviceClassName: c}}}}]}}}}\n\
                 status:\n  allocation:\n    devices:\n      results: [{{request: r, driver: \
                 gpu.divvy.dev, pool: n, device: {device}}}]{config}\n---\n"
            )
        })
        .collect();
    Manifests::parse(Path::new("c.yaml"), text.as_bytes(), "gpu.divvy.dev").unwrap().claims
}

/// What somebody else made.
type Foreign = Vec<String>;

/// Nothing is given twice, and every partition belongs to a claim or to somebody else.
#[track_caller]
fn check(world: &World, foreign: &Foreign, when: &str) {
    let entries: Vec<_> =
        world.journal.entries().unwrap().into_iter().map(Result::unwrap).collect();
    let targets: Vec<&Target> =
        entries.iter().flat_map(|e| &e.devices).map(|d| &d.target).collect();
    for (index, one) in targets.iter().enumerate() {
        for other in &targets[index + 1..] {
            assert!(!one.overlaps(other), "{when}: {one:?} and {other:?}");
        }
    }
    let inventory = world.sim().inventory().unwrap();
    let there = inventory.gpus[1].partitions();
    for uuid in foreign {
        assert!(there.iter().any(|partition| partition.uuid == *uuid), "{when}: {uuid} is gone");
    }
    for partition in there {
        let ours = steps(&entries).any(|made| made.is(partition));
        assert!(ours != foreign.contains(&partition.uuid), "{when}: {partition:?}");
    }
}

fn steps(entries: &[Entry]) -> impl Iterator<Item = &MadePartition> {
    entries.iter().flat_map(|entry| &entry.steps).filter_map(|step| match step {
        Step::Partition(made) => Some(made),
        Step::MigMode { .. } | Step::TimeSlice { .. } | Step::Mps(_) => None,
    })
}

/// An administrator makes a partition, and may end one of ours before, at that very place or not.
/// One kind of place is left out: between noting that it will make one there and noting its UUID,
/// divvy cannot tell whose it is.
fn intrude(world: &World, foreign: &mut Foreign, random: &mut fastrand::Rng) {
    let sim = world.sim();
    let gpu = sim.inventory().unwrap().gpus[1].clone();
    let ours: Vec<_> =
        gpu.partitions().iter().filter(|there| !foreign.contains(&there.uuid)).collect();
    let (mut profile, mut placement) =
        ("1g.10gb".to_owned(), Placement { start: random.u8(0..7), size: 1 });
    if let (Some(there), true) = (random.choice(ours), random.bool()) {
        (profile, placement) = (there.profile.clone(), there.placement);
        let (gpu, profile) = (gpu.uuid.clone(), profile.clone());
        let uuid = Some(there.uuid.clone());
        sim.destroy_partition(&MadePartition { gpu, profile, placement, uuid }).unwrap();
    }
    let entries: Vec<_> =
        world.journal.entries().unwrap().into_iter().map(Result::unwrap).collect();
    let perhaps = |made: &MadePartition| {
        made.uuid.is_none() && made.profile == profile && made.placement == placement
    };
    if !steps(&entries).any(perhaps) && random.u8(..4) > 0 {
        let made = sim.create_partition(&gpu.uuid, &profile, placement);
        foreign.extend(made.ok().map(|partition| partition.uuid));
    }
}

fn walk(seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let (world, claims) = (World::new(), claims());
    let mut foreign = Foreign::new();
    for step in 0..STEPS {
        let when = format!("walk {seed}, step {step}");
        let claim = &claims[random.usize(..claims.len())];
        let gpus = match random.u8(..4) {
            0 => Faulty::crashing(&world, random.usize(1..8), random.bool()),
            1 => Faulty::new(&world, random.usize(1..8), random.bool()),
            2 => Faulty::raced(&world, random.usize(1..8)),
            _ => Faulty::new(&world, usize::MAX, false),
        };
        let act = |node: &Node<'_>| match random.u8(..8) {
            0..4 => drop(node.prepare(claim, &[], Origin::Local)),
            4..6 => drop(node.unprepare(&claim.uid)),
            _ => drop(node.reconcile()),
        };
        let act = std::panic::AssertUnwindSafe(|| world.with(&gpus, act));
        // A crash is one of the things that happen.
        let _crashed = std::panic::catch_unwind(act);
        foreign.extend(gpus.foreign.lock().unwrap().take());
        match random.u8(..20) {
            0..3 => intrude(&world, &mut foreign, &mut random),
            3 => {
                world.reboot();
                foreign.clear();
            }
            _ => {}
        }
        check(&world, &foreign, &when);
    }
    for claim in &claims {
        world.with(&world.sim(), |node| node.unprepare(&claim.uid)).unwrap();
    }
    check(&world, &foreign, "at the end");
    let inventory = world.sim().inventory().unwrap();
    let time_slice = world.sim().time_slice(&inventory.gpus[0].uuid).unwrap();
    assert_eq!(time_slice, Interval::Default, "walk {seed}");
    assert_eq!(inventory.gpus[1].partitions().len(), foreign.len(), "walk {seed}");
    assert!(world.run.claims().unwrap().is_empty(), "walk {seed}");
}

#[test]
fn random_walks_never_give_anything_twice_and_never_touch_what_is_not_ours() {
    for seed in 0..WALKS {
        walk(seed);
    }
}
