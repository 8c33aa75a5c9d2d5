//! Partitions that somebody else made, and the mode that partitions need.

use super::*;
use crate::gpu::{Mig, Model, Policy};

/// A partition of the GPU that is not in MIG mode.
const OF_WHOLE: &str = "gpu-0000-1b-00-1g10gb-0";

fn allowed(
    results: Vec<Given>,
    policy: Policy,
    there: &[(&str, u8)],
    held: &[Held],
) -> Result<Plan, PlanError> {
    let inventory = crate::gpu::Inventory { policy, ..node(there) };
    plan(&claim(), &Allocation { results, config: vec![], ..Default::default() }, &inventory, held)
}

#[test]
fn a_partition_that_is_there_already_is_given_and_left_as_it_is() {
    let there = [("1g.10gb", 2)];
    let plan = planned(vec![given("a", SMALL)], vec![], &there, &[]).unwrap();
    assert_eq!(plan.devices[0].existing.as_deref(), Some("MIG-1"));
    assert_eq!(plan.steps, []);
    // Another claim's is that claim's.
    let other = [held(partition("1g.10gb", 2, 1))];
    let error = planned(vec![given("a", SMALL)], vec![], &there, &other).unwrap_err();
    assert_eq!(error.code(), "OVERLAP", "{error}");
}

#[test]
fn one_that_is_adopted_is_ours_from_then_on() {
    let policy = Policy { adopt_mig: true, ..Policy::default() };
    let plan = allowed(vec![given("a", SMALL)], policy, &[("1g.10gb", 2)], &[]).unwrap();
    assert_eq!(plan.devices[0].existing, None);
    let [Step::Partition(made)] = plan.steps.as_slice() else { panic!("{:?}", plan.steps) };
    assert_eq!(made.uuid.as_deref(), Some("MIG-1"));
}

#[test]
fn mig_mode_is_switched_once_and_only_where_that_is_allowed_and_of_use() {
    let two = || vec![given("a", OF_WHOLE), given("b", "gpu-0000-1b-00-1g10gb-1")];
    let error = allowed(two(), Policy::default(), &[], &[]).unwrap_err();
    assert_eq!(error.code(), "NO-DEVICE");
    assert!(error.to_string().contains("--switch-mig"), "{error}");
    let policy = Policy { switch_mig: true, ..Policy::default() };
    let plan = allowed(two(), policy, &[], &[]).unwrap();
    let switch = Step::MigMode { gpu: "GPU-0".to_owned() };
    assert_eq!(plan.steps[0], switch);
    assert!(matches!(plan.steps[1..], [Step::Partition(_), Step::Partition(_)]));
    // Before Hopper it takes a reset.
    let mut inventory = crate::gpu::Inventory { policy, ..node(&[]) };
    let old = Model::by_key("A100-80GB").unwrap();
    let gpu = &mut inventory.gpus[0];
    (gpu.compute, gpu.profiles) = (old.compute, old.profiles.into());
    let one =
        Allocation { results: vec![given("a", OF_WHOLE)], config: vec![], ..Default::default() };
    let error = plan_of(&one, &inventory).unwrap_err();
    assert!(error.to_string().contains("takes a reset: nvidia-smi -mig 1"), "{error}");
    inventory.gpus[0].mig = Mig::Unsupported;
    assert!(plan_of(&one, &inventory).unwrap_err().to_string().contains("has no MIG mode"));
}

fn plan_of(allocation: &Allocation, inventory: &crate::gpu::Inventory) -> Result<Plan, PlanError> {
    plan(&claim(), allocation, inventory, &[])
}

#[test]
fn whoever_comes_after_the_switch_switches_back_too() {
    let switched = Held { switched: true, ..held(partition("1g.10gb", 3, 1)) };
    let plan = planned(vec![given("a", SMALL)], vec![], &[("1g.10gb", 3)], &[switched]).unwrap();
    assert_eq!(plan.steps[0], Step::MigMode { gpu: "GPU-1".to_owned() });
    let plan = planned(vec![given("a", SMALL)], vec![], &[], &[]).unwrap();
    assert!(matches!(plan.steps.as_slice(), [Step::Partition(_)]));
}

#[test]
fn a_gpu_that_may_be_switched_is_offered_whole_and_in_parts() {
    let mut inventory = node(&[]);
    let offered = |inventory: &crate::gpu::Inventory| {
        inventory.devices().filter(|device| device.gpu().uuid == "GPU-0").count()
    };
    assert_eq!(offered(&inventory), 1);
    inventory.policy.switch_mig = true;
    assert!(offered(&inventory) > 7);
    assert_eq!(inventory.devices().next().unwrap().name().to_string(), WHOLE);
}
