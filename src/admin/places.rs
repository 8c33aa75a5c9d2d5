//! Places are where things are on this machine: what the command line says of them, and what it
//! leaves out.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use clap::Args;
use divvy_cdi::file::{self, Trust};
use divvy_hook::record::RunDir;

use super::{exit::Failure, shown};
use crate::{
    claim::DRIVER,
    declared::DeviceFile,
    emit,
    gpu::{self, Gpus, Missing, Policy, Roots},
    journal::{Call, Journal},
    pool::{Opened, Pool},
    prepare::Node,
};

/// Where things are, as far as the command line says.
#[derive(Debug, Args)]
#[command(next_help_heading = "Where things are")]
pub(crate) struct PlacesArgs {
    /// The node's GPUs: `nvml` are this machine's, `nvml:DIR` those of the host that DIR stands
    /// for, and `sim:FILE` is a simulated node that FILE describes
    #[arg(long, global = true, value_name = "GPUS")]
    gpus: Option<String>,
    /// Devices of the host other than GPUs, that FILE declares for a driver of its own: docs/devices.md
    #[arg(long, global = true, value_name = "FILE")]
    devices: Vec<PathBuf>,
    /// Where the NVIDIA driver's files are [default: /, /run/nvidia/driver or
    /// /home/kubernetes/bin/nvidia, whichever has them]
    #[arg(long, global = true, value_name = "DIR")]
    driver_root: Option<PathBuf>,
    /// Below which DIR the driver's device nodes are, as /dev/nvidia0 [default: /, or else the
    /// driver's root]
    #[arg(long, global = true, value_name = "DIR")]
    dev_root: Option<PathBuf>,
    /// The hook that CDI specs name, divvy-hook: an absolute path on this machine
    #[arg(long, global = true, value_name = "FILE", default_value = emit::HOOK)]
    hook: PathBuf,
    /// Switch the MIG mode of an idle GPU where a claim needs it and no reset is needed for it: on
    /// Hopper and newer. It is switched back with the last claim
    #[arg(long, global = true)]
    switch_mig: bool,
    /// Take MIG partitions that somebody else made for divvy's own: they are ended with the claim
    /// that is given them. Otherwise they are given, and left as they are
    #[arg(long, global = true)]
    adopt_mig: bool,
    /// Give whole GPUs in shares too: a claim that asks for a part of a GPU's memory leaves the rest to
    /// others, and all of them share it by MPS. A claim that asks for none has the GPU alone
    #[arg(long, global = true)]
    shares: bool,
    /// Tell the containers of claims what their devices are, by files below
    /// /var/run/kubernetes.io/dra-device-attributes (KEP-5304)
    #[arg(long, global = true)]
    device_metadata: bool,
    /// Where claims' CDI specs are written [default: /var/run/cdi; without root
    /// $XDG_RUNTIME_DIR/divvy/cdi]
    #[arg(long, global = true, value_name = "DIR")]
    cdi_dir: Option<PathBuf>,
    /// Where the records are, by which the hook finds a prepared claim [default: /run/divvy;
    /// without root $XDG_RUNTIME_DIR/divvy]
    #[arg(long, global = true, value_name = "DIR")]
    run_dir: Option<PathBuf>,
    /// Where the journal is: what was done for each claim [default: /var/lib/divvy; without root
    /// $XDG_STATE_HOME/divvy, or $HOME/.local/state/divvy]
    #[arg(long, global = true, value_name = "DIR")]
    state_dir: Option<PathBuf>,
}

/// Whose machine it is, as `main` finds it: root's directories are the system's, and another user
/// has their own. Only absolute paths count.
#[derive(Debug, Default)]
pub struct User {
    /// `XDG_RUNTIME_DIR`
    pub runtime_dir: Option<PathBuf>,
    /// `XDG_STATE_HOME`
    pub state_home: Option<PathBuf>,
    /// `HOME`
    pub home: Option<PathBuf>,
}

/// Where things are. Each is looked up when it is needed: without root it may be nowhere.
#[derive(Debug)]
pub(crate) struct Places<'a> {
    args: PlacesArgs,
    user: &'a User,
    /// The node's name in the cluster, where it is in one.
    node: Option<String>,
}

/// What is kept of a driver's claims: a node without its devices.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) journal: Journal,
    run: RunDir,
    cdi_dir: PathBuf,
    hook: PathBuf,
    roots: Roots,
    metadata: bool,
}

/// Where every distribution has the host's cgroups.
const CGROUPS: &str = "/sys/fs/cgroup";

// === impl User ===

impl User {
    /// The user whom a process's environment describes.
    pub fn of(variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let path = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
        Self {
            runtime_dir: path("XDG_RUNTIME_DIR"),
            state_home: path("XDG_STATE_HOME"),
            home: path("HOME"),
        }
    }
}

// === impl Places ===

impl Places<'_> {
    pub(crate) fn new(args: PlacesArgs, user: &User) -> Places<'_> {
        Places { args, user, node: None }
    }

    /// The same, of a node that a cluster has under this name.
    pub(crate) fn of_node(self, node: Option<String>) -> Self {
        Self { node, ..self }
    }

    /// All that is kept of a driver's claims, or everything that is missing to find it.
    pub(crate) fn kept(&self, driver: &str) -> Result<Kept, Failure> {
        let all = both(both(self.journal(driver), self.run_dir()), self.cdi_dir())?;
        let ((journal, run), cdi_dir) = all;
        let (run, hook) = (run.of_driver(driver), self.args.hook.clone());
        let (roots, metadata) = (self.roots(), self.args.device_metadata);
        Ok(Kept { journal, run, cdi_dir, hook, roots, metadata })
    }

    /// The drivers that have, or had, claims here: that of GPUs first.
    pub(super) fn drivers(&self) -> Result<Vec<String>, Failure> {
        let others = Journal::drivers(&self.state_dir()?).map_err(|e| Failure::of(e.code(), &e))?;
        Ok([DRIVER.to_owned()].into_iter().chain(others).collect())
    }

    /// The hook that specs name.
    pub(super) fn hook(&self) -> &Path {
        &self.args.hook
    }

    fn roots(&self) -> Roots {
        Roots { driver: self.args.driver_root.clone(), dev: self.args.dev_root.clone() }
    }

    pub(super) fn journal(&self, driver: &str) -> Result<Journal, Failure> {
        let state_dir = self.state_dir()?;
        Ok(match driver {
            DRIVER => Journal::new(&state_dir),
            driver => Journal::of_driver(&state_dir, driver),
        })
    }

    fn state_dir(&self) -> Result<PathBuf, Failure> {
        let User { state_home, home, .. } = self.user;
        let of_home = || home.as_ref().map(|home| home.join(".local/state"));
        let own = state_home.clone().or_else(of_home).map(|dir| dir.join("divvy"));
        let lacking = "--state-dir is needed: without root it is $XDG_STATE_HOME/divvy, or \
                       $HOME/.local/state/divvy, and neither XDG_STATE_HOME nor HOME is set";
        place(self.args.state_dir.as_ref(), "/var/lib/divvy", own, lacking)
    }

    /// As the hook does: without root, records are the user's own.
    fn run_dir(&self) -> Result<RunDir, Failure> {
        let own = self.user.runtime_dir.as_ref().map(|dir| dir.join("divvy"));
        let lacking = "--run-dir is needed: without root it is $XDG_RUNTIME_DIR/divvy, and \
                       XDG_RUNTIME_DIR is not set";
        Ok(RunDir::new(place(self.args.run_dir.as_ref(), "/run/divvy", own, lacking)?))
    }

    pub(super) fn cdi_dir(&self) -> Result<PathBuf, Failure> {
        let own = self.user.runtime_dir.as_ref().map(|dir| dir.join("divvy/cdi"));
        let lacking = "--cdi-dir is needed: without root it is $XDG_RUNTIME_DIR/divvy/cdi, and \
                       XDG_RUNTIME_DIR is not set";
        place(self.args.cdi_dir.as_ref(), "/var/run/cdi", own, lacking)
    }

    fn policy(&self) -> Policy {
        let PlacesArgs { switch_mig, adopt_mig, shares, .. } = self.args;
        Policy { switch_mig, adopt_mig, shares }
    }

    /// Whether devices were named: GPUs, or those of a file.
    pub(super) fn names_devices(&self) -> bool {
        self.args.gpus.is_some() || !self.args.devices.is_empty()
    }

    /// The one pool that was named.
    pub(crate) fn pool(&self) -> Result<Opened, Failure> {
        let usage = |line| Err(Failure::new("USAGE", line));
        match (&self.args.gpus, self.args.devices.as_slice()) {
            (_, []) => Ok(Opened::Gpus(self.gpus()?)),
            (None, [file]) => Ok(Opened::Declared(self.declared(file, None)?)),
            (Some(_), _) => usage(
                "--gpus and --devices: by hand a claim is one driver's, so only one of them counts",
            ),
            (None, _) => usage("--devices: by hand a claim is one driver's, so one file counts"),
        }
    }

    /// Every pool that was named, as it is now.
    pub(super) fn pools(&self) -> Result<Vec<Opened>, Failure> {
        self.pools_of(None)
    }

    /// The same for a daemon, which keeps what was good of files of devices.
    pub(crate) fn kept_pools(&self) -> Result<Vec<Opened>, Failure> {
        // Where there are no files, no state directory is needed either.
        let state_dir = match self.args.devices.is_empty() {
            true => None,
            false => Some(self.state_dir()?),
        };
        self.pools_of(state_dir.as_deref())
    }

    fn pools_of(&self, state_dir: Option<&Path>) -> Result<Vec<Opened>, Failure> {
        let mut pools: Vec<Opened> = Vec::new();
        if self.args.gpus.is_some() || self.args.devices.is_empty() {
            pools.push(Opened::Gpus(self.gpus()?));
        }
        for path in &self.args.devices {
            let file = self.declared(path, state_dir)?;
            if pools.iter().any(|other| other.pool().driver() == file.driver()) {
                let line = format!(
                    "--devices {}: driver {} has a file already",
                    shown(path),
                    file.driver()
                );
                return Err(Failure::new("USAGE", line));
            }
            pools.push(Opened::Declared(file));
        }
        Ok(pools)
    }

    /// The devices of a file, of which a copy is kept in that state directory, if any.
    fn declared(&self, path: &Path, state_dir: Option<&Path>) -> Result<DeviceFile, Failure> {
        let node = match &self.node {
            Some(node) => node.clone(),
            None => {
                let name = file::read(Path::new("/proc/sys/kernel/hostname"), 256, &Trust::Any)
                    .map_err(|error| Failure::of(error.code(), &error))?;
                String::from_utf8_lossy(&name).trim().to_lowercase()
            }
        };
        let path = std::path::absolute(path)
            .map_err(|error| Failure::new("FAILED", format!("--devices: {error}")))?;
        let file = match state_dir {
            Some(state_dir) => DeviceFile::keep(&path, node, state_dir),
            None => DeviceFile::open(&path, node),
        };
        file.map_err(|error| Failure::of_declared(&error))
    }

    /// The GPUs that were named.
    pub(crate) fn gpus(&self) -> Result<Box<dyn Gpus>, Failure> {
        match &self.args.gpus {
            Some(address) => gpu::open(address, &self.roots(), self.policy(), self.node.as_deref())
                .map_err(|e| Failure::of(e.code(), &e)),
            None => Err(Failure::new(
                "NO-GPUS",
                "no devices named: --gpus nvml for this machine's GPUs, --gpus sim:FILE for a simulated \
                 node's, or --devices FILE",
            )),
        }
    }
}

// === impl Kept ===

impl Kept {
    /// The pool that a claim was prepared on.
    pub(crate) fn open(&self, address: &str) -> Opened {
        if let Some(driver) = Pool::declared_driver(address) {
            return Opened::Declared(DeviceFile::missing(driver));
        }
        let gpus = gpu::open(address, &self.roots, Policy::default(), None);
        Opened::Gpus(gpus.unwrap_or_else(|error| Box::new(Missing::new(address, error))))
    }

    /// The node with this pool, in this boot.
    pub(crate) fn node<'a>(&'a self, pool: Pool<'a>, boot: &'a str) -> Node<'a> {
        let Self { journal, run, cdi_dir, hook, metadata, .. } = self;
        let (cgroups, metadata, call) = (Path::new(CGROUPS), *metadata, Call::default());
        Node { pool, journal, run, cdi_dir, hook, cgroups, boot, metadata, call }
    }
}

/// What is given; else root has the system's directory, and another user their own, if they have
/// one.
fn place(
    given: Option<&PathBuf>,
    system: &str,
    own: Option<PathBuf>,
    lacking: &str,
) -> Result<PathBuf, Failure> {
    if let Some(given) = given {
        return Ok(given.clone());
    }
    let root = rustix::process::geteuid().is_root() && !file::in_user_namespace();
    let own = if root { Some(system.into()) } else { own };
    own.ok_or_else(|| Failure::new("USAGE", format!("{lacking} to an absolute path")))
}

/// Both, or the failures of both.
fn both<A, B>(a: Result<A, Failure>, b: Result<B, Failure>) -> Result<(A, B), Failure> {
    match (a, b) {
        (Ok(a), Ok(b)) => Ok((a, b)),
        (Err(a), Err(b)) => Err(a.and(b)),
        (Err(error), Ok(_)) | (Ok(_), Err(error)) => Err(error),
    }
}

/// The boot that this machine is in.
pub(crate) fn boot() -> Result<String, Failure> {
    divvy_hook::record::boot_id().map_err(|e| Failure::of(e.code(), &e))
}
