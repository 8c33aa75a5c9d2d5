//! A node for unit tests: an H100 given whole, another in MIG mode.

use super::{Driver, Gpu, Inventory, Mig, Model, Partition, PciAddress, Placement, Policy};

/// The two GPUs of the node `n`; `there` exists on the second.
pub(crate) fn node(there: &[(&str, u8)]) -> Inventory {
    let model = Model::by_key("H100-80GB").unwrap();
    let partition = |(index, (profile, start)): (u32, &(&str, u8))| Partition {
        uuid: format!("MIG-{index}"),
        profile: (*profile).to_owned(),
        placement: Placement { start: *start, size: model.profile(profile).unwrap().size },
        gpu_instance: index,
        compute_instance: 0,
    };
    let gpu = |minor: u32, bus: u8, mig: Mig| {
        let pci = PciAddress { domain: 0, bus, device: 0, function: 0 };
        Gpu {
            mig_pending: matches!(mig, Mig::On(_)),
            mig,
            ..Gpu::of_model(model, format!("GPU-{minor}"), pci, minor)
        }
    };
    let partitions = (1u32..).zip(there).map(partition).collect();
    Inventory {
        node: "n".to_owned(),
        driver: Driver { name: "sim".to_owned(), version: "1".to_owned(), cuda: (13, 0) },
        gpus: vec![gpu(0, 0x1b, Mig::Off), gpu(1, 0x43, Mig::On(partitions))],
        faults: Vec::new(),
        policy: Policy::default(),
    }
}
