//! A cgroup of its own is what lets a daemon outlive the service that started it: systemd ends all
//! that is in a service's cgroup when the service ends.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use divvy_cdi::file::{self, Trust};

use super::process::{PidFd, Process};

/// The cgroup hierarchies of a host, and in them the cgroups that are ours.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cgroups<'a> {
    root: &'a Path,
}

/// What has no use for it, and no room without being set up first.
const WITHOUT: &str = "cpuset";

/// The cgroup above all of ours.
const OURS: &str = "divvy";

const MAX_BYTES: usize = 1 << 20;

// === impl Cgroups ===

impl<'a> Cgroups<'a> {
    /// Those mounted at `root` (`/sys/fs/cgroup`).
    pub(super) fn at(root: &'a Path) -> Self {
        Self { root }
    }

    /// Moves a process into the cgroup of this name, made where it is missing, in each hierarchy.
    /// Whoever is given its pid meanwhile is moved back: what is in there is killed with the daemon.
    pub(super) fn adopt(self, name: &str, process: Process) -> Result<(), String> {
        let hierarchies = self.hierarchies();
        if hierarchies.is_empty() {
            return Err(format!("no cgroups are mounted at {}", self.root.display()));
        }
        for hierarchy in hierarchies {
            let cgroup = hierarchy.join(OURS).join(name);
            let before = cgroup_of(process.pid, &hierarchy);
            let moved = fs::create_dir_all(&cgroup).and_then(|()| enter(&cgroup, process.pid));
            moved.map_err(|error| format!("{}: {error}", cgroup.display()))?;
            if Process::of(process.pid) == Some(process) {
                continue;
            }
            // Above all of ours, if need be: there it is not killed.
            let before = before.unwrap_or_else(|| hierarchy.clone());
            let _ended_too =
                enter(&before, process.pid).or_else(|_| enter(&hierarchy, process.pid));
            return Err(format!("process {} has ended", process.pid));
        }
        Ok(())
    }

    /// Ends what is in the cgroup of this name, and removes it. One that is gone is no error.
    pub(super) fn remove(self, name: &str, deadline: Instant) -> io::Result<()> {
        for hierarchy in self.hierarchies() {
            let cgroup = hierarchy.join(OURS).join(name);
            loop {
                let held = members(&cgroup);
                held.iter().for_each(PidFd::kill);
                let all_ended = held.iter().all(|held| held.ends(deadline));
                match fs::remove_dir(&cgroup) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => break,
                    // Ended is not yet gone from it, and what was in it may have started others.
                    Err(error) if all_ended && error.kind() == io::ErrorKind::ResourceBusy => {
                        if Instant::now() > deadline {
                            return Err(error);
                        }
                        std::thread::sleep(Duration::from_millis(5));
                    }
                    removed => {
                        removed?;
                        break;
                    }
                }
            }
            // The last one's; others keep it.
            let _others = fs::remove_dir(hierarchy.join(OURS));
        }
        Ok(())
    }

    /// The hierarchies: one of version 2, those of version 1, or both side by side.
    fn hierarchies(self) -> Vec<PathBuf> {
        if self.root.join("cgroup.controllers").exists() {
            return vec![self.root.to_owned()];
        }
        let Ok(entries) = fs::read_dir(self.root) else { return Vec::new() };
        let mut all: Vec<PathBuf> = entries
            .filter_map(|entry| entry.ok())
            // `cpu` and `cpuacct` may be links to one hierarchy.
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .map(|entry| entry.path())
            .filter(|path| !path.ends_with(WITHOUT) && path.join("cgroup.procs").exists())
            .collect();
        all.sort();
        all
    }
}

/// Moves a process into a cgroup.
fn enter(cgroup: &Path, pid: u32) -> io::Result<()> {
    // A file of the kernel: nothing of it is ever half written.
    let mut procs = OpenOptions::new().write(true).open(cgroup.join("cgroup.procs"))?;
    procs.write_all(pid.to_string().as_bytes())
}

/// The cgroup of a hierarchy in which a process is now.
fn cgroup_of(pid: u32, hierarchy: &Path) -> Option<PathBuf> {
    let said = file::read(format!("/proc/{pid}/cgroup").as_ref(), MAX_BYTES, &Trust::Any).ok()?;
    let said = String::from_utf8_lossy(&said);
    let name = hierarchy.file_name()?.to_str()?;
    // `4:memory:/a`, `9:name=systemd:/b`; that of version 2 comes last, and has no name: `0::/c`.
    let is_it = |controllers: &str| {
        let mut all = controllers.split(',').map(|one| one.strip_prefix("name=").unwrap_or(one));
        controllers.is_empty() || controllers == name || all.any(|one| one == name)
    };
    let mut lines = said.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
    let (_, path) = lines.find(|(controllers, _)| is_it(controllers))?;
    Some(hierarchy.join(path.trim_start_matches('/')))
}

/// What is in a cgroup, held.
fn members(cgroup: &Path) -> Vec<PidFd> {
    let pids = || -> Vec<u32> {
        let read = file::read(&cgroup.join("cgroup.procs"), MAX_BYTES, &Trust::Any);
        let text = read.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        text.unwrap_or_default().lines().filter_map(|line| line.parse().ok()).collect()
    };
    let before: Vec<(u32, Option<PidFd>)> =
        pids().into_iter().map(|pid| (pid, Process::of(pid).and_then(Process::open))).collect();
    // One that is still in it is the one that was opened: its pid was not given again.
    let still = pids();
    before.into_iter().filter(|(pid, _)| still.contains(pid)).filter_map(|(_, held)| held).collect()
}

#[cfg(test)]
mod tests;
