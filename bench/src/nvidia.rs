//! NVIDIA's specs as its generators write them on a node whose driver lives in a container.

use crate::tree::{Tree, list, text};

/// The driver container's root and the toolkit on the host.
pub(crate) const DRIVER: &str = "/run/nvidia/driver";
pub(crate) const HOOK: &str = "/run/nvidia/toolkit/nvidia-cdi-hook";
const LIBRARIES: &str = "/usr/lib/x86_64-linux-gnu";
const VERSION: &str = "550.163.01";
const NVIDIA: u64 = 195;
const CAPS: u64 = 237;

/// The libraries that the common edits mount, without prefix and version.
const NAMES: [&str; 27] = [
    "EGL_nvidia",
    "GLESv1_CM_nvidia",
    "GLESv2_nvidia",
    "GLX_nvidia",
    "cuda",
    "cudadebugger",
    "nvcuvid",
    "nvidia-allocator",
    "nvidia-cfg",
    "nvidia-eglcore",
    "nvidia-encode",
    "nvidia-fbc",
    "nvidia-glcore",
    "nvidia-glsi",
    "nvidia-glvkspirv",
    "nvidia-gpucomp",
    "nvidia-gtk3",
    "nvidia-ml",
    "nvidia-ngx",
    "nvidia-nvvm",
    "nvidia-opencl",
    "nvidia-opticalflow",
    "nvidia-pkcs11-openssl3",
    "nvidia-ptxjitcompiler",
    "nvidia-rtcore",
    "nvidia-tls",
    "nvoptix",
];

/// The other files: where they are in the driver's root and in the container.
const FILES: [&str; 14] = [
    "/usr/bin/nvidia-cuda-mps-control",
    "/usr/bin/nvidia-cuda-mps-server",
    "/usr/bin/nvidia-debugdump",
    "/usr/bin/nvidia-persistenced",
    "/usr/bin/nvidia-smi",
    "/etc/vulkan/icd.d/nvidia_icd.json",
    "/etc/vulkan/implicit_layer.d/nvidia_layers.json",
    "/usr/share/egl/egl_external_platform.d/10_nvidia_wayland.json",
    "/usr/share/egl/egl_external_platform.d/15_nvidia_gbm.json",
    "/usr/share/glvnd/egl_vendor.d/10_nvidia.json",
    "/usr/share/nvidia/nvoptix.bin",
    "/lib/firmware/nvidia/550.163.01/gsp_ga10x.bin",
    "/lib/firmware/nvidia/550.163.01/gsp_tu10x.bin",
    "/run/nvidia-persistenced/socket",
];

fn node(path: &str, major: u64, minor: u64) -> Tree {
    Tree::Map(vec![
        ("path", text(path)),
        ("major", Tree::Number(major)),
        ("minor", Tree::Number(minor)),
    ])
}

pub(crate) fn gpu_node(gpu: u64) -> Tree {
    Tree::Map(vec![
        ("path", text(format!("/dev/nvidia{gpu}"))),
        ("major", Tree::Number(NVIDIA)),
        ("minor", Tree::Number(gpu)),
        ("fileMode", Tree::Number(0o666)),
    ])
}

fn cap_node(minor: u64) -> Tree {
    node(&format!("/dev/nvidia-caps/nvidia-cap{minor}"), CAPS, minor)
}

/// The GPU instance's and the compute instance's capability of a MIG slice.
fn mig_nodes(gpu: u64, slice: u64) -> [Tree; 3] {
    let instance = 3 + gpu * 135 + (slice + 7) * 9;
    [gpu_node(gpu), cap_node(instance), cap_node(instance + 1)]
}

fn mount(path: &str, options: &[&str]) -> Tree {
    Tree::Map(vec![
        ("hostPath", text(format!("{DRIVER}{path}"))),
        ("containerPath", text(path)),
        ("options", list(options.iter().copied())),
    ])
}

fn hook(arguments: &[&str]) -> Tree {
    let arguments = ["nvidia-cdi-hook"].iter().chain(arguments).copied();
    Tree::Map(vec![
        ("hookName", text("createContainer")),
        ("path", text(HOOK)),
        ("args", list(arguments)),
        ("env", list(["NVIDIA_CTK_DEBUG=false"])),
    ])
}

/// The edits that every device of the node needs: 4 nodes, 41 mounts, 6 hooks.
pub(crate) fn common() -> Tree {
    let read_only = ["ro", "nosuid", "nodev", "rbind", "rprivate"];
    let mounts = NAMES.iter().map(|name| format!("{LIBRARIES}/lib{name}.so.{VERSION}"));
    let mounts = mounts.chain(FILES.iter().map(ToString::to_string));
    let links = format!("libnvidia-ml.so.{VERSION}::{LIBRARIES}/libnvidia-ml.so.1");
    let gbm = format!("../libnvidia-allocator.so.1::{LIBRARIES}/gbm/nvidia-drm_gbm.so");
    Tree::Map(vec![
        (
            "env",
            list([
                format!("NVIDIA_CTK_LIBCUDA_DIR={LIBRARIES}"),
                "NVIDIA_VISIBLE_DEVICES=void".into(),
            ]),
        ),
        (
            "deviceNodes",
            Tree::List(vec![
                node("/dev/nvidia-modeset", NVIDIA, 254),
                node("/dev/nvidia-uvm", 234, 0),
                node("/dev/nvidia-uvm-tools", 234, 1),
                node("/dev/nvidiactl", NVIDIA, 255),
            ]),
        ),
        (
            "hooks",
            Tree::List(vec![
                hook(&["create-symlinks", "--link", &gbm]),
                hook(&[
                    "create-symlinks",
                    "--link",
                    "libcuda.so.1::/usr/lib/x86_64-linux-gnu/libcuda.so",
                    "--link",
                    &links,
                ]),
                hook(&["enable-cuda-compat", "--host-driver-version=550.163.01"]),
                hook(&["update-ldcache", "--folder", LIBRARIES]),
                hook(&["disable-device-node-modification"]),
                hook(&["update-application-profile"]),
            ]),
        ),
        ("mounts", Tree::List(mounts.map(|path| mount(&path, &read_only)).collect())),
    ])
}

pub(crate) fn device(name: String, nodes: Vec<Tree>) -> Tree {
    Tree::Map(vec![
        ("name", text(name)),
        ("containerEdits", Tree::Map(vec![("deviceNodes", Tree::List(nodes))])),
    ])
}

pub(crate) fn spec(kind: &str, devices: Vec<Tree>, common: Tree) -> Tree {
    Tree::Map(vec![
        ("cdiVersion", text("0.5.0")),
        ("kind", text(kind)),
        ("devices", Tree::List(devices)),
        ("containerEdits", common),
    ])
}

/// A UUID that is the same in every run.
pub(crate) fn uuid(seed: u64) -> String {
    let bits = u128::from(seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    let hex = format!("{bits:032x}");
    let mut out = String::new();
    for (i, c) in hex.chars().enumerate() {
        if matches!(i, 8 | 12 | 16 | 20) {
            out.push('-');
        }
        out.push(c);
    }
    out
}

/// `nvidia-ctk cdi generate` on a node: each GPU and each MIG slice by index, by index with a prefix and by
/// UUID, and `all`. Eight GPUs with seven slices make 193 names.
pub(crate) fn node_spec(gpus: u64, slices: u64) -> Tree {
    let mut devices = Vec::new();
    let mut all = Vec::new();
    for gpu in 0..gpus {
        all.push(gpu_node(gpu));
        for name in [format!("{gpu}"), format!("gpu{gpu}"), format!("GPU-{}", uuid(gpu))] {
            devices.push(device(name, vec![gpu_node(gpu)]));
        }
        for slice in 0..slices {
            let nodes = mig_nodes(gpu, slice);
            all.extend(nodes.iter().skip(1).cloned());
            let id = uuid(100 + gpu * 7 + slice);
            for name in [format!("{gpu}:{slice}"), format!("mig{gpu}:{slice}"), format!("MIG-{id}")]
            {
                devices.push(device(name, nodes.to_vec()));
            }
        }
    }
    devices.push(device("all".into(), all));
    spec("nvidia.com/gpu", devices, common())
}

/// A claim's spec as NVIDIA's DRA driver writes it: one device, and all common edits again.
pub(crate) fn claim_spec(claim: u64) -> (String, Tree) {
    let name = format!("{}-gpu-{}", uuid(1000 + claim), claim % 8);
    let device = device(name.clone(), vec![gpu_node(claim % 8)]);
    (name, spec("k8s.gpu.nvidia.com/claim", vec![device], common()))
}

/// A claim's spec of a smaller driver, 1.5 KB: one device with its node, five mounts, a hook.
pub(crate) fn small_claim_spec(vendor: u64, claim: u64) -> (String, String, Tree) {
    let kind = format!("gpu.vendor{vendor}.example.com/claim");
    let name = format!("{}-gpu-{}", uuid(5000 + claim), claim % 8);
    let options = ["ro", "nosuid", "nodev", "bind"];
    let mounts = NAMES
        .iter()
        .take(5)
        .map(|name| mount(&format!("{LIBRARIES}/lib{name}.so.{VERSION}"), &options));
    let common = Tree::Map(vec![
        ("env", list([format!("CLAIM_UID={}", uuid(5000 + claim))])),
        ("hooks", Tree::List(vec![hook(&["update-ldcache", "--folder", LIBRARIES])])),
        ("mounts", Tree::List(mounts.collect())),
    ]);
    (kind.clone(), name.clone(), spec(&kind, vec![device(name, vec![gpu_node(claim % 8)])], common))
}

/// Every device node that the specs name: path, major, minor.
pub(crate) fn nodes() -> Vec<(String, u64, u64)> {
    let mut nodes = vec![
        ("/dev/nvidia-modeset".into(), NVIDIA, 254),
        ("/dev/nvidia-uvm".into(), 234, 0),
        ("/dev/nvidia-uvm-tools".into(), 234, 1),
        ("/dev/nvidiactl".into(), NVIDIA, 255),
    ];
    nodes.extend((0..8).map(|gpu| (format!("/dev/nvidia{gpu}"), NVIDIA, gpu)));
    nodes.extend(
        (0..2048).map(|minor| (format!("/dev/nvidia-caps/nvidia-cap{minor}"), CAPS, minor)),
    );
    nodes
}

/// Every file of the host that the specs mount or run.
pub(crate) fn files() -> Vec<String> {
    let libraries = NAMES.iter().map(|name| format!("{DRIVER}{LIBRARIES}/lib{name}.so.{VERSION}"));
    let files = FILES.iter().map(|path| format!("{DRIVER}{path}"));
    libraries.chain(files).chain([HOOK.to_owned()]).collect()
}
