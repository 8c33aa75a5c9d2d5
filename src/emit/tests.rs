use std::{collections::BTreeMap, path::Path};

use divvy_cdi::{
    file::Durability,
    host::{Node, NodeKind},
    spec::{DeviceType, HookName, Spec, Version, check},
};

use super::{HookError, Part, name_of, spec};
use crate::{
    claim::{Share, Sharing},
    gpu::{Files, Link, MountFile, MountKind, NodeFile},
    mps::Access,
    plan::{Planned, Target},
};

fn node(path: &str, host_path: &str) -> NodeFile {
    let node = Node { kind: NodeKind::Char, major: 195, minor: 3, mode: 0o666, uid: 0, gid: 0 };
    NodeFile { path: path.to_owned(), host_path: host_path.to_owned(), node }
}

#[test]
fn a_spec_has_its_devices_what_they_share_and_the_lowest_version() {
    let mount = MountFile {
        path: "/lib/x".to_owned(),
        host_path: "/usr/lib/x".to_owned(),
        kind: MountKind::File,
    };
    let common = Files {
        nodes: vec![node("/dev/ctl", "/dev/ctl")],
        mounts: vec![mount],
        ..Files::default()
    };
    let part = |device| Part {
        name: format!("uid-{device}"),
        device,
        uuid: "GPU-1",
        files: Files { nodes: vec![node("/dev/nvidia3", "/dev/nvidia3")], ..Files::default() },
        mps: None,
    };
    let made = spec(vec![part("gpu-a"), part("gpu-b")], common, "/none".as_ref()).unwrap();
    assert_eq!(check(&made), []);
    assert_eq!(made.version, Version::V0_4_0, "no host path differs, so no 0.5.0 is needed");
    assert_eq!(made.kind, "gpu.divvy.dev/claim");
    assert_eq!(made.devices[0].name, "uid-gpu-a");
    assert_eq!(made.devices[1].container_edits.env, ["DIVVY_GPU_B=GPU-1"]);
    let device = &made.devices[0].container_edits.device_nodes[0];
    assert_eq!((device.kind, device.major, device.minor), (Some(DeviceType::Char), 195, 3));
    assert_eq!(made.container_edits.env, ["NVIDIA_VISIBLE_DEVICES=void"]);
    assert_eq!(made.container_edits.mounts[0].container_path, "/lib/x");
    assert_eq!(made.container_edits.hooks, [], "nothing is to be linked");
}

#[test]
fn shares_of_a_device_have_names_of_their_own() {
    let share = |id: &str| Share { id: id.to_owned(), consumed: BTreeMap::new() };
    let device = |share: Option<Share>| Planned {
        existing: None,
        display: false,
        request: "r".to_owned(),
        pool: "n".to_owned(),
        device: "gpu-a".to_owned(),
        target: Target::Gpu { gpu: "GPU-1".to_owned() },
        sharing: Sharing::Exclusive,
        admin: false,
        share,
    };
    assert_eq!(name_of("gpu.divvy.dev", "uid", &device(None)), "gpu.divvy.dev/claim=uid-gpu-a");
    assert_eq!(
        name_of("gpu.divvy.dev", "uid", &device(Some(share("s")))),
        "gpu.divvy.dev/claim=uid-gpu-a-s"
    );
}

#[test]
fn a_node_from_elsewhere_says_so() {
    let files = Files { nodes: vec![node("/dev/nvidia0", "/dev/null")], ..Files::default() };
    let part =
        Part { name: "uid-gpu-a".to_owned(), device: "gpu-a", uuid: "GPU-1", files, mps: None };
    let made = spec(vec![part], Files::default(), "/none".as_ref()).unwrap();
    assert_eq!(made.version, Version::V0_5_0);
    let device = &made.devices[0].container_edits.device_nodes[0];
    assert_eq!(device.host_path.as_deref(), Some("/dev/null"));
}

/// Files with a link, whose containers need the hook.
fn linked(hook: &Path) -> Result<Spec, HookError> {
    let link = Link { path: "/lib/libcuda.so".to_owned(), target: "libcuda.so.1".to_owned() };
    let mount = |name: &str, kind| MountFile {
        path: format!("/lib/{name}"),
        host_path: format!("/host/{name}"),
        kind,
    };
    let common = Files {
        mounts: vec![
            mount("libcuda.so.1", MountKind::File),
            mount("socket", MountKind::Socket),
            mount("a::b", MountKind::File),
            mount("a:", MountKind::File),
        ],
        links: vec![link],
        folders: vec!["/lib".to_owned()],
        ..Files::default()
    };
    let link = Link { path: "/dev/dri/by-path/a".to_owned(), target: "../card0".to_owned() };
    let part = |name: &str| Part {
        name: name.to_owned(),
        device: "gpu-a",
        uuid: "GPU-1",
        files: Files { links: vec![link.clone()], ..Files::default() },
        mps: None,
    };
    spec(vec![part("uid-gpu-a"), part("uid-gpu-b")], common, hook)
}

#[test]
fn one_hook_does_all_that_it_can_and_has_an_environment_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("divvy-hook");
    divvy_cdi::file::replace(&program, b"", 0o755, Durability::Volatile).unwrap();
    let made = linked(&program).unwrap();
    let [hook] = &made.container_edits.hooks[..] else { panic!("{made:?}") };
    assert_eq!((hook.hook_name, Path::new(&hook.path)), (HookName::CreateContainer, &*program));
    let args = [
        ["--mount", "/host/libcuda.so.1::/lib/libcuda.so.1"],
        ["--link", "libcuda.so.1::/lib/libcuda.so"],
        ["--link", "../card0::/dev/dri/by-path/a"],
        ["--folder", "/lib"],
    ];
    assert_eq!(hook.args[..2], ["divvy-hook", "container"]);
    assert_eq!(hook.args[2..], *args.as_flattened());
    assert!(made.devices.iter().all(|device| device.container_edits.hooks.is_empty()));
    let left: Vec<_> = made.container_edits.mounts.iter().map(|one| &*one.host_path).collect();
    assert_eq!(left, ["/host/socket", "/host/a::b", "/host/a:"], "what it cannot do or be told");
    assert_ne!(hook.env, Vec::<String>::new());
    // The hook understands it.
    let args: Vec<_> = hook.args[2..].iter().map(Into::into).collect();
    assert!(divvy_hook::container::Edits::parse(&args).is_ok());
}

#[test]
fn a_hook_that_cannot_be_run_or_that_others_may_write_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("divvy-hook");
    let refused = |path: &Path| linked(path).unwrap_err().code();
    assert_eq!(refused(&program), "HOOK-MISSING");
    assert_eq!(refused("divvy-hook".as_ref()), "HOOK-MISSING", "not absolute");
    for (mode, code) in [(0o644, "HOOK-MISSING"), (0o777, "UNTRUSTED")] {
        divvy_cdi::file::replace(&program, b"", mode, Durability::Volatile).unwrap();
        assert_eq!(refused(&program), code);
    }
    assert_eq!(refused(folder.path()), "HOOK-MISSING", "a folder");
}

#[test]
fn a_client_of_mps_has_its_daemons_pipes_and_memory() {
    let edits = |pinned_memory| {
        let (pipe, shm) = ("/run/divvy/mps/u-0/pipe".into(), "/run/divvy/mps/u-0/shm".into());
        let mps = Some(Access { pipe, shm, pinned_memory });
        let (name, files) = ("uid-gpu-a".to_owned(), Files::default());
        let part = Part { name, device: "gpu-a", uuid: "GPU-1", files, mps };
        let made = spec(vec![part], Files::default(), "/none".as_ref()).unwrap();
        assert_eq!(check(&made), []);
        made.devices[0].container_edits.clone()
    };
    let made = edits(None);
    let mounts: Vec<_> = made
        .mounts
        .iter()
        .map(|one| (one.host_path.as_str(), one.container_path.as_str(), one.options[0].as_str()))
        .collect();
    let (pipe, shm) = ("/run/divvy/mps/u-0/pipe", "/run/divvy/mps/u-0/shm");
    assert_eq!(mounts, [(pipe, "/tmp/nvidia-mps", "ro"), (shm, "/dev/shm", "rw")]);
    assert_eq!(made.env, ["DIVVY_GPU_A=GPU-1", "CUDA_MPS_PIPE_DIRECTORY=/tmp/nvidia-mps"]);
    for (bytes, told) in [(10 << 30, "0=10240M"), ((1 << 30) + 5, "0=1024M"), (7, "0=1M")] {
        let told = format!("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT={told}");
        assert_eq!(edits(Some(bytes)).env.last(), Some(&told));
    }
}
