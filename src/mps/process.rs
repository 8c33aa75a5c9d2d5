//! A process is a pid together with the time at which it started: pids are given again, and what
//! has another start time is somebody else.

use std::{
    fs, io,
    os::{fd::OwnedFd, unix::ffi::OsStrExt, unix::fs::MetadataExt},
    path::Path,
    time::Instant,
};

use divvy_cdi::file::{self, Trust};
use rustix::{
    net::{
        AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with,
        sockopt::socket_peercred,
    },
    process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal},
};
use serde::{Deserialize, Serialize};

use crate::program::ends;

/// A process that can be told from every other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Process {
    /// As the host's pid namespace numbers it.
    pub pid: u32,
    /// When it started, in clock ticks since the boot: `/proc/PID/stat`, field 22.
    pub start_time: u64,
}

/// More than `/proc/PID/stat` is, and than an environment that we gave.
const MAX_BYTES: usize = 64 << 10;

// === impl Process ===

impl Process {
    /// The process that has this pid now; none where it is gone, or a zombie.
    pub(super) fn of(pid: u32) -> Option<Self> {
        let path = format!("/proc/{pid}/stat");
        let stat =
            String::from_utf8(file::read(path.as_ref(), MAX_BYTES, &Trust::Any).ok()?).ok()?;
        // The name before it may hold blanks and parentheses of its own.
        let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
        let state = fields.next()?;
        let start_time = fields.nth(18)?.parse().ok()?;
        (!matches!(state, "Z" | "X" | "x")).then_some(Self { pid, start_time })
    }

    /// A hold on it: what is done through it is done to it, or to nobody. None where it is gone.
    pub(super) fn open(self) -> Option<PidFd> {
        let pid = Pid::from_raw(i32::try_from(self.pid).ok()?)?;
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        // Asked after it was opened: if it is the one now, it is the one that was opened.
        (Self::of(self.pid) == Some(self)).then_some(PidFd { pidfd })
    }
}

/// A hold on one process, which no other that is given its pid takes over.
#[derive(Debug)]
pub(super) struct PidFd {
    pidfd: OwnedFd,
}

// === impl PidFd ===

impl PidFd {
    /// Waits for its end; false when it goes on.
    pub(super) fn ends(&self, deadline: Instant) -> bool {
        ends(&self.pidfd, deadline)
    }

    /// Ends it, whatever it is doing.
    pub(super) fn kill(&self) {
        let _gone = pidfd_send_signal(&self.pidfd, Signal::KILL);
    }
}

/// The process that listens at a socket, as the kernel knows it. What files say of it, clients may
/// have written.
pub(super) fn listener(path: &Path) -> io::Result<Option<u32>> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    let address = SocketAddrUnix::new(path.as_os_str().as_bytes())?;
    match connect(&socket, &address) {
        Ok(()) => Ok(u32::try_from(socket_peercred(&socket)?.pid.as_raw_nonzero().get()).ok()),
        Err(rustix::io::Errno::NOENT | rustix::io::Errno::CONNREFUSED) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// The processes of this user that were started with this in their environment.
pub(super) fn started_with(variable: &str) -> Vec<Process> {
    let user = rustix::process::geteuid().as_raw();
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let ours = |pid: &u32| {
        let folder = format!("/proc/{pid}");
        let own = fs::metadata(&folder).is_ok_and(|stat| stat.uid() == user);
        let path = format!("{folder}/environ");
        let environment = file::read(path.as_ref(), MAX_BYTES, &Trust::Any);
        own && environment.is_ok_and(|all| all.split(|b| *b == 0).any(|v| v == variable.as_bytes()))
    };
    let mut found: Vec<Process> = pids.filter(ours).filter_map(Process::of).collect();
    found.sort_unstable_by_key(|process| process.pid);
    found
}
