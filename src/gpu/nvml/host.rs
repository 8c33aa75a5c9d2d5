//! A host is the machine that the driver runs on: `/`, or a folder that stands for it, and in it the
//! root below which the driver's files are.

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use divvy_cdi::file::{self, Trust};

use crate::{
    driver::{DriverRoot, LIBRARY_DIRS},
    gpu::{GpuError, PciAddress, Roots},
    program::Program,
};

/// Where everything is.
#[derive(Debug, Clone)]
pub(super) struct Host {
    root: PathBuf,
    /// What the driver's own paths begin with.
    driver_root: PathBuf,
    /// libnvidia-ml.so.1 below that.
    library: PathBuf,
    /// What `/dev` with the driver's nodes is below, if that was said.
    dev_root: Option<PathBuf>,
}

/// The driver as it is loaded and installed now: when this changes, a session is of the past.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stamp {
    /// What the kernel module says of itself.
    module: Vec<u8>,
    /// The library's device, inode and time: an update puts another one there.
    library: (u64, u64, i64, i64),
    /// The load of the kernel module: the number of its folder, which no other ever has.
    pub(super) load: Option<u64>,
    /// The GPUs that the kernel module has.
    pub(super) gpus: Option<Vec<PciAddress>>,
}

/// Where a driver may be rooted: on the host itself, NVIDIA's driver container, GKE.
const DRIVER_ROOTS: [&str; 3] = ["", "run/nvidia/driver", "home/kubernetes/bin/nvidia"];

const LIBRARY: &str = "libnvidia-ml.so.1";
const MAX_BYTES: usize = 64 << 10;

// === impl Host ===

impl Host {
    /// The host at `root`, with the driver in the roots given or where drivers are.
    ///
    /// # Errors
    /// None is there; says every place that was looked at.
    pub(super) fn find(root: &Path, given: &Roots) -> Result<Self, GpuError> {
        let roots: Vec<PathBuf> = match &given.driver {
            Some(given) => vec![given.clone()],
            None => DRIVER_ROOTS.iter().map(|below| root.join(below)).collect(),
        };
        for driver_root in &roots {
            let Ok(open) = DriverRoot::open(driver_root) else { continue };
            let mut places = LIBRARY_DIRS.iter().map(|dir| Path::new("/").join(dir).join(LIBRARY));
            if let Some(library) = places.find(|library| open.file(library).is_some()) {
                let (root, driver_root) = (root.to_owned(), open.path().to_owned());
                return Ok(Self { root, driver_root, library, dev_root: given.dev.clone() });
            }
        }
        Err(GpuError::NoDriver { roots, folders: &LIBRARY_DIRS })
    }

    /// A path of the host: `proc/devices`.
    pub(super) fn path(&self, below: &str) -> PathBuf {
        self.root.join(below)
    }

    /// What the machine's own paths begin with.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// The driver root, open.
    pub(super) fn driver_root(&self) -> Result<DriverRoot, GpuError> {
        DriverRoot::open(&self.driver_root).map_err(|source| self.no_library(source))
    }

    /// The driver root, open, and where the library really is below it: its name differs from version
    /// to version, and the loader takes a file that it has open already for the same when it has the
    /// same name.
    pub(super) fn driver(&self) -> Result<(DriverRoot, PathBuf), GpuError> {
        let root = self.driver_root()?;
        match root.file(&self.library) {
            Some(library) => Ok((root, library)),
            None => Err(self.no_library(io::ErrorKind::NotFound.into())),
        }
    }

    fn no_library(&self, source: io::Error) -> GpuError {
        let path = self.driver_root.join(self.library.strip_prefix("/").unwrap_or(&self.library));
        file::FileError::Io { path, doing: "read", source }.into()
    }

    /// A program of the driver.
    pub(super) fn program(&self, name: &'static str) -> Result<Program, GpuError> {
        let (root, library) = self.driver()?;
        let library = root.outside(&library);
        Ok(Program::find(&root, library.parent().unwrap_or(root.path()), name)?)
    }

    /// Where a device node may be: `nvidiactl`.
    pub(super) fn nodes(&self, name: &str) -> Vec<PathBuf> {
        let roots = match &self.dev_root {
            Some(dev_root) => vec![dev_root],
            None => vec![&self.root, &self.driver_root],
        };
        roots.into_iter().map(|root| root.join("dev").join(name)).collect()
    }

    /// The driver as it is now.
    pub(super) fn stamp(&self) -> Result<Stamp, GpuError> {
        let stat = self.driver_root()?.stat(&self.library);
        let stat = stat.map_err(|source| self.no_library(source))?;
        let library = (stat.st_dev, stat.st_ino, stat.st_mtime, stat.st_mtime_nsec.cast_signed());
        let module = self.read("proc/driver/nvidia/version").unwrap_or_default();
        // sysfs gives each folder that it makes another number (kernfs ids).
        let loaded = fs::metadata(self.path("sys/module/nvidia"));
        let load = loaded.ok().map(|folder| folder.ino());
        Ok(Stamp { module, library, load, gpus: self.gpus() })
    }

    /// A file of the host, such as `proc/devices`.
    pub(super) fn read(&self, below: &str) -> Result<Vec<u8>, GpuError> {
        Ok(file::read(&self.path(below), MAX_BYTES, &Trust::Any)?)
    }

    /// The names in a folder of the host, in order; none where there is no such folder.
    pub(super) fn names(&self, below: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(below)).into_iter().flatten();
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut names: Vec<String> = names.collect();
        names.sort_unstable();
        names
    }

    /// A number in a file of sysfs, where there is one.
    pub(super) fn number(&self, below: &str) -> Option<i64> {
        String::from_utf8(self.read(below).ok()?).ok()?.trim().parse().ok()
    }

    /// The name by which the machine knows itself, and Kubernetes its node unless told otherwise.
    pub(super) fn name(&self) -> String {
        let read = self.read("proc/sys/kernel/hostname").ok();
        let name = read.and_then(|name| String::from_utf8(name).ok()).unwrap_or_default();
        match name.trim() {
            "" => "localhost".to_owned(),
            name => name.to_lowercase(),
        }
    }

    /// The PCIe root that a GPU hangs from: `/sys/devices/pci0000:15/…`.
    pub(super) fn pcie_root(&self, pci: PciAddress) -> Option<String> {
        let link = fs::read_link(self.path(&format!("sys/bus/pci/devices/{pci}"))).ok()?;
        let names = link.components().filter_map(|part| part.as_os_str().to_str());
        names.map(str::to_owned).find(|name| name.starts_with("pci"))
    }

    /// The GPUs that the kernel module has, by PCI address; `None` where it does not say.
    fn gpus(&self) -> Option<Vec<PciAddress>> {
        let entries = fs::read_dir(self.path("proc/driver/nvidia/gpus")).ok()?;
        let address =
            |entry: io::Result<fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse().ok();
        let mut gpus: Vec<PciAddress> = entries.filter_map(address).collect();
        gpus.sort_unstable();
        Some(gpus)
    }
}
