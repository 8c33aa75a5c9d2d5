//! The real library, where this machine has one: only what reads. Lent GPUs are left as they are.

use std::path::Path;

use divvy::gpu::{
    Gpus, Mig, Roots,
    nvml::{Deadlines, Nvml},
};

use super::{Outcome, Test, named};

pub(crate) fn tests() -> Vec<Test> {
    named("real", &[("the GPUs of this machine are read", reads)])
}

fn reads() -> Outcome {
    let nvml = match Nvml::open(Path::new("/"), &Roots::default(), Deadlines::default()) {
        Ok(nvml) => nvml,
        Err(error) => return Outcome::Skipped(error.to_string()),
    };
    let inventory = match nvml.inventory() {
        Ok(inventory) => inventory,
        Err(error) => return Outcome::Skipped(format!("{error}: is the driver loaded?")),
    };
    println!("{inventory:#?}");
    assert_eq!(inventory.faults, []);
    for gpu in &inventory.gpus {
        assert!(gpu.uuid.starts_with("GPU-") && gpu.memory > 1 << 30, "{gpu:?}");
        assert_eq!(gpu.profiles.is_empty(), gpu.mig == Mig::Unsupported);
        println!("{:#?}", nvml.device_files(gpu, None).unwrap());
        for partition in gpu.partitions() {
            println!("{:#?}", nvml.device_files(gpu, Some(&partition.uuid)).unwrap());
        }
        println!("time slice: {:?}", nvml.time_slice(&gpu.uuid));
    }
    println!("{:#?}", nvml.driver_files().unwrap());
    Outcome::Done
}
