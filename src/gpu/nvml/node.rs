//! A node is a device node of the host, found by what the driver says of it, and trusted only when
//! its numbers are those that the kernel gave to the driver.

use std::path::{Path, PathBuf};

use divvy_cdi::host::{Host as _, Node, NodeKind, ThisHost};
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};

use super::host::Host;
use crate::gpu::{Files, Gpu, GpuError, Link, NodeFile, Partition};

/// A capability of the driver: a node that lets its opener use a GPU or compute instance.
struct Capability {
    minor: u32,
    mode: u32,
}

/// The major numbers that the kernel gave to drivers: `/proc/devices`.
struct Majors {
    path: PathBuf,
    text: String,
}

/// The driver's own major number is fixed; what it goes by in `/proc/devices` is not.
const NVIDIA: [&str; 3] = ["nvidia", "nvidia-frontend", "nvidiactl"];
const UVM: [&str; 1] = ["nvidia-uvm"];
const CAPS: [&str; 1] = ["nvidia-caps"];

/// What every container with a GPU needs besides: `true` where nothing works without.
const CONTROL: [(&str, &[&str], bool); 4] = [
    ("nvidiactl", &NVIDIA, true),
    ("nvidia-uvm", &UVM, true),
    ("nvidia-uvm-tools", &UVM, false),
    ("nvidia-modeset", &NVIDIA, false),
];

// === impl Majors ===

impl Majors {
    fn read(host: &Host) -> Result<Self, GpuError> {
        let text = String::from_utf8(host.read("proc/devices")?).unwrap_or_default();
        Ok(Self { path: host.path("proc/devices"), text })
    }

    fn of(&self, known_as: &[&str]) -> Result<u32, GpuError> {
        let characters = self.text.lines().take_while(|line| !line.starts_with("Block"));
        let mut majors = characters.filter_map(|line| {
            let (major, name) = line.trim().split_once(' ')?;
            known_as.contains(&name.trim()).then(|| major.parse().ok())?
        });
        let name = known_as.first().copied().unwrap_or_default().to_owned();
        majors.next().ok_or_else(|| GpuError::NoMajor { path: self.path.clone(), name })
    }
}

/// The nodes of a GPU, and of a partition of it.
pub(super) fn of_device(
    host: &Host,
    gpu: &Gpu,
    partition: Option<&Partition>,
) -> Result<Files, GpuError> {
    let (minor, majors) = (gpu.minor, Majors::read(host)?);
    let numbers = (majors.of(&NVIDIA)?, Some(minor));
    let mut nodes = vec![node(host, &format!("nvidia{minor}"), numbers)?];
    let mut files = Files::default();
    if let Some(Partition { gpu_instance, compute_instance, profile, .. }) = partition {
        // Such a partition is made to render.
        if profile.contains("gfx") {
            files = display(host, gpu)?;
        }
        let instance = format!("gpu{minor}/mig/gi{gpu_instance}");
        for below in
            [format!("{instance}/access"), format!("{instance}/ci{compute_instance}/access")]
        {
            nodes.push(capability_node(host, &majors, &below)?);
        }
    }
    nodes.append(&mut files.nodes);
    Ok(Files { nodes, ..files })
}

/// The nodes that a GPU renders and shows by, and the links by which they are known by its address.
/// Their numbers are those that the kernel has for them. One that is not there is only missed.
pub(super) fn display(host: &Host, gpu: &Gpu) -> Result<Files, GpuError> {
    let (mut files, folder) = (Files::default(), format!("sys/bus/pci/devices/{}/drm", gpu.pci));
    for name in host.names(&folder) {
        let number = host.read(&format!("{folder}/{name}/dev")).unwrap_or_default();
        let number = String::from_utf8(number).unwrap_or_default();
        let numbers = number.trim().split_once(':');
        let numbers = numbers.and_then(|(major, minor)| {
            Some((major.parse::<u32>().ok()?, minor.parse::<u32>().ok()?))
        });
        let Some((major, minor)) = numbers else { continue };
        match node(host, &format!("dri/{name}"), (major, Some(minor))) {
            Ok(node) => files.nodes.push(node),
            Err(GpuError::NoNode { path, .. }) => files.lacking.push(path.display().to_string()),
            Err(error) => return Err(error),
        }
    }
    for kind in ["card", "render"] {
        let below = format!("dri/by-path/pci-{}-{kind}", gpu.pci);
        let target = host.nodes(&below).iter().find_map(|link| std::fs::read_link(link).ok());
        let target = target.and_then(|target| target.to_str().map(str::to_owned));
        let led = |node: &NodeFile| {
            let name = node.path.strip_prefix("/dev/dri/");
            target.as_deref().and_then(|target| target.strip_prefix("../")) == name
        };
        if let (true, Some(target)) = (files.nodes.iter().any(led), &target) {
            files.links.push(Link { path: format!("/dev/{below}"), target: target.clone() });
        }
    }
    Ok(files)
}

/// The nodes that every container needs.
pub(super) fn control(host: &Host) -> Result<Files, GpuError> {
    let (mut nodes, majors) = (Vec::new(), Majors::read(host)?);
    for (name, known_as, needed) in CONTROL {
        match majors.of(known_as).and_then(|major| node(host, name, (major, None))) {
            Ok(node) => nodes.push(node),
            Err(GpuError::NoNode { .. } | GpuError::NoMajor { .. }) if !needed => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Files { nodes, ..Files::default() })
}

/// The node of a capability. The driver does not make them: whoever needs one does, as
/// nvidia-modprobe does.
fn capability_node(host: &Host, majors: &Majors, below: &str) -> Result<NodeFile, GpuError> {
    let Capability { minor, mode } = capability(host, below)?;
    let major = majors.of(&CAPS)?;
    let name = format!("nvidia-caps/nvidia-cap{minor}");
    match node(host, &name, (major, Some(minor))) {
        Err(GpuError::NoNode { .. }) => {
            if let Some(path) = host.nodes(&name).first() {
                make(path, (major, minor), mode)?;
            }
            node(host, &name, (major, Some(minor)))
        }
        other => other,
    }
}

/// What the driver says of a capability: `DeviceFileMinor: 21`, in decimal as its mode.
fn capability(host: &Host, below: &str) -> Result<Capability, GpuError> {
    let file = format!("proc/driver/nvidia/capabilities/{below}");
    let text = String::from_utf8(host.read(&file)?).unwrap_or_default();
    let number = |key: &str| {
        let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
        value.and_then(|value| value.trim().parse::<u32>().ok())
    };
    let (minor, mode) = (number("DeviceFileMinor"), number("DeviceFileMode"));
    match minor {
        Some(minor) => Ok(Capability { minor, mode: mode.unwrap_or(0o444) & 0o777 }),
        None => {
            let message = "has no line \"DeviceFileMinor: NUMBER\"".to_owned();
            Err(GpuError::HostFile { path: host.path(&file), message })
        }
    }
}

/// The node of this name, below the host's `/dev` or the driver container's own.
fn node(host: &Host, name: &str, numbers: (u32, Option<u32>)) -> Result<NodeFile, GpuError> {
    let places = host.nodes(name);
    let mut refused = None;
    for place in &places {
        match ThisHost.node(place) {
            Ok(Some(node)) => return checked(place, name, node, numbers),
            Ok(None) => {}
            Err(error) => refused = Some(error),
        }
    }
    let path = places.into_iter().next().unwrap_or_default();
    Err(GpuError::NoNode { path, source: refused })
}

fn checked(
    place: &Path,
    name: &str,
    node: Node,
    (major, minor): (u32, Option<u32>),
) -> Result<NodeFile, GpuError> {
    let minor_is = minor.is_none_or(|minor| minor == node.minor);
    // A node that outlived the driver that it was made for leads to another device by now.
    if node.kind != NodeKind::Char || node.major != major || !minor_is {
        return Err(GpuError::StaleNode {
            path: place.to_owned(),
            is: (node.major, node.minor),
            should: (major, minor.unwrap_or(node.minor)),
        });
    }
    let host_path = place.to_str().map(str::to_owned);
    let host_path =
        host_path.ok_or_else(|| GpuError::NoNode { path: place.to_owned(), source: None })?;
    Ok(NodeFile { path: format!("/dev/{name}"), host_path, node })
}

fn make(path: &Path, (major, minor): (u32, u32), mode: u32) -> Result<(), GpuError> {
    let refused = |source| GpuError::NoNode { path: path.to_owned(), source: Some(source) };
    if let Some(folder) = path.parent() {
        let durability = divvy_cdi::file::Durability::Volatile;
        divvy_cdi::file::make_dir(folder, 0o755, durability)?;
    }
    let mode = Mode::from_raw_mode(mode);
    match mknodat(CWD, path, FileType::CharacterDevice, mode, makedev(major, minor)) {
        // Whatever the umask is.
        Ok(()) => rustix::fs::chmod(path, mode).map_err(|errno| refused(errno.into())),
        // Somebody else was faster; its numbers are looked at next.
        Err(rustix::io::Errno::EXIST) => Ok(()),
        Err(errno) => Err(refused(errno.into())),
    }
}
