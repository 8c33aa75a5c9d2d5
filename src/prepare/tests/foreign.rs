//! Somebody else makes and ends partitions while claims come and go: theirs are never given to a
//! claim, and never ended with one.

use super::*;

/// The UUIDs of the partitions that are there.
fn there(world: &World) -> Vec<String> {
    let inventory = world.sim().inventory().unwrap();
    inventory.gpus[1].partitions().iter().map(|partition| partition.uuid.clone()).collect()
}

#[test]
fn what_somebody_else_makes_at_the_same_moment_stays_theirs() {
    let mut races = 0;
    for fails in 1..10 {
        let world = World::new();
        let gpus = Faulty::raced(&world, fails);
        let prepared = world.with(&gpus, |node| node.prepare(&claim(), &[], Origin::Local));
        let Some(foreign) = gpus.foreign.lock().unwrap().take() else { continue };
        assert_eq!(prepared.unwrap_err().code(), "OVERLAP");
        assert_eq!(there(&world), [foreign], "call {fails}: theirs is there, ours are not");
        assert_eq!(world.journal.entries().unwrap().len(), 0);
        races += 1;
    }
    assert_eq!(races, 2, "the claim makes two partitions");
}

/// An administrator ends the claim's first partition, and makes the same at the same place.
fn replace_first(world: &World) -> String {
    let sim = world.sim();
    let gpu = sim.inventory().unwrap().gpus[1].clone();
    let Partition { profile, placement, uuid, .. } = gpu.partitions()[0].clone();
    let made = MadePartition { gpu: gpu.uuid.clone(), profile, placement, uuid: Some(uuid) };
    sim.destroy_partition(&made).unwrap();
    sim.create_partition(&gpu.uuid, &made.profile, placement).unwrap().uuid
}

#[test]
fn a_partition_that_somebody_put_in_our_place_is_neither_given_nor_ended() {
    let world = World::new();
    world.with(&world.sim(), |node| node.prepare(&claim(), &[], Origin::Local)).unwrap();
    let foreign = replace_first(&world);
    // However often it is tried: theirs has ours' numbers, so nobody may get its nodes.
    for _ in 0..2 {
        let found = world.with(&world.sim(), |node| node.reconcile()).unwrap();
        let [Reconciled::Failed(error)] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!(error.code(), "OVERLAP", "{error}");
        assert!(world.run.claims().unwrap().is_empty());
        assert_eq!(fs::read_dir(world.dir.path().join("cdi")).unwrap().count(), 0);
        let again = world.with(&world.sim(), |node| node.prepare(&claim(), &[], Origin::Local));
        assert_eq!(again.unwrap_err().code(), "OVERLAP");
    }
    world.with(&world.sim(), |node| node.unprepare(&claim().uid)).unwrap();
    assert_eq!(there(&world), [foreign]);
}

#[test]
fn a_partition_that_appears_while_ours_is_brought_back_stays_theirs() {
    let mut races = 0;
    for fails in 1..10 {
        let world = World::new();
        world.with(&world.sim(), |node| node.prepare(&claim(), &[], Origin::Local)).unwrap();
        world.reboot();
        let gpus = Faulty::raced(&world, fails);
        let found = world.with(&gpus, |node| node.reconcile()).unwrap();
        let Some(foreign) = gpus.foreign.lock().unwrap().take() else { continue };
        assert!(matches!(found.as_slice(), [Reconciled::Failed(_)]), "{found:?}");
        world.with(&world.sim(), |node| node.reconcile()).unwrap();
        world.with(&world.sim(), |node| node.unprepare(&claim().uid)).unwrap();
        assert_eq!(there(&world), [foreign]);
        races += 1;
    }
    assert_eq!(races, 2, "the claim has two partitions");
}
