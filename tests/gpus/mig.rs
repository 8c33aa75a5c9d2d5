//! Partitions, where the hardware is not as it was: half made, in use, somebody else's.

use divvy::gpu::{Gpus, MadePartition, Mig};

use super::{
    Outcome, Test, named,
    support::{Gpu, fails, fake, made, place},
};

const GPUS: &[Gpu] = &[("A100-40GB", true), ("H100-80GB", false)];

pub(crate) fn tests() -> Vec<Test> {
    named(
        "mig",
        &[
            ("a GPU instance without a compute instance is seen, and in the way", bare),
            ("what is left of a partition is ended, and nobody else's", half_gone),
            ("a partition in use is not ended, and ended when it is free", in_use),
            ("a GPU instance that several compute instances share is no partition", shared),
            ("a MIG mode that was changed outside shows", mode),
            ("a MIG mode that a process keeps is not left pending", busy),
            ("minors that were turned change nodes, not names", minors),
        ],
    )
}

fn bare() -> Outcome {
    let fake = fake(GPUS);
    let gpu = fake.uuid(0);
    fake.nvml.create_partition(&gpu, "2g.10gb", place(2, 2)).unwrap();
    fake.host.change(|state| state.gpus[0].instances[0].compute.clear()).unwrap();
    let inventory = fake.inventory();
    assert_eq!(inventory.gpus[0].partitions(), []);
    let there = &inventory.gpus[0].instances[0];
    assert_eq!((there.profile.as_str(), there.placement), ("2g.10gb", place(2, 2)));
    let says = "GPU instance 1, 2g.10gb at 2:2, which has no compute instance";
    fails(fake.nvml.create_partition(&gpu, "1g.5gb", place(3, 1)), "OVERLAP", says);
    Outcome::Done
}

fn half_gone() -> Outcome {
    let fake = fake(GPUS);
    let gpu = fake.uuid(0);
    let ours = fake.nvml.create_partition(&gpu, "1g.5gb", place(0, 1)).unwrap();
    let theirs = fake.nvml.create_partition(&gpu, "1g.5gb", place(1, 1)).unwrap();
    fake.host
        .change(|state| {
            for instance in &mut state.gpus[0].instances {
                instance.compute.clear();
            }
        })
        .unwrap();
    // At another place, and with another profile: not ours.
    let elsewhere = MadePartition { placement: place(2, 1), ..made(&gpu, &ours) };
    fake.nvml.destroy_partition(&elsewhere).unwrap();
    assert_eq!(fake.instances(), 2);
    fake.nvml.destroy_partition(&made(&gpu, &ours)).unwrap();
    let left = fake.inventory().gpus[0].instances.clone();
    assert_eq!((left.len(), left[0].placement), (1, theirs.placement));
    Outcome::Done
}

fn in_use() -> Outcome {
    let fake = fake(GPUS);
    let gpu = fake.uuid(0);
    let ours = fake.nvml.create_partition(&gpu, "1g.5gb", place(0, 1)).unwrap();
    let busy = |compute: bool, instance: bool| {
        fake.host
            .change(|state| {
                let there = &mut state.gpus[0].instances[0];
                there.busy = instance;
                there.compute.iter_mut().for_each(|one| one.busy = compute);
            })
            .unwrap();
    };
    busy(true, false);
    fails(fake.nvml.destroy_partition(&made(&gpu, &ours)), "GPU-IN-USE", "nvidia-smi shows which");
    assert_eq!(fake.inventory().gpus[0].partitions(), std::slice::from_ref(&ours));
    // The compute instance goes, and the GPU instance stays.
    busy(false, true);
    fails(fake.nvml.destroy_partition(&made(&gpu, &ours)), "GPU-IN-USE", "nvmlGpuInstanceDestroy");
    assert_eq!(fake.inventory().gpus[0].instances.len(), 1);
    busy(false, false);
    fake.nvml.destroy_partition(&made(&gpu, &ours)).unwrap();
    assert_eq!(fake.instances(), 0);
    Outcome::Done
}

fn shared() -> Outcome {
    let fake = fake(GPUS);
    let gpu = fake.uuid(0);
    let ours = fake.nvml.create_partition(&gpu, "2g.10gb", place(0, 2)).unwrap();
    fake.host
        .change(|state| {
            let there = &mut state.gpus[0].instances[0];
            there.compute[0].slices = 1;
            let mut second = there.compute[0].clone();
            (second.serial, second.id, second.uuid) = (999, 1, "MIG-second".to_owned());
            there.compute.push(second);
        })
        .unwrap();
    let inventory = fake.inventory();
    assert_eq!(inventory.gpus[0].partitions(), []);
    let devices = &inventory.gpus[0].instances[0].devices;
    assert_eq!(devices, &[ours.uuid.clone(), "MIG-second".to_owned()]);
    fake.nvml.destroy_partition(&made(&gpu, &ours)).unwrap();
    assert_eq!(fake.instances(), 1);
    Outcome::Done
}

fn mode() -> Outcome {
    let fake = fake(GPUS);
    assert_eq!(fake.inventory().gpus[1].mig, Mig::Off);
    fake.host
        .change(|state| {
            let gpu = &mut state.gpus[1];
            (gpu.mig, gpu.mig_pending) = (true, true);
            // Ampere waits for a reset.
            state.gpus[0].mig_pending = false;
        })
        .unwrap();
    let inventory = fake.inventory();
    assert_eq!(inventory.gpus[1].mig, Mig::On(Vec::new()));
    assert_eq!(inventory.gpus[0].mig, Mig::On(Vec::new()));
    assert!(!inventory.gpus[0].mig_pending && inventory.gpus[1].mig_pending);
    fake.host.change(|state| state.gpus[1].mig = false).unwrap();
    assert_eq!(fake.inventory().gpus[1].mig, Mig::Off);
    Outcome::Done
}

fn busy() -> Outcome {
    let fake = fake(GPUS);
    fake.host.change(|state| state.gpus[1].clients = 1).unwrap();
    fails(fake.nvml.set_mig(&fake.uuid(1), true), "GPU-IN-USE", "a process uses it");
    let gpu = fake.inventory().gpus[1].clone();
    assert_eq!((gpu.mig, gpu.mig_pending), (Mig::Off, false));
    Outcome::Done
}

fn minors() -> Outcome {
    let fake = fake(GPUS);
    let names = |fake: &super::support::Fake| -> Vec<String> {
        fake.inventory().devices().map(|device| device.name().to_string()).collect()
    };
    let (before, gpu) = (names(&fake), fake.uuid(0));
    let partition = fake.nvml.create_partition(&gpu, "1g.5gb", place(0, 1)).unwrap();
    fake.host.change(divvy_fake_nvml::State::turn_minors).unwrap();
    assert_eq!(names(&fake), before);
    assert_eq!(fake.inventory().gpus[0].minor, 1);
    if let Some(why) = super::support::no_nodes(&fake) {
        return Outcome::Skipped(why);
    }
    let nodes =
        super::support::device_files(&fake.nvml, &gpu, Some(&partition.uuid)).unwrap().nodes;
    let paths: Vec<_> = nodes.iter().map(|node| node.path.as_str()).collect();
    assert_eq!(
        paths,
        ["/dev/nvidia1", "/dev/nvidia-caps/nvidia-cap147", "/dev/nvidia-caps/nvidia-cap148"]
    );
    Outcome::Done
}
