//! The driver's files are what a container needs of NVIDIA's driver besides device nodes: libraries,
//! programs, firmware, settings and sockets, as they lie below a driver root.
//!
//! A driver root is `/`, the root of a driver container (`/run/nvidia/driver`), or a folder that was
//! made for one (`/home/kubernetes/bin/nvidia`). All of it is looked up below that root, links
//! included, and has the same path in the container as below the root. What computing needs must be
//! there; of the rest, what is missing is said.

mod error;
mod file;
mod library;
mod place;
mod root;

use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use crate::gpu::{Link, MountFile};

pub use error::DriverError;
pub(crate) use place::{BINARY_DIRS, LIBRARY_DIRS};
pub use root::{DriverRoot, Looked};

/// A driver that is installed.
#[derive(Debug, Clone, Copy)]
pub struct Installed<'a> {
    /// What its paths are below.
    pub root: &'a DriverRoot,
    /// What the machine's own paths are below: `/`.
    pub host: &'a Path,
    /// Its version, as NVML has it: `580.65.06`.
    pub version: &'a str,
    /// Where its libnvidia-ml really is, below the root.
    pub library: &'a Path,
}

/// The files of a driver, and where each goes in a container.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DriverFiles {
    /// Libraries of the driver's version.
    pub libraries: Vec<MountFile>,
    /// Programs.
    pub binaries: Vec<MountFile>,
    /// What the driver loads into GPUs.
    pub firmware: Vec<MountFile>,
    /// Libraries and settings of EGL, Vulkan, OpenCL and X.
    pub graphics: Vec<MountFile>,
    /// Sockets of the driver's daemons.
    pub sockets: Vec<MountFile>,
    /// Links by which programs know the libraries.
    pub links: Vec<Link>,
    /// Folders of libraries, for the dynamic loader: the one of the loaded libnvidia-ml first.
    pub folders: Vec<String>,
    /// What a driver may have, and this one has not.
    pub lacking: Vec<&'static str>,
    /// Where all that was looked for; none where that may have changed meanwhile.
    looked: Option<Looked>,
}

/// The files of the driver that was last asked about: they are looked for anew when something is
/// different where they were looked for.
#[derive(Debug, Default)]
pub struct LastDriver(Mutex<Option<(String, Arc<DriverFiles>)>>);

// === impl LastDriver ===

impl LastDriver {
    /// The files of a driver.
    ///
    /// # Errors
    /// As [`DriverFiles::find`].
    pub fn files(&self, driver: Installed<'_>) -> Result<Arc<DriverFiles>, DriverError> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((version, files)) = last.as_mut()
            && version == driver.version
            && files.looked.as_ref().is_some_and(|looked| driver.root.is_as(looked))
        {
            // Daemons come and go.
            let sockets = file::sockets(driver);
            if files.sockets != sockets {
                Arc::make_mut(files).sockets = sockets;
            }
            return Ok(Arc::clone(files));
        }
        *last = None;
        let files = Arc::new(DriverFiles::find(driver)?);
        *last = Some((driver.version.to_owned(), Arc::clone(&files)));
        Ok(files)
    }
}

// === impl DriverFiles ===

impl DriverFiles {
    /// Finds the files of a driver.
    ///
    /// # Errors
    /// It lacks what computing needs.
    pub fn find(driver: Installed<'_>) -> Result<Self, DriverError> {
        let found = library::find(driver)?;
        let mut files = Self {
            folders: found.folders(),
            links: found.links(driver),
            libraries: found.mounts(driver, library::Kind::Compute),
            graphics: found.mounts(driver, library::Kind::Graphics),
            binaries: file::binaries(driver),
            firmware: file::firmware(driver),
            sockets: file::sockets(driver),
            lacking: Vec::new(),
            looked: None,
        };
        files.graphics.extend(file::settings(driver));
        files.lacking = files.lacks();
        files.looked = driver.root.looked();
        Ok(files)
    }

    /// All files, to be mounted.
    pub fn mounts(&self) -> impl Iterator<Item = &MountFile> {
        let all = [&self.libraries, &self.graphics, &self.binaries, &self.firmware, &self.sockets];
        all.into_iter().flatten()
    }

    /// What most drivers have, as far as this one has it not.
    fn lacks(&self) -> Vec<&'static str> {
        let has = |mark: &str| self.mounts().any(|file| file.path.contains(mark));
        place::USUAL.iter().filter(|(mark, _)| !has(mark)).map(|(_, what)| *what).collect()
    }
}
