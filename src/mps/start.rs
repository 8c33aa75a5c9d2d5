//! A control daemon is started in a mount namespace of its own, where `/dev/shm` is that of its
//! clients, and not the host's: what a client can see there, it shares with its own kind alone.

use std::{ffi::OsStr, fs, io, os::fd::RawFd, path::Path, thread, time::Instant};

use nix::{
    errno::Errno,
    sched::{CloneFlags, unshare},
};
use rustix::mount::{MountPropagationFlags, mount_bind, mount_change};

use super::{
    Mps, MpsError, PIPE_DIRECTORY, Running, Setup, control, place::Place, process, process::PidFd,
};
use crate::{
    mps::Process,
    program::{Program, ProgramError, Run, Said},
};

/// Why it was not even run.
enum Failed {
    Apart(io::Error),
    Program(ProgramError),
}

// === impl Mps ===

impl Mps<'_> {
    /// Starts a daemon in its place, which may have been another's with the same name: its servers
    /// may still have clients.
    ///
    /// # Errors
    /// Nothing of what was started is left: a daemon that was not told its settings is no daemon.
    pub(super) fn bring_up(&self, program: &Program, setup: &Setup) -> Result<Running, MpsError> {
        let place = Place::new(self.dir, &setup.name)?;
        place.trim_logs();
        let before = place.processes();
        let started = self.bring_up_at(program, setup, &place);
        if started.is_err() {
            let is_new = |process: &Process| !before.contains(process);
            let deadline = Instant::now() + self.patience;
            // One that is killed may have started another just before.
            loop {
                let new = place.processes().into_iter().filter(is_new);
                let new: Vec<_> = new.filter_map(Process::open).collect();
                new.iter().for_each(PidFd::kill);
                if new.is_empty() || !new.iter().all(|pidfd| pidfd.ends(deadline)) {
                    break;
                }
            }
        }
        started
    }

    fn bring_up_at(
        &self,
        program: &Program,
        setup: &Setup,
        place: &Place,
    ) -> Result<Running, MpsError> {
        let about = || self.about(setup);
        let said = match self.run_apart(program, setup, place) {
            Ok(said) => said,
            Err(Failed::Apart(source)) => return Err(MpsError::Apart { about: about(), source }),
            Err(Failed::Program(source)) => {
                return Err(MpsError::Program { about: about(), source });
            }
        };
        let process = match process::listener(&place.socket()) {
            Ok(Some(pid)) if said.success => Process::of(pid),
            _ => None,
        };
        let Some(process) = process else {
            let why = refusal(setup, &said);
            return Err(MpsError::Start { about: about(), why });
        };
        // Again: what forks while it is moved may stay behind.
        let no_cgroup = self.adopt(setup, process);
        match control::apply(program, place, setup, self.patience) {
            Ok(()) => Ok(Running { process, no_cgroup }),
            Err(control::Failed::Silent(why)) => Err(MpsError::Start { about: about(), why }),
            Err(control::Failed::Setting { setting, answer }) => {
                Err(MpsError::Setting { about: about(), setting, answer })
            }
        }
    }

    /// Runs the control program until the daemon listens, which is when the program ends.
    fn run_apart(&self, program: &Program, setup: &Setup, place: &Place) -> Result<Said, Failed> {
        let (pipe, log, devices) = (place.pipe(), place.log(), setup.devices.join(","));
        let env = [
            (PIPE_DIRECTORY, pipe.as_os_str()),
            ("CUDA_MPS_LOG_DIRECTORY", log.as_os_str()),
            ("CUDA_VISIBLE_DEVICES", OsStr::new(&devices)),
        ];
        let args: &[&str] = if setup.multi_user { &["-d", "-M"] } else { &["-d"] };
        let run = Run { args, env: &env, ..Run::default() };
        let adopt = |pid| {
            // It is asked for again, and told, once the daemon is known.
            let _later = Process::of(pid).map(|process| self.adopt(setup, process));
        };
        // A thread can leave what it shares with its process, and what it starts has its own.
        let apart = || {
            own_shm(&place.shm()).and_then(|()| close_inherited()).map_err(Failed::Apart)?;
            program.run(&run, self.patience, adopt).map_err(Failed::Program)
        };
        thread::scope(|scope| {
            let thread = thread::Builder::new().name("mps".to_owned()).spawn_scoped(scope, apart);
            let thread = thread.map_err(Failed::Apart)?;
            thread
                .join()
                .unwrap_or_else(|_| Err(Failed::Apart(io::Error::other("a defect of divvy"))))
        })
    }
}

/// Gives this thread a mount namespace in which `/dev/shm` is `shm`.
fn own_shm(shm: &Path) -> io::Result<()> {
    unshare(CloneFlags::CLONE_NEWNS)?;
    // What the host mounts later, such as a driver, is seen; nothing goes the other way.
    mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)?;
    Ok(mount_bind(shm, "/dev/shm")?)
}

/// Closes for this thread all that this process has open, its locks too: the threads that run the
/// program share what this one has, and may outlive whoever waits for a lock; and what a daemon
/// inherits, it holds for ever.
fn close_inherited() -> io::Result<()> {
    unshare(CloneFlags::CLONE_FILES)?;
    let open: Vec<RawFd> = fs::read_dir("/proc/thread-self/fd")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    for fd in open.into_iter().filter(|fd| *fd > 2) {
        match nix::unistd::close(fd) {
            // What the directory itself was read through is closed by now.
            Ok(()) | Err(Errno::EBADF) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// Why a control program started no daemon.
fn refusal(setup: &Setup, said: &Said) -> String {
    let words = said.text.split_whitespace().collect::<Vec<_>>().join(" ");
    match (words.as_str(), setup.multi_user) {
        // One that does not know -M takes it for a command line without -d.
        (_, true) => format!(
            "it said {words:?}; multiUser needs a driver whose nvidia-cuda-mps-control has -M, and \
             GPUs of compute capability 7.0 and newer"
        ),
        ("", false) if said.success => "nothing listens at its socket".to_owned(),
        ("", false) => "it said nothing".to_owned(),
        (words, false) => format!("it said {words:?}"),
    }
}
