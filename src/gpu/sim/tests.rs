use std::{fs, path::Path};

use super::Sim;
use crate::gpu::{
    ComputeMode, DeviceName, GpuError, Gpus, Interval, MadePartition, Mig, Partition, Placement,
};

const NODE: &str = "[[gpu]]\nmodel = \"H100-80GB\"\n[[gpu]]\nmodel = \"A100-40GB\"\nmig = true\n";

fn sim(text: &str) -> (tempfile::TempDir, Sim) {
    let dir = tempfile::tempdir().unwrap();
    write(&dir.path().join("node.toml"), text);
    let sim = Sim::open(&dir.path().join("node.toml")).unwrap();
    (dir, sim)
}

#[expect(clippy::disallowed_methods, reason = "a test's own input")]
fn write(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
}

fn refused(text: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    write(&dir.path().join("node.toml"), text);
    Sim::open(&dir.path().join("node.toml")).unwrap_err().to_string()
}

fn mig_gpu(sim: &Sim) -> String {
    sim.inventory().unwrap().gpus[1].uuid.clone()
}

fn place(start: u8, size: u8) -> Placement {
    Placement { start, size }
}

fn made(gpu: &str, partition: &Partition) -> MadePartition {
    MadePartition {
        gpu: gpu.to_owned(),
        profile: partition.profile.clone(),
        placement: partition.placement,
        uuid: Some(partition.uuid.clone()),
    }
}

#[test]
fn partitions_outlive_the_process_and_keep_to_the_placement_rules() {
    let (dir, sim) = sim(NODE);
    let gpu = mig_gpu(&sim);
    let half = sim.create_partition(&gpu, "3g.20gb", place(4, 4)).unwrap();
    let error = sim.create_partition(&gpu, "1g.5gb", place(6, 1)).unwrap_err();
    assert!(matches!(error, GpuError::Occupied { .. }), "{error}");
    sim.create_partition(&gpu, "1g.5gb", place(0, 1)).unwrap();
    let again = Sim::open(&dir.path().join("node.toml")).unwrap();
    let Mig::On(partitions) = &again.inventory().unwrap().gpus[1].mig else { panic!() };
    assert_eq!(partitions.len(), 2);
    assert_eq!(partitions[1], half);
}

#[test]
fn a_place_that_the_product_does_not_have_is_refused() {
    let (_dir, sim) = sim(NODE);
    let gpu = mig_gpu(&sim);
    for (profile, placement) in [
        ("3g.20gb", place(2, 4)),
        ("3g.20gb", place(4, 3)),
        ("1g.5gb", place(7, 1)),
        ("1g.10gb.x", place(0, 1)),
    ] {
        let error = sim.create_partition(&gpu, profile, placement).unwrap_err();
        assert!(matches!(error, GpuError::NoPlacement { .. }), "{error}");
    }
    let whole = sim.inventory().unwrap().gpus[0].uuid.clone();
    let error = sim.create_partition(&whole, "1g.10gb", place(0, 1)).unwrap_err();
    assert!(matches!(error, GpuError::MigOff { .. }), "{error}");
}

#[test]
fn media_extensions_exist_once() {
    let (_dir, sim) = sim(NODE);
    let gpu = mig_gpu(&sim);
    sim.create_partition(&gpu, "1g.5gb+me", place(0, 1)).unwrap();
    assert!(sim.create_partition(&gpu, "1g.5gb+me", place(1, 1)).is_err());
    sim.create_partition(&gpu, "1g.5gb", place(1, 1)).unwrap();
}

#[test]
fn only_our_own_partition_is_destroyed_and_a_missing_one_is_no_error() {
    let (_dir, sim) = sim(NODE);
    let gpu = mig_gpu(&sim);
    let first = sim.create_partition(&gpu, "1g.5gb", place(0, 1)).unwrap();
    sim.destroy_partition(&made(&gpu, &first)).unwrap();
    sim.destroy_partition(&made(&gpu, &first)).unwrap();
    let other = sim.create_partition(&gpu, "1g.5gb", place(0, 1)).unwrap();
    assert_ne!(first.uuid, other.uuid);
    sim.destroy_partition(&made(&gpu, &first)).unwrap();
    assert_eq!(sim.inventory().unwrap().gpus[1].partitions(), std::slice::from_ref(&other));
    sim.destroy_partition(&MadePartition { uuid: None, ..made(&gpu, &other) }).unwrap();
    assert!(sim.inventory().unwrap().gpus[1].partitions().is_empty());
}

#[test]
fn time_slices_stay() {
    let (_dir, sim) = sim(NODE);
    let gpu = sim.inventory().unwrap().gpus[0].uuid.clone();
    assert_eq!(sim.time_slice(&gpu).unwrap(), Interval::Default);
    sim.set_time_slice(&gpu, Interval::Short).unwrap();
    assert_eq!(sim.time_slice(&gpu).unwrap(), Interval::Short);
    assert!(sim.set_time_slice("GPU-none", Interval::Short).is_err());
}

#[test]
fn device_nodes_are_real_and_those_of_two_gpus_differ() {
    let (_dir, sim) = sim(NODE);
    let inventory = sim.inventory().unwrap();
    let files = |n: usize| sim.device_files(&inventory.gpus[n], None).unwrap();
    assert_eq!(files(0).nodes[0].path, "/dev/nvidia0");
    assert_eq!((files(0).nodes[0].node.major, files(0).nodes[0].node.minor), (1, 3));
    assert_ne!(files(0).nodes[0].host_path, files(1).nodes[0].host_path);
    let gpu = mig_gpu(&sim);
    let partition = sim.create_partition(&gpu, "1g.5gb", place(0, 1)).unwrap();
    let inventory = sim.inventory().unwrap();
    let gpu = inventory.find(&gpu).unwrap();
    let paths = sim.device_files(gpu, Some(&partition.uuid)).unwrap().nodes;
    assert_eq!(
        paths.iter().map(|node| node.path.as_str()).collect::<Vec<_>>(),
        ["/dev/nvidia1", "/dev/nvidia-caps/nvidia-cap147", "/dev/nvidia-caps/nvidia-cap148"]
    );
    let driver = sim.driver_files().unwrap();
    assert!(fs::read_to_string(&driver.mounts[0].host_path).unwrap().contains("580.65.06"));
}

#[test]
fn every_offered_device_is_found_by_its_name() {
    let (_dir, sim) = sim(NODE);
    let inventory = sim.inventory().unwrap();
    let names: Vec<DeviceName> = inventory.devices().map(|device| device.name()).collect();
    assert_eq!(names.len(), 1 + 7 + 7 + 4 + 3 + 2 + 1 + 1);
    for name in &names {
        assert_eq!(inventory.device(name).unwrap().name(), *name);
    }
    assert_eq!(names[0].to_string(), "gpu-0000-1b-00");
    assert_eq!(names[1].to_string(), "gpu-0000-43-00-1g5gb-0");
}

#[test]
fn a_node_file_that_is_wrong_says_where_and_what_is_allowed() {
    let error = refused("[[gpu]]\nmodel = \"H1000\"\n");
    assert!(error.contains("line 2") && error.contains("H100-80GB"), "{error}");
    let error = refused("[[gpu]]\nmodel = \"T4-16GB\"\nmig = true\n");
    assert!(error.contains("T4-16GB has no MIG"), "{error}");
    let error = refused("[[gpu]]\nmodel = \"T4-16GB\"\ncolour = 3\n");
    assert!(error.contains("line 3") && error.contains("colour"), "{error}");
    assert!(refused("").contains("gpu"));
    assert!(refused("node = \"../x\"\ngpu = []").contains("node"));
    assert!(refused("host-nodes = [\"dev/null\"]\ngpu = []").contains("absolute"));
    assert!(refused("[[gpu]]\nmodel = \"T4-16GB\"\ncount = 65\n").contains("64"));
}

#[test]
fn damaged_state_is_an_error_that_names_the_file() {
    let (dir, sim) = sim(NODE);
    write(&dir.path().join("node.state.json"), "{\"serial\":");
    let error = sim.inventory().unwrap_err().to_string();
    assert!(error.contains("node.state.json"), "{error}");
}

#[test]
fn a_gpu_says_what_it_is_and_what_is_around_it() {
    let (_dir, sim) = sim(NODE);
    let inventory = sim.inventory().unwrap();
    let (h100, a100) = (&inventory.gpus[0], &inventory.gpus[1]);
    assert_eq!((h100.brand.as_str(), h100.compute, h100.memory), ("Nvidia", (9, 0), 81_559 << 20));
    assert_eq!((h100.numa, h100.pcie_root.as_deref()), (Some(0), Some("pci0000:1a")));
    assert_eq!((h100.nvlinks.len(), a100.nvlinks.len()), (18, 12));
    assert!(!h100.mig_pending && a100.mig_pending);
    assert_eq!(a100.profile("3g.20gb").unwrap().engines.decoders, 2);
    sim.set_compute_mode(&h100.uuid, ComputeMode::ExclusiveProcess).unwrap();
    assert_eq!(sim.inventory().unwrap().gpus[0].compute_mode, ComputeMode::ExclusiveProcess);
}
