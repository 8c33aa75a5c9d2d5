//! The tree is what a driver shows of itself besides NVML: `/proc`, `/sys`, `/dev`. It follows the
//! state.

use std::{
    fs, io,
    os::unix::fs::{chown, symlink},
    path::{Path, PathBuf},
};

use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};

use crate::{
    State,
    state::Gpu,
    store::{keep, text},
};

/// Major numbers: the driver's own is fixed, the others are given by the kernel.
const NVIDIA: u32 = 195;
const CAPS: u32 = 236;
const UVM: u32 = 509;
const DRM: u32 = 226;

/// The groups `video` and `render` of a Debian.
const VIDEO: u32 = 44;
const RENDER: u32 = 105;

/// Makes the tree below `root` say what the state says.
pub(crate) fn follow(root: &Path, state: &State) -> io::Result<()> {
    let driver = root.join("proc/driver/nvidia");
    load(root, state)?;
    if !state.loaded {
        gone(fs::remove_dir_all(&driver))?;
        return keep(&root.join("proc/devices"), "Character devices:\n  1 mem\n");
    }
    keep(
        &root.join("proc/devices"),
        &format!(
            "Character devices:\n  1 mem\n{NVIDIA} nvidia\n{NVIDIA} nvidia-modeset\n{NVIDIA} nvidiactl\n\
             {CAPS} nvidia-caps\n{UVM} nvidia-uvm\n\nBlock devices:\n259 blkext\n"
        ),
    )?;
    keep(&root.join("proc/sys/kernel/hostname"), "fake-gpus\n")?;
    let version = &state.driver;
    keep(
        &driver.join("version"),
        &format!(
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  {version}  Sun Jul 27 07:12:34 UTC 2025\n\
             GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n"
        ),
    )?;
    keep(&driver.join("params"), "ModifyDeviceFiles: 1\nDeviceFileMode: 438\n")?;
    let capabilities = driver.join("capabilities");
    keep(&capabilities.join("mig/config"), &capability(1, 256))?;
    keep(&capabilities.join("mig/monitor"), &capability(2, 292))?;
    follow_capabilities(&capabilities, state)?;
    for gpu in &state.gpus {
        follow_gpu(root, &driver, gpu)?;
    }
    nodes(root, state)
}

/// The module's folder, which each load makes anew.
fn load(root: &Path, state: &State) -> io::Result<()> {
    let modules = root.join("sys/module");
    let (folder, generation) = (modules.join("nvidia"), format!("{}\n", state.generation));
    if !state.loaded {
        return gone(fs::remove_dir_all(&folder));
    }
    if text(&folder.join("generation"))? == generation {
        return Ok(());
    }
    // The old one is still there when the new one is made, so both have numbers of their own.
    let new = modules.join("new");
    gone(fs::remove_dir_all(&new))?;
    keep(&new.join("generation"), &generation)?;
    gone(fs::remove_dir_all(&folder))?;
    fs::rename(new, folder)
}

fn follow_capabilities(capabilities: &Path, state: &State) -> io::Result<()> {
    let mut wanted: Vec<(PathBuf, String)> = Vec::new();
    for gpu in state.gpus.iter().filter(|gpu| gpu.present && gpu.mig) {
        let mig = capabilities.join(format!("gpu{}/mig", gpu.minor));
        for instance in &gpu.instances {
            let gi = mig.join(format!("gi{}", instance.id));
            // As the driver numbers them: /proc/driver/nvidia-caps/mig-minors.
            let minor = 3 + gpu.minor * 135 + instance.id * 9;
            wanted.push((gi.join("access"), capability(minor, 292)));
            for compute in &instance.compute {
                let file = gi.join(format!("ci{}/access", compute.id));
                wanted.push((file, capability(minor + 1 + compute.id, 292)));
            }
        }
    }
    for entry in fs::read_dir(capabilities)? {
        let path = entry?.path();
        if path.file_name().is_some_and(|name| name != "mig") {
            sweep(&path, &wanted)?;
        }
    }
    wanted.iter().try_for_each(|(path, text)| keep(path, text))
}

/// Removes the files that are not wanted, and the folders that are left empty.
fn sweep(folder: &Path, wanted: &[(PathBuf, String)]) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            sweep(&path, wanted)?;
        } else if !wanted.iter().any(|(file, _)| *file == path) {
            gone(fs::remove_file(&path))?;
        }
    }
    match fs::remove_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
        other => gone(other),
    }
}

fn follow_gpu(root: &Path, driver: &Path, gpu: &Gpu) -> io::Result<()> {
    let Gpu { pci, uuid, minor, numa, .. } = gpu;
    let information = driver.join("gpus").join(pci).join("information");
    let link = root.join("sys/bus/pci/devices").join(pci);
    if !gpu.present {
        gone(fs::remove_file(&link))?;
        return gone(fs::remove_dir_all(driver.join("gpus").join(pci)));
    }
    let product = gpu.model().map_or("?", |model| model.product);
    keep(
        &information,
        &format!(
            "Model: \t\t {product}\nIRQ:   \t\t 97\nGPU UUID: \t {uuid}\nBus Type: \t PCIe\n\
             Bus Location: \t {pci}\nDevice Minor: \t {minor}\n"
        ),
    )?;
    // The root's bus is one below the GPU's, and a bridge lies between.
    let domain = pci.split(':').next().unwrap_or("0000");
    let bus = pci.split(':').nth(1).and_then(|bus| u8::from_str_radix(bus, 16).ok());
    let above = bus.unwrap_or(1).saturating_sub(1);
    let below = format!("devices/pci{domain}:{above:02x}/{domain}:{above:02x}:01.0/{pci}");
    let device = root.join("sys").join(&below);
    keep(&device.join("numa_node"), &format!("{numa}\n"))?;
    keep(&device.join("vendor"), "0x10de\n")?;
    keep(&device.join("class"), "0x030200\n")?;
    for (name, number, _, kind) in drm(*minor) {
        keep(&device.join("drm").join(&name).join("dev"), &format!("{DRM}:{number}\n"))?;
        let by_path = root.join("dev/dri/by-path");
        fs::create_dir_all(&by_path)?;
        replace_link(Path::new("..").join(name), &by_path.join(format!("pci-{pci}-{kind}")))?;
    }
    fs::create_dir_all(root.join("sys/bus/pci/devices"))?;
    replace_link(Path::new("../../..").join(&below), &link)
}

/// A GPU's nodes in `/dev/dri`: name, minor, group, and what the link to it is called.
fn drm(minor: u32) -> [(String, u32, u32, &'static str); 2] {
    let render = 128 + minor;
    [
        (format!("card{minor}"), minor, VIDEO, "card"),
        (format!("renderD{render}"), render, RENDER, "render"),
    ]
}

fn replace_link(target: PathBuf, link: &Path) -> io::Result<()> {
    if fs::read_link(link).is_ok_and(|there| there == target) {
        return Ok(());
    }
    gone(fs::remove_file(link))?;
    symlink(target, link)
}

/// The nodes that the driver's own tools make. Those of capabilities are made by whoever needs them.
fn nodes(root: &Path, state: &State) -> io::Result<()> {
    let dev = root.join("dev");
    fs::create_dir_all(&dev)?;
    let mut wanted: Vec<(String, u32, u32, u32)> = vec![
        ("nvidiactl".to_owned(), NVIDIA, 255, 0),
        ("nvidia-modeset".to_owned(), NVIDIA, 254, 0),
        ("nvidia-uvm".to_owned(), UVM, 0, 0),
        ("nvidia-uvm-tools".to_owned(), UVM, 1, 0),
    ];
    for gpu in state.gpus.iter().filter(|gpu| gpu.present) {
        wanted.push((format!("nvidia{}", gpu.minor), NVIDIA, gpu.minor, 0));
        let drm = drm(gpu.minor).into_iter();
        wanted
            .extend(drm.map(|(name, minor, group, _)| (format!("dri/{name}"), DRM, minor, group)));
    }
    fs::create_dir_all(dev.join("dri"))?;
    for (name, major, minor, group) in wanted {
        let mode = Mode::from_raw_mode(if group == 0 { 0o666 } else { 0o660 });
        match mknodat(CWD, dev.join(&name), FileType::CharacterDevice, mode, makedev(major, minor))
        {
            // Whatever the umask is.
            Ok(()) => {
                rustix::fs::chmod(dev.join(&name), mode)?;
                chown(dev.join(&name), None, Some(group))?;
            }
            Err(rustix::io::Errno::EXIST) => {}
            // Without root a host has no nodes, and everything else.
            Err(rustix::io::Errno::PERM) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// As the driver writes it.
fn capability(minor: u32, mode: u32) -> String {
    format!("DeviceFileMinor: {minor}\nDeviceFileMode: {mode}\nDeviceFileModify: 1\n")
}

/// What is gone already need not be removed.
fn gone(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// The time slices, which a load of the driver sets back.
pub(crate) fn time_slices(control: &Path, state: &State) -> io::Result<()> {
    for gpu in &state.gpus {
        let file = control.join("timeslice").join(&gpu.uuid);
        if !text(&file)?.starts_with('u') {
            keep(&file, "0\n")?;
        }
    }
    Ok(())
}
