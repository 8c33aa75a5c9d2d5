//! A control daemon of MPS: started, found again, told its settings, and ended.

mod failing;
mod life;
mod setting;

use std::{
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    time::Duration,
};

use divvy::{
    gpu::ComputeMode,
    mps::{Mps, MpsError, Process, Running, Setup},
};
use divvy_fake_nvml::mps::Script;

use super::host::{Bind, CGROUPS, Client, Host};
use crate::{Test, named, support::Gpu};

pub(crate) use life::starter;

const GPUS: &[Gpu] = &[("H100-80GB", false)];

/// What a daemon that does nothing is waited for.
const PATIENCE: Duration = Duration::from_secs(10);
const SHORT: Duration = Duration::from_millis(500);

pub(crate) fn tests() -> Vec<Test> {
    named(
        "mps",
        &[
            ("a daemon is ready, set up, apart, and gone when it is stopped", life::whole_life),
            ("a daemon outlives who started it, killed, and is adopted", life::outlives),
            ("what was started before a crash could note it is ended", life::unnoted),
            ("a pid that was given again is nobody's daemon", life::recycled),
            ("a daemon that died is started again where it was", life::died),
            ("a daemon that never comes leaves nothing", failing::never_ready),
            (
                "one that comes late in the place of another was never told, and is ended",
                failing::late,
            ),
            ("whether one listens cannot be told: no second beside it", failing::crowded),
            ("what is left of a start holds no lock", failing::lock),
            ("a daemon that dies at once, or speaks no sense, leaves nothing", failing::senseless),
            ("a setting that is not kept is an error", failing::refused),
            ("a daemon that runs and does not answer is left alone", failing::deaf),
            ("a daemon that does not obey is killed", failing::disobedient),
            ("one user's clients are served at a time", setting::one_user),
            ("with multiUser all are served, as root", setting::all_users),
            ("a driver without -M is told apart", setting::no_multi_user),
            ("a host without cgroups is told", setting::no_cgroup),
            ("daemons of one name in two directories are two", life::namesakes),
            ("what a crash left in the directories is no obstacle", life::leftovers),
            (
                "GPUs are exclusive while they are shared, and as before after",
                setting::compute_mode,
            ),
            ("no name leads elsewhere, or to a socket that nobody can reach", setting::names),
            ("a log that has grown is emptied", setting::log),
            ("NVIDIA's own control daemon, where this machine has it", life::real),
        ],
    )
}

/// A fake host with one GPU, and where its daemons are.
struct World {
    host: Host,
    setup: Setup,
}

// === impl World ===

impl World {
    /// None where such daemons cannot be had, and why.
    fn new() -> Result<Self, String> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let host = Host::new(GPUS)?;
        let uuid = host.fake.uuid(0);
        let setup = Setup {
            name: format!("test-{}-{}", std::process::id(), NUMBER.fetch_add(1, Relaxed)),
            devices: vec![uuid.clone()],
            active_thread_percentage: Some(50),
            pinned_memory: [(uuid.clone(), 2 << 30)].into(),
            multi_user: false,
            modes: [(uuid, ComputeMode::Default)].into(),
        };
        Ok(Self { host, setup })
    }

    fn dir(&self) -> PathBuf {
        self.host.path("run/mps")
    }

    fn place(&self) -> PathBuf {
        self.dir().join(&self.setup.name)
    }

    fn script(&self, script: &Script) {
        self.host.fake.host.script_mps(script).unwrap();
    }

    fn with<T>(&self, patience: Duration, act: impl FnOnce(&Mps<'_>) -> T) -> T {
        let (gpus, dir) = (&self.host.fake.nvml, self.dir());
        act(&Mps { gpus, dir: &dir, cgroups: Path::new(CGROUPS), patience })
    }

    fn start(&self) -> Running {
        self.with(PATIENCE, |mps| mps.start(&self.setup)).unwrap()
    }

    fn ensure(&self, running: &mut Running) -> Result<bool, MpsError> {
        self.with(PATIENCE, |mps| mps.ensure(&self.setup, running))
    }

    fn stop(&self, running: Option<Process>) {
        self.with(PATIENCE, |mps| mps.stop(&self.setup, running)).unwrap();
        self.nothing_left();
    }

    /// The processes that have this daemon's pipes in their environment.
    fn processes(&self) -> Vec<u32> {
        self.host.processes(&format!("run/mps/{}/pipe", self.setup.name))
    }

    #[track_caller]
    fn nothing_left(&self) {
        assert_eq!(self.processes(), [0; 0]);
        assert!(!self.place().exists(), "{}", self.place().display());
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
        assert!(!mounts.contains(&self.setup.name), "{mounts}");
        assert_eq!(self.cgroups(), [""; 0]);
    }

    /// The cgroups that have this daemon's name.
    fn cgroups(&self) -> Vec<String> {
        let below = std::fs::read_dir(CGROUPS).unwrap().map(|entry| entry.unwrap().path());
        let all = std::iter::once(PathBuf::from(CGROUPS)).chain(below);
        let ours = all.filter_map(|root| std::fs::read_dir(root.join("divvy")).ok()).flatten();
        let names = ours.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.starts_with(&format!("mps-{}-", self.setup.name))).collect()
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.place().join("log/control.log")).unwrap_or_default()
    }

    /// Starts a client, as a container would: it has the daemon's pipes and its `/dev/shm`.
    fn client(&self, user: u32) -> Client {
        use std::os::unix::process::CommandExt;
        let access = self.with(PATIENCE, |mps| mps.access(&self.setup)).unwrap();
        let pipe = access.pipe.clone();
        let binds = vec![
            Bind { host: access.shm, path: "/dev/shm".into(), read_only: false },
            Bind { host: access.pipe.clone(), path: access.pipe, read_only: true },
        ];
        self.host.client(binds, |command| command.env("CUDA_MPS_PIPE_DIRECTORY", pipe).uid(user))
    }
}

#[track_caller]
fn fails<T: std::fmt::Debug>(result: Result<T, MpsError>, code: &str, says: &[&str]) {
    let error = result.unwrap_err();
    let text = error.to_string();
    assert_eq!(error.code(), code, "{text}");
    for says in says {
        assert!(text.contains(says), "{says:?} is not in: {text}");
    }
}
