//! A place is the directory of a control daemon: what it listens at, what it says, and the memory
//! that it shares with its clients.
//!
//! ```text
//! DIR/NAME/pipe    sockets and pipes; clients have it read-only, at /tmp/nvidia-mps
//! DIR/NAME/log     control.log and server.log
//! DIR/NAME/shm     /dev/shm of the daemon and of its clients
//! DIR/NAME/daemon.json    what it is, for who has no journal of it
//! ```
//!
//! Servers run as the clients' user and reach the pipes by their path, so nothing above them may be
//! closed; only those who know the name find it. And nothing in `pipe` may be written by anybody
//! else: a daemon that starts there follows links, as root.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Seek, SeekFrom},
    os::unix::{ffi::OsStrExt, fs::MetadataExt, fs::OpenOptionsExt},
    path::{Path, PathBuf},
};

use divvy_cdi::file::{self, Durability, FileError, Trust};
use rustix::{
    fs::OFlags,
    mount::{MountFlags, UnmountFlags, mount, unmount},
};

use super::{
    PIPE_DIRECTORY, Setup,
    process::{self, Process},
};

/// The directories of one control daemon.
#[derive(Debug, Clone)]
pub(super) struct Place {
    dir: PathBuf,
}

const CONTROL_LOG: &str = "control.log";
const SERVER_LOG: &str = "server.log";

/// A path of a Unix socket has at most so many bytes: `sun_path`, and its end.
const MAX_SOCKET: usize = 107;

/// The socket of the longest name.
const LONGEST_SOCKET: &str = "control_privileged";

/// A log that is longer is emptied: the daemon notes every look at it.
const MAX_LOG: u64 = 1 << 20;

/// What the daemon is: [`Setup`].
const NOTE: &str = "daemon.json";

const MAX_NOTE: usize = 64 << 10;

/// The end of a log that holds its last line.
const LAST: u64 = 4 << 10;

// === impl Place ===

impl Place {
    /// The place of this name in `dir`; nothing is looked at or made.
    pub(super) fn new(dir: &Path, name: &str) -> Result<Self, FileError> {
        let place = Self { dir: dir.join(name) };
        let known = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
        let plain = !name.is_empty() && !name.starts_with('.') && name.bytes().all(known);
        let longest = place.pipe().join(LONGEST_SOCKET).as_os_str().as_bytes().len();
        let why = match (plain, longest) {
            (false, _) => "is no name of a control daemon".to_owned(),
            (true, 0..=MAX_SOCKET) => return Ok(place),
            (true, long) => {
                format!(
                    "the path of a socket has at most {MAX_SOCKET} bytes, and here it has {long}"
                )
            }
        };
        Err(FileError::Io { path: place.dir, doing: "use", source: io::Error::other(why) })
    }

    pub(super) fn pipe(&self) -> PathBuf {
        self.dir.join("pipe")
    }

    pub(super) fn log(&self) -> PathBuf {
        self.dir.join("log")
    }

    pub(super) fn shm(&self) -> PathBuf {
        self.dir.join("shm")
    }

    /// The socket that clients connect to.
    pub(super) fn socket(&self) -> PathBuf {
        self.pipe().join("control")
    }

    /// The processes of the daemon and of its servers: all have its pipes in their environment.
    pub(super) fn processes(&self) -> Vec<Process> {
        let variable = format!("{PIPE_DIRECTORY}={}", self.pipe().display());
        if self.dir.exists() { process::started_with(&variable) } else { Vec::new() }
    }

    /// Notes what the daemon is, for who knows no more than that it is there.
    pub(super) fn note(&self, setup: &Setup) -> Result<(), FileError> {
        if self.noted().as_ref() == Some(setup) {
            return Ok(());
        }
        let path = self.dir.join(NOTE);
        let bytes = serde_json::to_vec(setup)
            .map_err(|error| io_failed(&path, "write", io::Error::other(error)))?;
        file::replace(&path, &bytes, 0o600, Durability::Volatile)
    }

    /// What was noted.
    pub(super) fn noted(&self) -> Option<Setup> {
        let bytes = file::read(&self.dir.join(NOTE), MAX_NOTE, &Trust::of_process()).ok()?;
        serde_json::from_slice(&bytes).ok()
    }

    /// Makes what is missing of it; what is there stays, as clients have it mounted.
    pub(super) fn make(&self) -> Result<(), FileError> {
        if let Some(above) = self.dir.parent() {
            file::make_dir(above, 0o711, Durability::Volatile)?;
        }
        file::make_dir(&self.dir, 0o711, Durability::Volatile)?;
        file::make_dir(&self.pipe(), 0o755, Durability::Volatile)?;
        file::make_dir(&self.log(), 0o700, Durability::Volatile)?;
        let shm = self.shm();
        if self.is_mounted().unwrap_or(false) {
            return Ok(());
        }
        file::make_dir(&shm, 0o755, Durability::Volatile)?;
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        // Half of the memory, as /dev/shm: containers put their own segments there too, and what
        // they fill counts against their own limit.
        let mounted = mount("divvy-mps", &shm, "tmpfs", flags, c"size=50%,mode=1777");
        mounted.map_err(|errno| io_failed(&shm, "mount a tmpfs on", errno.into()))
    }

    /// Removes it with all that is in it. What is gone is no error.
    pub(super) fn remove(&self) -> Result<(), FileError> {
        while self.is_mounted()? {
            let flags = UnmountFlags::DETACH | UnmountFlags::NOFOLLOW;
            let unmounted = unmount(self.shm(), flags);
            unmounted.map_err(|errno| io_failed(&self.shm(), "unmount", errno.into()))?;
        }
        match fs::remove_dir_all(&self.dir) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(io_failed(&self.dir, "remove", error))
            }
            _ => Ok(()),
        }
    }

    fn is_mounted(&self) -> Result<bool, FileError> {
        let device = |path: &Path| match fs::symlink_metadata(path) {
            Ok(stat) => Ok(Some(stat.dev())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(io_failed(path, "read", error)),
        };
        let shm = device(&self.shm())?;
        Ok(shm.is_some() && shm != device(&self.dir)?)
    }

    /// The last line that the daemon wrote into its log.
    pub(super) fn last_line(&self) -> Option<String> {
        let mut log = self.open_log(CONTROL_LOG, false).ok()?;
        let length = log.metadata().ok()?.len();
        log.seek(SeekFrom::Start(length.saturating_sub(LAST))).ok()?;
        let mut end = Vec::new();
        log.take(LAST).read_to_end(&mut end).ok()?;
        let end = String::from_utf8_lossy(&end).into_owned();
        let line = end.lines().rev().find(|line| !line.trim().is_empty())?;
        Some(line.trim().escape_debug().to_string())
    }

    /// Empties logs that have grown long. The daemon appends, so it goes on at its start; so do its servers, which
    /// write a line for each client that comes: any container could fill the disk with those.
    pub(super) fn trim_logs(&self) {
        for name in [CONTROL_LOG, SERVER_LOG] {
            if let Ok(log) = self.open_log(name, true)
                && log.metadata().is_ok_and(|stat| stat.len() > MAX_LOG)
            {
                let _as_long_as_it_was = log.set_len(0);
            }
        }
    }

    fn open_log(&self, name: &str, write: bool) -> io::Result<File> {
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        let mut options = OpenOptions::new();
        options.read(true).write(write).custom_flags(flags.bits().cast_signed());
        options.open(self.log().join(name))
    }
}

fn io_failed(path: &Path, doing: &'static str, source: io::Error) -> FileError {
    FileError::Io { path: path.to_owned(), doing, source }
}
