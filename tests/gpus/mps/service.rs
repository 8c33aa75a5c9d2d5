//! A service of systemd's, as far as its end goes: that ends all that is in its cgroup.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::support::eventually;

/// The cgroup of a service.
pub(crate) struct Service(PathBuf);

// === impl Service ===

impl Service {
    /// Made in the hierarchy in which systemd has its own.
    pub(crate) fn new(name: &str) -> Self {
        let cgroups = Path::new("/sys/fs/cgroup");
        let hierarchies = ["", "unified", "systemd"].map(|name| cgroups.join(name));
        let hierarchy = hierarchies.iter().find(|path| path.join("cgroup.procs").exists()).unwrap();
        let path = hierarchy.join(format!("divvy-service-{name}"));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// The same program, which is in it from the start.
    pub(crate) fn command(&self, program: &Command) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", "echo 0 > \"$0\"/cgroup.procs && exec \"$@\""]).arg(&self.0);
        command.arg(program.get_program()).args(program.get_args());
        if let Some(dir) = program.get_current_dir() {
            command.current_dir(dir);
        }
        command
    }

    /// Ends it, and with it the process that must be in it.
    pub(crate) fn end(self, of_it: u32) {
        let members = fs::read_to_string(self.0.join("cgroup.procs")).unwrap();
        assert!(members.lines().any(|pid| pid == of_it.to_string()), "{members}");
        for pid in members.lines() {
            kill(Pid::from_raw(pid.parse().unwrap()), Signal::SIGKILL).unwrap();
        }
        eventually("the end of the service", || fs::remove_dir(&self.0).is_ok());
    }
}
