//! A program of the driver: found below its root, run with our rights to its end or to a deadline.

use std::{
    ffi::OsStr,
    io::{self, Read, Write},
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use divvy_cdi::file::{FileError, Trust};
use nix::poll::{PollFd, PollFlags, PollTimeout};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::driver::{BINARY_DIRS, DriverRoot};

/// One of the programs that come with the driver.
#[derive(Debug, Clone)]
pub struct Program {
    path: PathBuf,
    /// Where the driver's libraries are.
    library_dir: PathBuf,
}

/// How a program is run.
#[derive(Debug, Default)]
pub struct Run<'a> {
    /// Its arguments.
    pub args: &'a [&'a str],
    /// Its environment, besides what every program gets.
    pub env: &'a [(&'a str, &'a OsStr)],
    /// What it reads from its standard input.
    pub input: &'a str,
}

/// What a program that ended has said on its standard output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    /// It ended with 0.
    pub success: bool,
    /// At most [`MAX_BYTES`] of it.
    pub text: String,
}

/// Why a program did not run to its end.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// The driver brought none.
    #[error("{name} is not at {}; --driver-root says where the driver is", paths(looked_at))]
    Missing {
        /// The program.
        name: &'static str,
        /// Every place that was looked at.
        looked_at: Vec<PathBuf>,
    },
    /// Others could have written it.
    #[error(transparent)]
    File(#[from] FileError),
    /// It cannot be run.
    #[error("{}: cannot be run", path.display())]
    Run {
        /// The program.
        path: PathBuf,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// It did not end in time.
    #[error("{}: did not end, and was killed", path.display())]
    Silent {
        /// The program.
        path: PathBuf,
    },
}

/// More than any of them has to say.
const MAX_BYTES: u64 = 16 << 10;

// === impl Program ===

impl Program {
    /// The driver's program of this name: root's, or this user's own.
    pub(crate) fn find(
        root: &DriverRoot,
        library_dir: &Path,
        name: &'static str,
    ) -> Result<Self, ProgramError> {
        let places = BINARY_DIRS.map(|dir| Path::new("/").join(dir).join(name));
        let Some(path) = places.iter().find_map(|place| root.file(place)) else {
            let looked_at = places.iter().map(|place| root.outside(place)).collect();
            return Err(ProgramError::Missing { name, looked_at });
        };
        let path = root.outside(&path);
        trusted(&path)?;
        Ok(Self { path, library_dir: library_dir.to_owned() })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Runs it to its end, or ends it at the deadline. `started` is told its process at once.
    ///
    /// # Errors
    /// It cannot be started, or did not end in time.
    pub fn run(
        &self,
        run: &Run<'_>,
        patience: Duration,
        started: impl FnOnce(u32),
    ) -> Result<Said, ProgramError> {
        let failed = |source| ProgramError::Run { path: self.path.clone(), source };
        let (give, given) = mpsc::channel::<ChildStdout>();
        let (done, said) = mpsc::channel();
        // Before the program, which must not be left without it. Of a thread of its own: a
        // grandchild may hold the pipe open for ever.
        let reader = thread::Builder::new().name("program".to_owned()).spawn(move || {
            let Ok(out) = given.recv() else { return };
            let mut bytes = Vec::new();
            let read = out.take(MAX_BYTES).read_to_end(&mut bytes);
            let _nobody_waits = done.send(read.map(|_| bytes).unwrap_or_default());
        });
        reader.map_err(failed)?;
        let mut child = self.command(run).spawn().map_err(failed)?;
        started(child.id());
        if let Some(mut input) = child.stdin.take() {
            // One that does not read it says so by how it ends. It is less than a pipe holds.
            let _ignored = input.write_all(run.input.as_bytes());
        }
        if let Some(out) = child.stdout.take() {
            let _it_waits = give.send(out);
        }
        let deadline = Instant::now() + patience;
        let ended = pidfd(&child).map(|pidfd| ends(&pidfd, deadline));
        if !matches!(ended, Ok(true)) {
            let _gone = child.kill();
            // In the kernel, at a GPU that hangs, it may not end: nobody waits for that.
            let _reaped = thread::Builder::new().spawn(move || child.wait());
            return Err(match ended {
                Ok(_) => ProgramError::Silent { path: self.path.clone() },
                Err(source) => failed(source),
            });
        }
        let status = child.wait().map_err(failed)?;
        let left =
            deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(100));
        let said = said.recv_timeout(left).unwrap_or_default();
        let text = String::from_utf8_lossy(&said).into_owned();
        Ok(Said { success: status.success(), text })
    }

    fn command(&self, run: &Run<'_>) -> Command {
        let mut command = Command::new(&self.path);
        let input = if run.input.is_empty() { Stdio::null() } else { Stdio::piped() };
        command.args(run.args).stdin(input).stdout(Stdio::piped()).stderr(Stdio::null());
        // The MPS control daemon finds its server by PATH, which Debian has in sbin.
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        let sbin = folder.with_file_name("sbin");
        let path = [folder, &sbin].map(|dir| dir.display().to_string()).join(":");
        command.env_clear().env("PATH", format!("{path}:/usr/sbin:/usr/bin:/sbin:/bin"));
        // It opens the driver's libraries by name, and must find those of its own driver. Not by
        // LD_PRELOAD, with which nvidia-smi crashes on some systems (dra-drivers.md 8, 34).
        command.env("LC_ALL", "C").env("LD_LIBRARY_PATH", &self.library_dir);
        command.envs(run.env.iter().copied());
        command
    }
}

/// Refuses a program or library that others could have written: it runs with our rights.
pub(crate) fn trusted(path: &Path) -> Result<(), FileError> {
    let stat = rustix::fs::stat(path).map_err(|errno| {
        let (path, doing) = (path.to_owned(), "read");
        FileError::Io { path, doing, source: errno.into() }
    })?;
    match Trust::of_process().distrust(&stat) {
        None => Ok(()),
        Some(why) => Err(FileError::Untrusted { path: path.to_owned(), why }),
    }
}

/// By which the end of a process is waited for, without looking again and again.
fn pidfd(child: &Child) -> io::Result<OwnedFd> {
    Ok(pidfd_open(Pid::from_child(child), PidfdFlags::empty())?)
}

/// Waits for the end of the process behind a pidfd; false when it goes on.
pub(crate) fn ends(pidfd: impl AsFd, deadline: Instant) -> bool {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        let mut fds = [PollFd::new(pidfd.as_fd(), PollFlags::POLLIN)];
        match nix::poll::poll(&mut fds, timeout) {
            Ok(0) => return false,
            Ok(_) => return true,
            Err(nix::errno::Errno::EINTR) => {}
            Err(_) => return false,
        }
    }
}

fn paths(looked_at: &[PathBuf]) -> String {
    let all: Vec<_> = looked_at.iter().map(|path| path.display().to_string()).collect();
    all.join(", ")
}

// === impl ProgramError ===

impl ProgramError {
    /// Stable, for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Missing { .. } => "NO-DRIVER",
            Self::File(error) => error.code(),
            Self::Run { .. } | Self::Silent { .. } => "GPU-FAULT",
        }
    }
}
