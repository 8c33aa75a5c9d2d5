//! NVML is how the driver is asked and told about its GPUs: real ones, by `libnvidia-ml.so.1` of the
//! driver, which is opened when it is first needed.
//!
//! Nobody waits for NVML longer than a deadline. Each GPU has a thread that makes its calls, so one
//! that hangs is a fault in the inventory and keeps nobody else; what such a call makes when it
//! comes back after all is undone there. The library is opened anew when the driver is another, or
//! has other GPUs.

mod api;
mod host;
mod node;
mod partition;
mod read;
mod session;
mod smi;
mod vitals;
mod watch;
mod worker;

use std::{collections::BTreeSet, path::Path, sync::Arc, time::Duration};

use super::{
    Checkup, ComputeMode, Event, Files, Gpu, GpuError, Gpus, Interval, Inventory, MadePartition,
    Partition, PciAddress, Placement, Policy, Roots,
};
use crate::{
    driver::{Installed, LastDriver},
    program::Program,
};
use api::{Caller, Failed};
use host::Host;
use read::Desk;
use session::{Session, Sessions};
use watch::Heard;

/// The GPUs of a machine with NVIDIA's driver.
#[derive(Debug)]
pub struct Nvml {
    address: String,
    host: Host,
    deadlines: Deadlines,
    sessions: Sessions,
    heard: Arc<Heard>,
    driver: LastDriver,
    policy: Policy,
    /// In place of the machine's own.
    name: Option<String>,
}

/// How long is waited for NVML.
#[derive(Debug, Clone, Copy)]
pub struct Deadlines {
    /// For the library to open and begin: it attaches GPUs, which takes seconds on a machine without
    /// nvidia-persistenced.
    pub open: Duration,
    /// For a look at a GPU.
    pub look: Duration,
    /// For a change of a GPU: ending a GPU instance takes a second, and more under load.
    pub change: Duration,
}

// === impl Deadlines ===

impl Default for Deadlines {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { open: seconds(30), look: seconds(10), change: seconds(60) }
    }
}

// === impl Nvml ===

impl Nvml {
    /// The GPUs of the host at `root` (`/`, or a folder that stands for it), whose driver is in
    /// `roots`, or where drivers are. Nothing is loaded yet.
    ///
    /// # Errors
    /// There is no driver.
    pub fn open(root: &Path, roots: &Roots, deadlines: Deadlines) -> Result<Self, GpuError> {
        let host = Host::find(root, roots)?;
        let address = match root.to_str() {
            Some("/") => "nvml".to_owned(),
            _ => format!("nvml:{}", root.display()),
        };
        let (sessions, heard, driver, policy, name) = Default::default();
        Ok(Self { address, host, deadlines, sessions, heard, driver, policy, name })
    }

    /// The same, with this allowed.
    pub fn allowing(self, policy: Policy) -> Self {
        Self { policy, ..self }
    }

    /// The same under this name, if there is one.
    pub fn named(self, name: Option<&str>) -> Self {
        Self { name: name.map(str::to_owned), ..self }
    }

    /// The session of the driver as it is now.
    fn session(&self) -> Result<Arc<Session>, GpuError> {
        self.sessions.get(&self.host, self.deadlines.open)
    }

    /// In a session, and where it fails and that turns out to be of the past, in another. What
    /// succeeds is never done again: somebody else may have found out about the session meanwhile.
    fn in_session<T>(&self, act: impl Fn(&Session) -> Result<T, GpuError>) -> Result<T, GpuError> {
        let session = self.session()?;
        let done = act(&session);
        if done.is_ok() || !session.is_stale() {
            return done;
        }
        drop(session);
        act(&*self.session()?)
    }

    /// Has the worker of a GPU change something. `undo` takes back what comes too late.
    fn change<T: Send + 'static>(
        &self,
        gpu: &str,
        work: impl FnOnce(&Caller, &mut Desk) -> Result<T, GpuError> + Clone + Send + 'static,
        undo: impl FnOnce(&Caller, &mut Desk, T) + Clone + Send + 'static,
    ) -> Result<T, GpuError> {
        self.in_session(|session| {
            let station = session.station(gpu, self.deadlines.look)?;
            session.on(station, self.deadlines.change, work.clone(), undo.clone())
        })
    }
}

impl Gpus for Nvml {
    fn address(&self) -> &str {
        &self.address
    }

    fn inventory_of(&self, only: Option<&BTreeSet<PciAddress>>) -> Result<Inventory, GpuError> {
        let mut session = self.session()?;
        let mut read = session.read(only, self.deadlines.look);
        if session.is_stale() {
            // Before another begins: the library is shut down when the last one ends.
            drop(session);
            session = self.session()?;
            read = session.read(only, self.deadlines.look);
        }
        let (mut gpus, mut faults) = (Vec::new(), Vec::new());
        for gpu in read {
            match gpu {
                Ok(gpu) => gpus.push(gpu),
                Err(fault) => faults.push(fault),
            }
        }
        let node = self.name.clone().unwrap_or_else(|| self.host.name());
        let driver = session.driver.clone();
        Ok(Inventory { node, driver, gpus, faults, policy: self.policy })
    }

    fn checkup(&self) -> Result<Checkup, GpuError> {
        let session = self.session()?;
        let checkup = session.check(self.deadlines.look);
        if !session.is_stale() {
            return Ok(checkup);
        }
        // Before another begins: the library is shut down when the last one ends.
        drop(session);
        Ok(self.session()?.check(self.deadlines.look))
    }

    fn events(&self, patience: Duration) -> Result<Vec<Event>, GpuError> {
        // Whoever waits holds no session.
        self.session()?.watch(&self.heard)?;
        Ok(self.heard.take(patience))
    }

    fn uuids(&self, at: &BTreeSet<PciAddress>) -> BTreeSet<String> {
        self.sessions.uuids(at)
    }

    fn create_partition(
        &self,
        gpu: &str,
        profile: &str,
        placement: Placement,
    ) -> Result<Partition, GpuError> {
        let (uuid, of, profile) = (gpu.to_owned(), gpu.to_owned(), profile.to_owned());
        self.change(
            gpu,
            move |caller, desk| desk.create(caller, &uuid, &profile, placement),
            move |caller, desk, late| {
                let Partition { profile, placement, uuid, .. } = late;
                let made = MadePartition { gpu: of, profile, placement, uuid: Some(uuid) };
                // Nobody is left to be told; where it fails, the inventory shows the partition.
                let _undone = desk.destroy(caller, &made);
            },
        )
    }

    fn destroy_partition(&self, made: &MadePartition) -> Result<(), GpuError> {
        let ours = made.clone();
        let destroy = move |caller: &Caller, desk: &mut Desk| desk.destroy(caller, &ours);
        match self.change(&made.gpu, destroy, |_, _, ()| {}) {
            // Taken out, and its partitions with it.
            Err(GpuError::NoGpu { .. }) => Ok(()),
            other => other,
        }
    }

    fn time_slice(&self, gpu: &str) -> Result<Interval, GpuError> {
        self.in_session(|session| session.station(gpu, self.deadlines.look).map(drop))?;
        smi::time_slice(&self.host, gpu, self.deadlines.look)
    }

    fn set_time_slice(&self, gpu: &str, interval: Interval) -> Result<(), GpuError> {
        self.in_session(|session| session.station(gpu, self.deadlines.look).map(drop))?;
        smi::set_time_slice(&self.host, gpu, interval, self.deadlines.change)
    }

    fn set_compute_mode(&self, gpu: &str, mode: ComputeMode) -> Result<(), GpuError> {
        let of = format!("GPU {gpu}");
        let set = move |caller: &Caller, desk: &mut Desk| {
            let set = desk.device(caller).and_then(|gpu| caller.set_compute_mode(gpu, mode));
            set.map_err(|failed| GpuError::nvml(&of, &failed))
        };
        self.change(gpu, set, |_, _, ()| {})
    }

    fn set_mig(&self, gpu: &str, on: bool) -> Result<(), GpuError> {
        let of = gpu.to_owned();
        let set = move |caller: &Caller, desk: &mut Desk| desk.set_mig(caller, &of, on);
        self.change(gpu, set, |_, _, ()| {})
    }

    fn mps_control(&self) -> Result<Program, GpuError> {
        self.host.program("nvidia-cuda-mps-control")
    }

    fn device_files(&self, gpu: &Gpu, partition: Option<&str>) -> Result<Files, GpuError> {
        let there = partition.map(|uuid| gpu.partition_with(uuid)).transpose()?;
        node::of_device(&self.host, gpu, there)
    }

    fn display_files(&self, gpu: &Gpu) -> Result<Files, GpuError> {
        node::display(&self.host, gpu)
    }

    fn driver_files(&self) -> Result<Files, GpuError> {
        let mut files = node::control(&self.host)?;
        let (session, root) = (self.session()?, self.host.driver_root()?);
        let (version, library) = (session.driver.version.as_str(), session.library.as_path());
        let host = self.host.root();
        let found = self.driver.files(Installed { root: &root, host, version, library })?;
        files.mounts = found.mounts().cloned().collect();
        (files.links, files.folders) = (found.links.clone(), found.folders.clone());
        files.lacking = found.lacking.iter().map(|&lacking| lacking.to_owned()).collect();
        files.driver = version.to_owned();
        Ok(files)
    }
}

// === impl GpuError ===

impl GpuError {
    /// What NVML refused, and of what.
    fn nvml(of: &str, failed: &Failed) -> Self {
        let why = failed.to_string();
        Self::Nvml { of: of.to_owned(), why, code: failed.code }
    }
}
