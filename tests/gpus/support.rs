//! What the tests share: a host with the GPUs of a test, simulated or faked.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use divvy::gpu::{
    Files, GpuError, Gpus, Inventory, MadePartition, Partition, Placement, Roots,
    nvml::{Deadlines, Nvml},
    sim::Sim,
};
use divvy_cdi::file::Durability;
use divvy_fake_nvml::{FakeHost, Layout};
use tempfile::TempDir;

/// GPUs by model, and whether they are in MIG mode.
pub(crate) type Gpu = (&'static str, bool);

/// Deadlines that a test can wait for, and that a crowded machine keeps.
pub(crate) const SOON: Deadlines = Deadlines {
    open: Duration::from_secs(2),
    look: Duration::from_secs(1),
    change: Duration::from_secs(2),
};

/// A folder that is gone afterwards: in memory where that can be had.
pub(crate) fn folder() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// A fake host and NVML on it.
pub(crate) struct Fake {
    pub(crate) host: FakeHost,
    pub(crate) nvml: Nvml,
    /// Gone with it.
    pub(crate) _folder: TempDir,
}

/// For what must not be waited for: a test that waits never ends.
pub(crate) const NEVER: Duration = Duration::from_secs(3600);

pub(crate) fn fake(gpus: &[Gpu]) -> Fake {
    fake_with(gpus, SOON)
}

pub(crate) fn fake_with(gpus: &[Gpu], deadlines: Deadlines) -> Fake {
    fake_as(Layout::default(), folder(), gpus, deadlines)
}

pub(crate) fn fake_as(layout: Layout, folder: TempDir, gpus: &[Gpu], deadlines: Deadlines) -> Fake {
    let host = FakeHost::make_as(layout, folder.path(), gpus).unwrap();
    let nvml = Nvml::open(host.root(), &Roots::default(), deadlines).unwrap();
    Fake { host, nvml, _folder: folder }
}

impl Fake {
    /// UUID of a GPU, by its place in the host's state.
    pub(crate) fn uuid(&self, index: usize) -> String {
        self.host.state().unwrap().gpus[index].uuid.clone()
    }

    /// The GPU instances that the hardware has, of all GPUs.
    pub(crate) fn instances(&self) -> usize {
        self.host.state().unwrap().gpus.iter().map(|gpu| gpu.instances.len()).sum()
    }

    /// How often a call was made since the host is watched.
    pub(crate) fn count(&self, call: &str) -> usize {
        let calls = self.host.calls().unwrap();
        calls.iter().filter(|made| made.split(' ').next() == Some(call)).count()
    }

    pub(crate) fn inventory(&self) -> Inventory {
        self.nvml.inventory().unwrap()
    }
}

#[expect(clippy::disallowed_methods, reason = "a test's own input")]
pub(crate) fn write(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
}

/// What a container gets of the GPU with this UUID, as it is now.
pub(crate) fn device_files(
    gpus: &dyn Gpus,
    gpu: &str,
    partition: Option<&str>,
) -> Result<Files, GpuError> {
    gpus.device_files(gpus.inventory()?.find(gpu)?, partition)
}

pub(crate) fn display_files(gpus: &dyn Gpus, gpu: &str) -> Result<Files, GpuError> {
    gpus.display_files(gpus.inventory()?.find(gpu)?)
}

/// Stands in for divvy-hook, which a spec names, in a folder.
pub(crate) fn hook(folder: &Path) -> PathBuf {
    let path = folder.join("divvy-hook");
    divvy_cdi::file::replace(&path, b"", 0o755, Durability::Volatile).unwrap();
    path
}

/// One of divvy's programs, on this host and with directories of its own there.
pub(crate) fn command(fake: &Fake, program: &str, args: &[&str]) -> Command {
    let root = fake.host.root();
    let mut command = Command::new(program);
    command.current_dir(root).args(args);
    command.arg("--gpus").arg(format!("nvml:{}", root.display()));
    command.arg("--hook").arg(root.join("divvy-hook"));
    for place in ["state", "cdi", "run"] {
        command.arg(format!("--{place}-dir")).arg(root.join("divvy").join(place));
    }
    command
}

/// A simulated node with these GPUs.
pub(crate) fn sim(folder: &Path, gpus: &[Gpu]) -> Sim {
    let gpus =
        gpus.iter().map(|(model, mig)| format!("[[gpu]]\nmodel = \"{model}\"\nmig = {mig}\n"));
    write(&folder.join("node.toml"), &gpus.collect::<String>());
    Sim::open(&folder.join("node.toml")).unwrap()
}

pub(crate) fn place(start: u8, size: u8) -> Placement {
    Placement { start, size }
}

pub(crate) fn made(gpu: &str, partition: &Partition) -> MadePartition {
    MadePartition {
        gpu: gpu.to_owned(),
        profile: partition.profile.clone(),
        placement: partition.placement,
        uuid: Some(partition.uuid.clone()),
    }
}

#[track_caller]
pub(crate) fn fails<T: std::fmt::Debug>(result: Result<T, GpuError>, code: &str, says: &str) {
    let error = result.unwrap_err();
    assert_eq!(error.code(), code, "{error}");
    assert!(error.to_string().contains(says), "{error}");
}

/// Waits for what happens in another thread.
#[track_caller]
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !holds() {
        assert!(Instant::now() < end, "{what} did not come to be");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Why device nodes cannot be made here, if they cannot.
pub(crate) fn no_nodes(fake: &Fake) -> Option<String> {
    let there = fake.host.root().join("dev/nvidiactl").exists();
    (!there).then(|| "only root can make the fake host's device nodes".to_owned())
}

/// That any thread may hold a backend.
pub(crate) fn shared(gpus: &dyn Gpus) -> &(dyn Gpus + Send + Sync) {
    gpus
}
