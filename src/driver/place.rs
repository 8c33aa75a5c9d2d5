//! A place is where files of a driver are, below a driver root or in a container: as distributions,
//! NVIDIA's driver container, GKE and NixOS have them, and as NVIDIA's container toolkit looks.

/// Folders of libraries: Debian and Ubuntu, RHEL and others, GKE, NixOS.
pub(crate) const LIBRARY_DIRS: [&str; 10] = [
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib64",
    "usr/lib",
    "usr/lib/x86_64-linux-gnu/nvidia/current",
    "usr/lib/aarch64-linux-gnu/nvidia/current",
    "usr/local/nvidia/lib64",
    "lib64",
    "lib",
    "run/opengl-driver/lib",
];

/// Without these no program computes: `NAME.so.VERSION`.
pub(super) const NEEDED: [&str; 3] = ["libcuda", "libnvidia-ml", "libnvidia-ptxjitcompiler"];

/// Libraries with a version of their own: `NAME.so.*`. `true` where they are for graphics.
pub(super) const OWN_VERSION: [(&str, bool); 6] = [
    ("libnvidia-nvvm70", false),
    ("libnvidia-egl-gbm", true),
    ("libnvidia-egl-wayland", true),
    ("libnvidia-egl-wayland2", true),
    ("libnvidia-egl-xcb", true),
    ("libnvidia-egl-xlib", true),
];

/// Modules of the X server, and their folders beside libraries.
pub(super) const X_MODULES: [&str; 2] = ["nvidia_drv.so", "libglxserver_nvidia.so"];
pub(super) const X_DIRS: [&str; 6] = [
    "nvidia/xorg",
    "xorg/modules",
    "xorg/modules/drivers",
    "xorg/modules/extensions",
    "xorg/modules/updates/drivers",
    "xorg/modules/updates/extensions",
];

/// Links that programs ask for, whether the host has them or not: the library (`NAME.so.VERSION`),
/// the link beside it, and where that leads; empty stands for the library's own file name.
pub(super) const KNOWN_LINKS: [(&str, &str, &str); 6] = [
    ("libcuda", "libcuda.so", "libcuda.so.1"),
    ("libnvidia-opticalflow", "libnvidia-opticalflow.so", "libnvidia-opticalflow.so.1"),
    ("libGLX_nvidia", "libGLX_indirect.so.0", ""),
    ("libnvidia-allocator", "gbm/nvidia-drm_gbm.so", "../libnvidia-allocator.so.1"),
    ("libnvidia-vulkan-producer", "libnvidia-vulkan-producer.so", ""),
    ("libglxserver_nvidia", "libglxserver_nvidia.so", ""),
];

/// Folders of programs; where the last two lead is on no container's search path.
pub(crate) const BINARY_DIRS: [&str; 9] = [
    "usr/local/sbin",
    "usr/local/bin",
    "usr/sbin",
    "usr/bin",
    "sbin",
    "bin",
    "opt/bin",
    "run/opengl-driver/bin",
    "run/current-system/sw/bin",
];

/// Where a program goes that is in none of a container's own folders.
pub(super) const OWN_BINARY_DIRS: [&str; 6] =
    ["usr/local/sbin", "usr/local/bin", "usr/sbin", "usr/bin", "sbin", "bin"];
pub(super) const BINARY_DIR: &str = "/usr/bin";

/// Programs.
pub(super) const BINARIES: [&str; 8] = [
    "nvidia-smi",
    "nvidia-debugdump",
    "nvidia-persistenced",
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
    "nvidia-imex",
    "nvidia-imex-ctl",
    "nvidia-xconfig",
];

/// Folders of settings; the last is GKE's.
pub(super) const SETTING_DIRS: [&str; 5] =
    ["etc", "usr/local/share", "usr/share", "run/opengl-driver/share", ""];

/// Settings below such a folder, and below which folder a container's programs look for them.
pub(super) const SETTINGS: [(&str, &str); 17] = [
    ("glvnd/egl_vendor.d/10_nvidia.json", "/usr/share"),
    ("egl/egl_external_platform.d/15_nvidia_gbm.json", "/usr/share"),
    ("egl/egl_external_platform.d/10_nvidia_wayland.json", "/usr/share"),
    ("egl/egl_external_platform.d/09_nvidia_wayland2.json", "/usr/share"),
    ("egl/egl_external_platform.d/20_nvidia_xcb.json", "/usr/share"),
    ("egl/egl_external_platform.d/20_nvidia_xlib.json", "/usr/share"),
    ("nvidia/nvoptix.bin", "/usr/share"),
    ("X11/xorg.conf.d/10-nvidia.conf", "/usr/share"),
    ("X11/xorg.conf.d/nvidia-drm-outputclass.conf", "/usr/share"),
    ("OpenCL/vendors/nvidia.icd", "/etc"),
    ("vulkan/icd.d/nvidia_icd.json", "/etc"),
    ("vulkan/icd.d/nvidia_icd.x86_64.json", "/etc"),
    ("vulkan/icd.d/nvidia_icd.aarch64.json", "/etc"),
    ("vulkan/icd.d/nvidia_layers.json", "/etc"),
    ("vulkan/implicit_layer.d/nvidia_layers.json", "/etc"),
    ("vulkan/implicit_layer.d/nvidia_layers.x86_64.json", "/etc"),
    ("vulkan/implicit_layer.d/nvidia_layers.aarch64.json", "/etc"),
];

/// Sockets of the driver's daemons, below `/run`. That of MPS is for claims that share by it.
pub(super) const SOCKETS: [&str; 2] = ["nvidia-persistenced/socket", "nvidia-fabricmanager/socket"];

/// What most drivers have: a part of its path, and what a person calls it.
pub(super) const USUAL: [(&str, &str); 6] = [
    ("/nvidia-smi", "nvidia-smi"),
    ("/gsp", "GSP firmware"),
    ("/libnvidia-encode.so.", "video encoding"),
    ("/libEGL_nvidia.so.", "EGL"),
    ("/nvidia_icd.", "Vulkan"),
    ("/nvidia.icd", "OpenCL"),
];
