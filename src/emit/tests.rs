use std::collections::BTreeMap;

use divvy_cdi::{
    host::{Node, NodeKind},
    spec::{DeviceType, Version, check},
};

use super::{Part, cdi_name, spec};
use crate::{
    claim::{Share, Sharing},
    gpu::{Files, MountFile, NodeFile},
    plan::{Planned, Target},
};

fn node(path: &str, host_path: &str) -> NodeFile {
    let node = Node { kind: NodeKind::Char, major: 195, minor: 3, mode: 0o666, uid: 0, gid: 0 };
    NodeFile { path: path.to_owned(), host_path: host_path.to_owned(), node }
}

#[test]
fn a_spec_has_its_devices_what_they_share_and_the_lowest_version() {
    let mount = MountFile { path: "/lib/x".to_owned(), host_path: "/usr/lib/x".to_owned() };
    let common = Files { nodes: vec![node("/dev/ctl", "/dev/ctl")], mounts: vec![mount] };
    let part = |device| Part {
        name: format!("uid-{device}"),
        device,
        uuid: "GPU-1",
        files: Files { nodes: vec![node("/dev/nvidia3", "/dev/nvidia3")], mounts: Vec::new() },
    };
    let made = spec(vec![part("gpu-a"), part("gpu-b")], common);
    assert_eq!(check(&made), []);
    assert_eq!(made.version, Version::V0_4_0, "no host path differs, so no 0.5.0 is needed");
    assert_eq!(made.kind, "gpu.divvy.dev/claim");
    assert_eq!(made.devices[0].name, "uid-gpu-a");
    assert_eq!(made.devices[1].container_edits.env, ["DIVVY_GPU_B=GPU-1"]);
    let device = &made.devices[0].container_edits.device_nodes[0];
    assert_eq!((device.kind, device.major, device.minor), (Some(DeviceType::Char), 195, 3));
    assert_eq!(made.container_edits.env, ["NVIDIA_VISIBLE_DEVICES=void"]);
    assert_eq!(made.container_edits.mounts[0].container_path, "/lib/x");
}

#[test]
fn shares_of_a_device_have_names_of_their_own() {
    let share = |id: &str| Share { id: id.to_owned(), consumed: BTreeMap::new() };
    let device = |share: Option<Share>| Planned {
        request: "r".to_owned(),
        pool: "n".to_owned(),
        device: "gpu-a".to_owned(),
        target: Target::Gpu { gpu: "GPU-1".to_owned() },
        sharing: Sharing::Exclusive,
        admin: false,
        share,
    };
    assert_eq!(cdi_name("uid", &device(None)), "gpu.divvy.dev/claim=uid-gpu-a");
    assert_eq!(cdi_name("uid", &device(Some(share("s")))), "gpu.divvy.dev/claim=uid-gpu-a-s");
}

#[test]
fn a_node_from_elsewhere_says_so() {
    let files = Files { nodes: vec![node("/dev/nvidia0", "/dev/null")], mounts: Vec::new() };
    let part = Part { name: "uid-gpu-a".to_owned(), device: "gpu-a", uuid: "GPU-1", files };
    let made = spec(vec![part], Files::default());
    assert_eq!(made.version, Version::V0_5_0);
    let device = &made.devices[0].container_edits.device_nodes[0];
    assert_eq!(device.host_path.as_deref(), Some("/dev/null"));
}
