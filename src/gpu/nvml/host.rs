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
    /// The library's real path and inode: an update puts another one there.
    library: (PathBuf, u64, u64),
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

    /// The driver root, open, and where the library really is below it.
    pub(super) fn driver(&self) -> Result<(DriverRoot, PathBuf), GpuError> {
        let unreadable = |source| {
            let path =
                self.driver_root.join(self.library.strip_prefix("/").unwrap_or(&self.library));
            GpuError::from(file::FileError::Io { path, doing: "read", source })
        };
        let root = DriverRoot::open(&self.driver_root).map_err(unreadable)?;
        let gone = || unreadable(io::Error::from(io::ErrorKind::NotFound));
        let library = root.file(&self.library).ok_or_else(gone)?;
        Ok((root, library))
    }

    /// The library by its real name, which differs from version to version: the loader takes a file
    /// that it has open already for the same when it has the same name.
    pub(super) fn library(&self) -> Result<PathBuf, GpuError> {
        self.driver().map(|(root, library)| root.outside(&library))
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
        let library = self.library()?;
        let stat = fs::metadata(&library).map_err(|source| {
            GpuError::from(file::FileError::Io { path: library.clone(), doing: "read", source })
        })?;
        let module = self.read("proc/driver/nvidia/version").unwrap_or_default();
        let library = (library, stat.ino(), stat.mtime().cast_unsigned());
        Ok(Stamp { module, library, gpus: self.gpus() })
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
        let folder = "proc/driver/nvidia/gpus";
        self.path(folder).is_dir().then_some(())?;
        let names = self.names(folder).into_iter();
        let mut gpus: Vec<PciAddress> = names.filter_map(|name| name.parse().ok()).collect();
        gpus.sort_unstable();
        Some(gpus)
    }
}
