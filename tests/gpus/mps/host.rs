//! A fake host whose GPUs can be shared, the clients on it, and what a test that fails leaves of its
//! daemons: that is taken away, as nobody else would.

use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    thread,
};

use divvy_fake_nvml::Layout;
use nix::{
    mount::{MntFlags, MsFlags, mount, umount2},
    sched::{CloneFlags, unshare},
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::support::{self, Fake, Gpu, SOON, eventually, fake_as};

pub(crate) const CGROUPS: &str = "/sys/fs/cgroup";

/// A host; its daemons end with it.
pub(crate) struct Host {
    pub(crate) fake: Fake,
}

/// A client that runs, as in a container; it ends when this does.
pub(crate) struct Client {
    child: Child,
    out: BufReader<ChildStdout>,
}

/// What a container has of the host.
pub(crate) struct Bind {
    pub(crate) host: PathBuf,
    pub(crate) path: PathBuf,
    pub(crate) read_only: bool,
}

// === impl Host ===

impl Host {
    /// With these GPUs; none where daemons cannot be had, and why.
    pub(crate) fn new(gpus: &[Gpu]) -> Result<Self, String> {
        // Not in /dev/shm, in whose place a daemon has another.
        let fake = fake_as(Layout::default(), tempfile::tempdir().unwrap(), gpus, SOON);
        if let Some(why) = support::no_nodes(&fake).or_else(no_daemons) {
            return Err(why);
        }
        // Servers of other users find their program there.
        fs::set_permissions(fake.host.root(), fs::Permissions::from_mode(0o755)).unwrap();
        fake.host.install_mps().unwrap();
        Ok(Self { fake })
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.fake.host.root().join(name)
    }

    /// The processes that were told of pipes below this path of the host.
    pub(crate) fn processes(&self, below: &str) -> Vec<u32> {
        processes(&self.path(below))
    }

    /// Starts a client, which has this environment and user.
    pub(crate) fn client(
        &self,
        binds: Vec<Bind>,
        set: impl FnOnce(&mut Command) -> &mut Command,
    ) -> Client {
        let mut command = Command::new(self.fake.host.client());
        set(&mut command).stdin(Stdio::piped()).stdout(Stdio::piped());
        let spawn = move || {
            unshare(CloneFlags::CLONE_NEWNS).unwrap();
            let nothing: Option<&str> = None;
            mount(nothing, "/", nothing, MsFlags::MS_SLAVE | MsFlags::MS_REC, nothing).unwrap();
            for Bind { host, path, read_only } in binds {
                fs::create_dir_all(&path).unwrap();
                mount(Some(&host), &path, nothing, MsFlags::MS_BIND, nothing).unwrap();
                if read_only {
                    let flags = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
                    mount(nothing, &path, nothing, flags, nothing).unwrap();
                }
            }
            command.spawn().unwrap()
        };
        let mut child = thread::spawn(spawn).join().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Client { child, out }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        clear(self.fake.host.root());
    }
}

// === impl Client ===

impl Client {
    /// What it got: waits until it has.
    pub(crate) fn given(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    pub(crate) fn runs(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    pub(crate) fn end(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// Kills a process, and waits until it is gone but for its name.
pub(crate) fn end(pid: u32) {
    kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL).unwrap();
    eventually("the end of a process", || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.is_empty() || stat.contains(") Z ")
    });
}

/// The processes that were told of pipes below a path, as their environment starts with them.
fn processes(pipes: &Path) -> Vec<u32> {
    let variable = format!("CUDA_MPS_PIPE_DIRECTORY={}", pipes.display());
    let entries = fs::read_dir("/proc").unwrap();
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let told = |pid: &u32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|b| *b == 0).any(|one| one.starts_with(variable.as_bytes()))
    };
    pids.filter(told).collect()
}

/// Ends those of a host, and its mounts below a folder.
pub(crate) fn clear(root: &Path) {
    for pid in processes(root) {
        let _gone = kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL);
    }
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let targets = mounts.lines().filter_map(|line| line.split(' ').nth(1));
    for target in targets.filter(|target| Path::new(target).starts_with(root)) {
        let _gone = umount2(target, MntFlags::MNT_DETACH);
    }
}

/// Why no daemon can be started here, if none can: it gets a mount namespace and cgroups of its own.
fn no_daemons() -> Option<String> {
    let apart = thread::spawn(|| unshare(CloneFlags::CLONE_NEWNS)).join().unwrap();
    if let Err(errno) = apart {
        return Some(format!("no mount namespace can be had: {errno}"));
    }
    let cgroups = Path::new(CGROUPS);
    let name = format!("divvy-probe-{}-{:?}", std::process::id(), thread::current().id());
    let v2 = cgroups.join("cgroup.controllers").exists();
    let below = fs::read_dir(cgroups).into_iter().flatten().filter_map(Result::ok);
    let all = below.map(|entry| entry.path()).filter(|path| path.join("cgroup.procs").exists());
    let all: Vec<_> = if v2 { vec![cgroups.to_owned()] } else { all.collect() };
    for hierarchy in &all {
        let probe = hierarchy.join(&name);
        if let Err(error) = fs::create_dir(&probe).and_then(|()| fs::remove_dir(&probe)) {
            return Some(format!("no cgroup can be made: {}: {error}", probe.display()));
        }
    }
    all.is_empty().then(|| format!("no cgroups are mounted at {CGROUPS}"))
}
