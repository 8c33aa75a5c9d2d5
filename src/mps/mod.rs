//! MPS lets processes run on a GPU at once. A control daemon of NVIDIA's driver (one for each set of
//! devices that is shared so) takes clients in and starts a server for them, which has the GPU.
//!
//! The daemon is a process of the host: started without shell, chroot or container, in a session, a
//! mount namespace and a cgroup of its own, so that it outlives whoever started it. Who comes later
//! finds it again by pid, start time and socket, and never signals a pid that was given again.
//!
//! A server serves the clients of one user; those of another wait until the last one of it ends. With
//! [`Setup::multi_user`] all are served at once, and all as root: see docs/mps.md.

mod cgroup;
mod control;
mod error;
mod place;
mod process;
mod start;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use divvy_hook::record::digest;
use serde::{Deserialize, Serialize};

use crate::{
    gpu::{ComputeMode, GpuError, Gpus},
    program::Program,
};
use cgroup::Cgroups;
use place::Place;
use process::PidFd;

pub use error::{About, MpsError};
pub use process::Process;

/// The variable that tells the daemon, its control program and its clients where its pipes are.
pub const PIPE_DIRECTORY: &str = "CUDA_MPS_PIPE_DIRECTORY";

/// Where a container finds the pipes of its daemon: where CUDA looks, and what it is told.
pub const PIPE_IN_CONTAINER: &str = "/tmp/nvidia-mps";

/// MPS on a host.
#[derive(Debug, Clone, Copy)]
pub struct Mps<'a> {
    /// Its GPUs, and the control program that came with their driver.
    pub gpus: &'a dyn Gpus,
    /// Where each daemon has its directories. Below `/run`: a reboot ends the daemons too.
    pub dir: &'a Path,
    /// Where the host's cgroups are: `/sys/fs/cgroup`.
    pub cgroups: &'a Path,
    /// How long is waited for each thing that a daemon does.
    pub patience: Duration,
}

/// How a control daemon is set up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Setup {
    /// Its name, and that of its directory: letters, digits, dashes.
    pub name: String,
    /// UUIDs of its GPUs, or partitions, as its clients number them.
    pub devices: Vec<String>,
    /// The part of a device's threads that a client may fill, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_thread_percentage: Option<u8>,
    /// The device memory that a client may pin, in bytes, by the device's UUID.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pinned_memory: BTreeMap<String, u64>,
    /// Whether clients of several users share a server.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub multi_user: bool,
    /// The GPUs that it has to itself, and their compute modes as they were.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub modes: BTreeMap<String, ComputeMode>,
}

/// A control daemon that runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Running {
    /// The daemon's own: its servers are its children.
    #[serde(flatten)]
    pub process: Process,
    /// Why it has no cgroup of its own, if so: then it ends with the service that started it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_cgroup: Option<String>,
}

/// What a container needs to be a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    /// Mounted read-only at [`PIPE_IN_CONTAINER`]: what could be put there, root would follow.
    pub pipe: PathBuf,
    /// Mounted at `/dev/shm`.
    pub shm: PathBuf,
    /// The memory that its processes are told to pin at most, in bytes: less than the daemon allows
    /// to all. Told by the environment, which they could unset.
    pub pinned_memory: Option<u64>,
}

// === impl Mps ===

impl Mps<'_> {
    /// Starts a daemon, with its GPUs to itself: a process that came in beside the server would take
    /// turns with all of its clients. Whatever has its name is ended first.
    ///
    /// # Errors
    /// Nothing of it is left, as far as [`Mps::stop`] can do that.
    pub fn start(&self, setup: &Setup) -> Result<Running, MpsError> {
        let program = self.gpus.mps_control()?;
        self.end(setup, None)?;
        Place::new(self.dir, &setup.name)?.remove()?;
        let started = self.exclude(setup).and_then(|()| self.bring_up(&program, setup));
        if started.is_err() {
            // What it says is said already; what stays is found by who ends the claim.
            let _left = self.stop(setup, None);
        }
        started
    }

    /// Adopts a daemon that was started before, and starts it again where it has died; true then.
    /// Its directories stay, as clients have them mounted.
    ///
    /// # Errors
    /// It cannot be started again, or runs and does not answer: then it is left alone, as it may
    /// have clients.
    pub fn ensure(&self, setup: &Setup, running: &mut Running) -> Result<bool, MpsError> {
        let program = self.gpus.mps_control()?;
        let place = Place::new(self.dir, &setup.name)?;
        let is_gone = |running: &Running| running.process.open().is_none();
        let answers = match is_gone(running) {
            true => Ok(()),
            false => self.answers(&program, setup, running.process),
        };
        // It may have died while it was asked.
        if is_gone(running) {
            // Started again before, maybe, by who could not note it any more.
            *running = self.join(setup)?;
            return Ok(true);
        }
        answers?;
        place.trim_logs();
        running.no_cgroup = self.adopt(setup, running.process);
        Ok(false)
    }

    /// The daemon of this name as it runs, whoever started it; started where none does.
    ///
    /// # Errors
    /// As [`Mps::ensure`].
    pub fn join(&self, setup: &Setup) -> Result<Running, MpsError> {
        let program = self.gpus.mps_control()?;
        let place = Place::new(self.dir, &setup.name)?;
        // With an error, such as of a full backlog, there may be one: not a second beside it.
        let listens = process::listener(&place.socket())
            .map_err(|source| MpsError::Unreached { about: self.about(setup), source })?;
        match listens.and_then(Process::of) {
            Some(process) => {
                self.answers(&program, setup, process)?;
                Ok(Running { process, no_cgroup: self.adopt(setup, process) })
            }
            None => {
                self.exclude(setup)?;
                self.bring_up(&program, setup)
            }
        }
    }

    /// Ends a daemon with its servers, sets its GPUs as they were, and removes its directories. Needs
    /// neither the driver nor to know its process; one that is gone is no error, and it can be
    /// repeated.
    ///
    /// # Errors
    /// Something of it is left.
    pub fn stop(&self, setup: &Setup, running: Option<Process>) -> Result<(), MpsError> {
        let ended = self.end(setup, running);
        let readmitted = self.readmit(setup);
        ended.and(readmitted)?;
        // Last, as it has what the rest needs.
        Ok(Place::new(self.dir, &setup.name)?.remove()?)
    }

    /// The setup of a daemon of this name, as far as there is one: what a crash left of it.
    pub fn left(&self, name: &str) -> Option<Setup> {
        Place::new(self.dir, name).ok()?.noted()
    }

    /// The names of all daemons that are there.
    pub fn names(&self) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.dir) else { return Vec::new() };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut names: Vec<String> = names.collect();
        names.sort_unstable();
        names
    }

    fn end(&self, setup: &Setup, running: Option<Process>) -> Result<(), MpsError> {
        let place = Place::new(self.dir, &setup.name)?;
        let known = running.filter(|process| process.open().is_some());
        let daemon = known.or_else(|| self.listens(&place).and_then(Process::of));
        if let Some((process, held)) = daemon.and_then(|it| Some((it, it.open()?))) {
            let told = self.listens(&place) == Some(process.pid)
                && self.gpus.mps_control().is_ok_and(|program| {
                    control::ask(&program, &place, control::QUIT, self.patience).is_ok()
                });
            if !(told && held.ends(Instant::now() + self.patience.min(GRACE))) {
                held.kill();
            }
            self.gone(setup, process, &held)?;
        }
        // Its servers, and one that a crash left before it listened.
        for process in place.processes() {
            let Some(held) = process.open() else { continue };
            held.kill();
            self.gone(setup, process, &held)?;
        }
        let deadline = Instant::now() + self.patience;
        let removed = Cgroups::at(self.cgroups).remove(&self.cgroup_of(setup), deadline);
        removed.map_err(|source| MpsError::Cgroup { about: self.about(setup), source })
    }

    /// Lets no process but a daemon's server on its GPUs, as somebody may have set them back.
    ///
    /// # Errors
    /// A GPU cannot be set.
    pub fn exclude(&self, setup: &Setup) -> Result<(), MpsError> {
        let place = Place::new(self.dir, &setup.name)?;
        place.make()?;
        // Whoever ends it, without a journal too, finds how its GPUs were.
        place.note(setup)?;
        for gpu in setup.modes.keys() {
            self.gpus.set_compute_mode(gpu, ComputeMode::ExclusiveProcess)?;
        }
        Ok(())
    }

    /// The first that could not be set back is the error; the others are.
    fn readmit(&self, setup: &Setup) -> Result<(), MpsError> {
        let mut failed = Ok(());
        for (gpu, before) in &setup.modes {
            match self.gpus.set_compute_mode(gpu, *before) {
                // A GPU that was taken out took its setting along.
                Ok(()) | Err(GpuError::NoGpu { .. }) => {}
                Err(error) => failed = failed.and(Err(error)),
            }
        }
        Ok(failed?)
    }

    /// What a container needs to be a client of this daemon.
    ///
    /// # Errors
    /// No daemon can have that name.
    pub fn access(&self, setup: &Setup) -> Result<Access, MpsError> {
        let place = Place::new(self.dir, &setup.name)?;
        Ok(Access { pipe: place.pipe(), shm: place.shm(), pinned_memory: None })
    }

    fn gone(&self, setup: &Setup, process: Process, held: &PidFd) -> Result<(), MpsError> {
        if held.ends(Instant::now() + self.patience) {
            return Ok(());
        }
        Err(MpsError::Stop { about: self.about(setup), pid: process.pid })
    }

    /// Who listens at its socket, for who ends it whether it can be told or not.
    fn listens(&self, place: &Place) -> Option<u32> {
        process::listener(&place.socket()).ok().flatten()
    }

    /// Refuses a daemon that is not reached, or not as it was set up.
    fn answers(&self, program: &Program, setup: &Setup, it: Process) -> Result<(), MpsError> {
        let place = Place::new(self.dir, &setup.name)?;
        let silent = |why| MpsError::Silent { about: self.about(setup), pid: it.pid, why };
        match process::listener(&place.socket()) {
            Ok(Some(pid)) if pid == it.pid => {}
            Ok(Some(pid)) => return Err(silent(format!("process {pid} listens at its socket"))),
            Ok(None) => return Err(silent("does not listen at its socket".to_owned())),
            Err(error) => return Err(silent(format!("its socket cannot be used: {error}"))),
        }
        match control::verify(program, &place, setup, self.patience) {
            Err(control::Failed::Silent(why)) => Err(silent(why)),
            Err(control::Failed::Setting { setting, answer }) => {
                Err(MpsError::Setting { about: self.about(setup), setting, answer })
            }
            Ok(()) => Ok(()),
        }
    }

    /// Puts a daemon into its cgroup; why not, if not.
    fn adopt(&self, setup: &Setup, process: Process) -> Option<String> {
        Cgroups::at(self.cgroups).adopt(&self.cgroup_of(setup), process).err()
    }

    /// The name of its cgroup: the host has one for all directories in which daemons are, and two
    /// daemons of one name in two of them are two.
    fn cgroup_of(&self, setup: &Setup) -> String {
        let dir = digest(self.dir.as_os_str().as_encoded_bytes());
        let place = dir.trim_start_matches("sha256:").chars().take(8).collect::<String>();
        format!("mps-{}-{place}", setup.name)
    }

    fn about(&self, setup: &Setup) -> Box<About> {
        let place = Place::new(self.dir, &setup.name).ok();
        Box::new(About {
            daemon: setup.name.clone(),
            devices: setup.devices.clone(),
            log: self.dir.join(&setup.name).join("log/control.log"),
            last_line: place.and_then(|place| place.last_line()),
        })
    }
}

/// How long a daemon that was told to end may take for it.
const GRACE: Duration = Duration::from_secs(8);
