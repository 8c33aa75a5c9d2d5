//! What MPS daemons need of a machine, and what a test that fails leaves of them: that is taken away,
//! as nobody else would.

use std::{fs, path::Path};

use nix::{
    mount::{MntFlags, umount2},
    sched::{CloneFlags, unshare},
    sys::signal::{Signal, kill},
    unistd::Pid,
};

/// The processes that were told of pipes below a folder, as their environment starts with them.
pub(crate) fn processes(pipes: &str) -> Vec<u32> {
    let variable = format!("CUDA_MPS_PIPE_DIRECTORY={pipes}");
    let entries = fs::read_dir("/proc").unwrap();
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let told = |pid: &u32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|b| *b == 0).any(|one| one.starts_with(variable.as_bytes()))
    };
    pids.filter(told).collect()
}

/// Ends those of a host, and its mounts.
pub(crate) fn clear(root: &Path) {
    for pid in processes(&root.display().to_string()) {
        let _gone = kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL);
    }
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let targets = mounts.lines().filter_map(|line| line.split(' ').nth(1));
    for target in targets.filter(|target| Path::new(target).starts_with(root)) {
        let _gone = umount2(target, MntFlags::MNT_DETACH);
    }
}

/// Why no daemon can be started here, if none can: it gets a mount namespace and cgroups of its own.
pub(crate) fn no_daemons(cgroups: &Path) -> Option<String> {
    let apart = std::thread::spawn(|| unshare(CloneFlags::CLONE_NEWNS)).join().unwrap();
    if let Err(errno) = apart {
        return Some(format!("no mount namespace can be had: {errno}"));
    }
    let name = format!("divvy-probe-{}-{:?}", std::process::id(), std::thread::current().id());
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
    all.is_empty().then(|| format!("no cgroups are mounted at {}", cgroups.display()))
}
