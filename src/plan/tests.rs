mod mig;

use super::{Daemon, Held, Plan, PlanError, Step, Target, plan};
use crate::{
    claim::{Allocation, Claim, Configured, DeviceKey, Given, Kind, MpsSettings, Share, Sharing},
    gpu::{Fault, FaultKind, Interval, Placement, fixture::node},
};

const WHOLE: &str = "gpu-0000-1b-00";
const SMALL: &str = "gpu-0000-43-00-1g10gb-2";

fn claim() -> Claim {
    Claim {
        pod_claim: None,
        consumers: Vec::new(),
        uid: "u".to_owned(),
        namespace: "default".to_owned(),
        name: "c".to_owned(),
        requests: Vec::new(),
        config: Vec::new(),
        constraints: Vec::new(),
        allocation: None,
    }
}

fn given(request: &str, device: &str) -> Given {
    let (request, device) = (request.to_owned(), device.to_owned());
    Given { request, pool: "n".to_owned(), device, admin: false, share: None }
}

fn configured(requests: &[&str], sharing: Sharing) -> Configured {
    let requests = requests.iter().map(|name| (*name).to_owned()).collect();
    let place = "c.yaml:1:1".to_owned();
    Configured { kind: Kind::Gpu, requests, sharing, display: false, place }
}

fn for_mig(requests: &[&str], sharing: Sharing) -> Configured {
    Configured { kind: Kind::Mig, ..configured(requests, sharing) }
}

/// MPS, with limits for single devices.
fn mps(limits: &[DeviceKey]) -> Sharing {
    let limits = limits.iter().map(|key| (key.clone(), 1 << 30)).collect();
    Sharing::Mps(MpsSettings { pinned_memory_per_device: limits, ..MpsSettings::default() })
}

fn held(target: Target) -> Held {
    Held {
        claim: "default/other".to_owned(),
        target,
        share: None,
        sharing: Sharing::Exclusive,
        switched: false,
    }
}

fn partition(profile: &str, start: u8, size: u8) -> Target {
    let placement = Placement { start, size };
    Target::Partition { gpu: "GPU-1".to_owned(), profile: profile.to_owned(), placement }
}

fn planned(
    results: Vec<Given>,
    config: Vec<Configured>,
    there: &[(&str, u8)],
    held: &[Held],
) -> Result<Plan, PlanError> {
    plan(&claim(), &Allocation { results, config, ..Default::default() }, &node(there), held)
}

#[test]
fn a_whole_gpu_needs_no_step_and_a_partition_one() {
    let plan = planned(vec![given("a", WHOLE), given("b", SMALL)], vec![], &[], &[]).unwrap();
    assert_eq!(plan.devices[0].target, Target::Gpu { gpu: "GPU-0".to_owned() });
    assert_eq!(plan.devices[1].target, partition("1g.10gb", 2, 1));
    let [Step::Partition(made)] = plan.steps.as_slice() else { panic!("{:?}", plan.steps) };
    assert_eq!((made.placement.start, &made.uuid), (2, &None));
}

#[test]
fn the_last_configuration_that_names_the_request_counts() {
    let slice = |interval| Sharing::TimeSlicing(interval);
    let sharing = |request: &str, config: Vec<Configured>| {
        planned(vec![given(request, WHOLE)], config, &[], &[]).unwrap().devices.remove(0).sharing
    };
    let short = configured(&["gpu"], slice(Interval::Short));
    let long = configured(&[], slice(Interval::Long));
    assert_eq!(sharing("gpu", vec![]), Sharing::Exclusive);
    assert_eq!(sharing("gpu", vec![short.clone(), long.clone()]), slice(Interval::Long));
    assert_eq!(sharing("gpu", vec![long.clone(), short.clone()]), slice(Interval::Short));
    assert_eq!(sharing("gpu/small", vec![long.clone(), short.clone()]), slice(Interval::Short));
    assert_eq!(sharing("other", vec![long, short]), slice(Interval::Long));
    let sub = configured(&["gpu/big"], slice(Interval::Medium));
    assert_eq!(sharing("gpu/small", vec![sub]), Sharing::Exclusive);
}

#[test]
fn a_time_sliced_gpu_needs_one_step() {
    let config = vec![configured(&[], Sharing::TimeSlicing(Interval::Short))];
    let plan = planned(vec![given("a", WHOLE)], config, &[], &[]).unwrap();
    let [Step::TimeSlice { interval, .. }] = plan.steps.as_slice() else { panic!() };
    assert_eq!(*interval, Interval::Short);
}

#[test]
fn configuration_for_all_requests_applies_where_its_kind_fits() {
    let (gpu, mig) = (Sharing::TimeSlicing(Interval::Short), Sharing::Exclusive);
    let config = || vec![configured(&[], gpu.clone()), for_mig(&[], mig.clone())];
    for (device, sharing) in [(WHOLE, &gpu), (SMALL, &mig)] {
        let plan = planned(vec![given("a", device)], config(), &[], &[]).unwrap();
        assert_eq!(plan.devices[0].sharing, *sharing);
    }
}

#[test]
fn configuration_for_a_request_must_be_of_its_devices_kind() {
    for (device, config, says) in [
        (
            SMALL,
            configured(&["a"], Sharing::Exclusive),
            "claim default/c: c.yaml:1:1: GpuConfig cannot be applied to gpu-0000-43-00-1g10gb-2, \
             which request a got: it takes MigDeviceConfig",
        ),
        (WHOLE, for_mig(&["a"], Sharing::Exclusive), "it takes GpuConfig"),
    ] {
        let error = planned(vec![given("a", device)], vec![config], &[], &[]).unwrap_err();
        assert_eq!(error.code(), "CONFIG-INVALID", "{error}");
        assert!(error.to_string().contains(says), "{error}");
    }
}

#[test]
fn limits_of_single_devices_name_devices_that_the_configuration_is_for() {
    let (index, uuid) = (DeviceKey::Index, |uuid: &str| DeviceKey::Uuid(uuid.to_owned()));
    let whole = |limits: &[DeviceKey]| vec![configured(&[], mps(limits))];
    let part = |limits: &[DeviceKey]| vec![for_mig(&[], mps(limits))];
    let none = "they are 0 (a partition, which has no UUID before it is made)";
    for (device, config, says) in [
        (WHOLE, whole(&[index(1)]), "a limit for \"1\", which is none of its devices"),
        (
            WHOLE,
            whole(&[uuid("GPU-1")]),
            "\"GPU-1\", which is none of its devices; they are 0 (GPU-0)",
        ),
        (SMALL, part(&[index(0), index(1)]), "a limit for \"1\""),
        (SMALL, part(&[uuid("GPU-1")]), none),
    ] {
        let error = planned(vec![given("a", device)], config, &[], &[]).unwrap_err();
        assert_eq!(error.code(), "CONFIG-INVALID", "{error}");
        assert!(error.to_string().contains(says), "{error}");
    }
    let config = whole(&[index(0), uuid("GPU-0")]);
    planned(vec![given("a", WHOLE)], config, &[], &[]).unwrap();
}

#[test]
fn a_daemon_comes_after_the_partitions_that_it_serves() {
    let settings = MpsSettings { active_thread_percentage: Some(50), ..MpsSettings::default() };
    let config = vec![for_mig(&[], Sharing::Mps(settings.clone())), configured(&[], mps(&[]))];
    let plan = planned(vec![given("b", SMALL), given("a", WHOLE)], config, &[], &[]).unwrap();
    let [Step::Partition(_), Step::Mps(of_part), Step::Mps(of_gpu)] = plan.steps.as_slice() else {
        panic!("{:?}", plan.steps)
    };
    assert_eq!((of_part.name.as_str(), of_gpu.name.as_str()), ("u-0", "u-1"));
    assert_eq!(of_part.targets, [partition("1g.10gb", 2, 1)]);
    assert_eq!(of_part.whole_gpus().count(), 0, "a partition has no compute mode");
    assert_eq!(of_gpu.whole_gpus().collect::<Vec<_>>(), ["GPU-0"]);
    let made = Daemon { devices: vec!["MIG-1".to_owned()], ..of_part.clone() }.setup();
    assert_eq!((made.devices, made.active_thread_percentage), (vec!["MIG-1".to_owned()], Some(50)));
}

#[test]
fn a_daemon_has_all_devices_of_its_configuration_each_once() {
    let twice = vec![given("a", WHOLE), given("b", WHOLE)];
    let plan = planned(twice, vec![configured(&[], mps(&[]))], &[], &[]).unwrap();
    let [Step::Mps(daemon)] = plan.steps.as_slice() else { panic!("{:?}", plan.steps) };
    assert_eq!((plan.devices.len(), daemon.targets.len()), (2, 1));
    let pinned = DeviceKey::Uuid("GPU-0".to_owned());
    let plan =
        planned(vec![given("a", WHOLE)], vec![configured(&[], mps(&[pinned]))], &[], &[]).unwrap();
    let [Step::Mps(daemon)] = plan.steps.as_slice() else { panic!("{:?}", plan.steps) };
    let setup = Daemon { devices: vec!["GPU-0".to_owned()], ..daemon.clone() }.setup();
    assert_eq!(setup.pinned_memory, [("GPU-0".to_owned(), 1 << 30)].into());
}

#[test]
fn what_mps_is_told_needs_volta() {
    let mut inventory = node(&[]);
    inventory.gpus[0].compute = (6, 1);
    let told = |settings| {
        let allocation = Allocation {
            results: vec![given("a", WHOLE)],
            config: vec![configured(&[], Sharing::Mps(settings))],
            ..Default::default()
        };
        plan(&claim(), &allocation, &inventory, &[])
    };
    told(MpsSettings::default()).unwrap();
    let error = told(MpsSettings { multi_user: true, ..MpsSettings::default() }).unwrap_err();
    assert_eq!(error.code(), "CONFIG-UNSUPPORTED");
    assert!(error.to_string().contains("has 6.1"), "{error}");
}

#[test]
fn what_another_claim_holds_is_refused() {
    for (device, target) in [
        (WHOLE, Target::Gpu { gpu: "GPU-0".to_owned() }),
        (SMALL, partition("1g.10gb", 2, 1)),
        (SMALL, partition("3g.40gb", 0, 4)),
        (SMALL, Target::Gpu { gpu: "GPU-1".to_owned() }),
    ] {
        let error = planned(vec![given("a", device)], vec![], &[], &[held(target)]).unwrap_err();
        assert_eq!(error.code(), "OVERLAP");
        assert!(error.to_string().contains("held by claim default/other"), "{error}");
    }
    let elsewhere = held(partition("3g.40gb", 4, 4));
    planned(vec![given("a", SMALL)], vec![], &[], &[elsewhere]).unwrap();
}

#[test]
fn partitions_that_the_journal_does_not_know_are_not_touched() {
    let there = [("2g.20gb", 2)];
    let error = planned(vec![given("a", SMALL)], vec![], &there, &[]).unwrap_err();
    assert!(
        error.to_string().contains("; this journal does not know it: another divvy"),
        "{error}"
    );
    let media = "gpu-0000-43-00-1g10gb-me-6";
    let error = planned(vec![given("a", media)], vec![], &[("1g.10gb+me", 0)], &[]).unwrap_err();
    assert_eq!(error.code(), "OVERLAP", "{error}");
}

#[test]
fn one_claim_never_gets_a_device_twice_unless_it_is_time_sliced() {
    let twice = || vec![given("a", WHOLE), given("b", WHOLE)];
    let error = planned(twice(), vec![], &[], &[]).unwrap_err();
    assert_eq!(error.code(), "OVERLAP", "{error}");
    let config = vec![configured(&[], Sharing::TimeSlicing(Interval::Short))];
    let plan = planned(twice(), config, &[], &[]).unwrap();
    assert_eq!((plan.devices.len(), plan.steps.len()), (2, 1));
    let config = vec![
        configured(&["a"], Sharing::TimeSlicing(Interval::Short)),
        configured(&["b"], Sharing::TimeSlicing(Interval::Long)),
    ];
    assert_eq!(planned(twice(), config, &[], &[]).unwrap_err().code(), "OVERLAP");
    let big = "gpu-0000-43-00-3g40gb-0";
    let error = planned(vec![given("a", SMALL), given("b", big)], vec![], &[], &[]).unwrap_err();
    assert!(error.to_string().contains("request a of the claim"), "{error}");
}

#[test]
fn admin_access_takes_nothing_away() {
    let admin = Given { admin: true, ..given("a", WHOLE) };
    let other = held(Target::Gpu { gpu: "GPU-0".to_owned() });
    let config = vec![configured(&[], Sharing::TimeSlicing(Interval::Short))];
    let plan = planned(vec![admin, given("b", SMALL)], config, &[], &[other]).unwrap();
    assert!(plan.devices[0].admin);
    assert!(matches!(plan.steps.as_slice(), [Step::Partition(_)]));
}

#[test]
fn devices_that_cannot_be_had_say_why() {
    for (device, says) in [
        ("gpu-0", "node n has no device \"gpu-0\"; it has gpu-0000-1b-00, "),
        ("gpu-0000-1b-00-1", "has no device"),
        ("gpu-0000-43-00-1g10gb-7", "has no device"),
        ("gpu-0000-43-00-9g1gb-0", "has no device"),
        ("gpu-0000-43-00", "only its partitions"),
        ("gpu-0000-1b-00-1g10gb-0", "not in MIG mode"),
    ] {
        let error = planned(vec![given("a", device)], vec![], &[], &[]).unwrap_err();
        assert!(error.to_string().contains(says), "{error}");
        assert_eq!(error.code(), "NO-DEVICE");
    }
    let elsewhere = Given { pool: "m".to_owned(), ..given("a", WHOLE) };
    let error = planned(vec![elsewhere], vec![], &[], &[]).unwrap_err();
    assert!(error.to_string().contains("pool \"m\""), "{error}");
    assert!(planned(vec![], vec![], &[], &[]).is_err());
}

#[test]
fn a_gpu_that_does_not_answer_is_not_given() {
    let mut inventory = node(&[]);
    let gpu = inventory.gpus.remove(0);
    let (pci, uuid) = (gpu.pci, Some(gpu.uuid));
    inventory.faults.push(Fault { pci, uuid, kind: FaultKind::Lost });
    let allocation =
        Allocation { results: vec![given("a", WHOLE)], config: vec![], ..Default::default() };
    let error = plan(&claim(), &allocation, &inventory, &[]).unwrap_err();
    assert_eq!(error.code(), "GPU-FAULT");
    assert!(error.to_string().contains("gpu-0000-1b-00 cannot be given: GPU GPU-0 at"), "{error}");
}

/// A share that takes so much memory.
fn share(id: &str, memory: &str) -> Option<Share> {
    let consumed = [("memory".to_owned(), memory.parse().unwrap())].into();
    Some(Share { id: id.to_owned(), consumed })
}

#[test]
fn shares_of_a_gpu_are_had_side_by_side_where_they_are_set_up_the_same() {
    let half = || mps(&[DeviceKey::Index(0)]);
    let other = |sharing: Sharing, memory: &str| Held {
        share: share("o", memory),
        sharing,
        ..held(Target::Gpu { gpu: "GPU-0".to_owned() })
    };
    let give = |shares: &[(&str, &str)], sharing: Sharing, held: &[Held]| {
        let given =
            |(id, memory): &(&str, &str)| Given { share: share(id, memory), ..given("a", WHOLE) };
        let results = shares.iter().map(given).collect();
        planned(results, vec![configured(&[], sharing)], &[], held)
    };
    // The GPU has 81559 MiB.
    for (shares, held) in [
        (&[("a", "81559Mi")][..], vec![]),
        (&[("a", "40Gi"), ("b", "40599Mi")], vec![]),
        (&[("a", "20Gi"), ("b", "20Gi")], vec![other(half(), "39Gi")]),
    ] {
        let plan = give(shares, half(), &held).unwrap();
        let [Step::Mps(daemon)] = plan.steps.as_slice() else { panic!("{:?}", plan.steps) };
        // Whichever claim it is, and however many shares that has of it.
        assert_eq!((daemon.name.as_str(), daemon.common), ("shared_GPU-0", true));
        assert_eq!(Daemon::owner(&daemon.name), Some(daemon.name.as_str()));
        assert_eq!(plan.devices.len(), shares.len());
        assert!(plan.devices[0].shared_memory().unwrap() > 1 << 30);
    }
    for (shares, held, says) in [
        (
            &[("a", "80Gi")][..],
            vec![],
            "has 81559Mi of memory left beside other shares, and 80Gi is",
        ),
        (&[("a", "40Gi"), ("b", "40Gi")], vec![], "has 40599Mi of memory left"),
        (&[("a", "40Gi")], vec![other(half(), "40Gi")], "has 40599Mi of memory left"),
        (
            &[("a", "1Gi")],
            vec![other(mps(&[]), "1Gi")],
            "is shared by claim default/other in another way: MPS",
        ),
        (
            &[("a", "1Gi")],
            vec![held(Target::Gpu { gpu: "GPU-0".to_owned() })],
            "is held by claim default/other",
        ),
    ] {
        let error = give(shares, half(), &held).unwrap_err();
        assert_eq!(error.code(), "OVERLAP", "{error}");
        assert!(error.to_string().contains(says), "{error}");
    }
    let error = planned(vec![given("a", WHOLE)], vec![], &[], &[other(half(), "1Gi")]).unwrap_err();
    assert_eq!(error.code(), "OVERLAP", "{error}");
    for sharing in [Sharing::Exclusive, Sharing::TimeSlicing(Interval::Short)] {
        let error = give(&[("a", "1Gi")], sharing, &[]).unwrap_err();
        assert_eq!(error.code(), "CONFIG-UNSUPPORTED", "{error}");
        assert!(error.to_string().contains("is given in shares by mps alone"), "{error}");
    }
}

#[test]
fn the_daemon_of_a_claim_is_its_own_whatever_its_uid() {
    for uid in ["shared", "shared-", "shared-GPU-0", "shared-x"] {
        assert_eq!(Daemon::owner(&format!("{uid}-0")), Some(uid));
    }
}
