//! What a test that fails leaves of its MPS daemons is taken away, as nobody else would.

use std::{fs, path::Path};

use nix::{
    mount::{MntFlags, umount2},
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
