//! A control daemon is started in a mount namespace of its own, where `/dev/shm` is that of its
//! clients, and not the host's: what a client can see there, it shares with its own kind alone.

use std::{ffi::OsStr, fs, io, os::fd::RawFd, path::Path, thread};

use divvy_cdi::file::{self, Trust};
use nix::sched::{CloneFlags, unshare};
use rustix::{
    fs::OFlags,
    mount::{MountPropagationFlags, mount_bind, mount_change},
};

use super::{Mps, MpsError, Running, Setup, control, place::Place, process};
use crate::{
    mps::{Process, cgroup::Cgroups},
    program::{Program, ProgramError, Run, Said},
};

/// Why it was not even run.
enum Failed {
    Apart(io::Error),
    Program(ProgramError),
}

/// More than is said of an open file, however many locks it has.
const MAX_BYTES: usize = 64 << 10;

// === impl Mps ===

impl Mps<'_> {
    /// Starts a daemon in its place, which may have been another's with the same name.
    pub(super) fn bring_up(&self, program: &Program, setup: &Setup) -> Result<Running, MpsError> {
        let place = Place::new(self.dir, &setup.name)?;
        place.trim_log();
        let about = || self.about(setup);
        let said = match self.run_apart(program, setup, &place) {
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
        match control::apply(program, &place, setup, self.patience) {
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
            ("CUDA_MPS_PIPE_DIRECTORY", pipe.as_os_str()),
            ("CUDA_MPS_LOG_DIRECTORY", log.as_os_str()),
            ("CUDA_VISIBLE_DEVICES", OsStr::new(&devices)),
        ];
        let args: &[&str] = if setup.multi_user { &["-d", "-M"] } else { &["-d"] };
        let run = Run { args, env: &env, ..Run::default() };
        let adopt = |pid| {
            // It is asked for again, and told, once the daemon is known.
            let _later = Cgroups::at(self.cgroups).adopt(&self.cgroup_of(setup), pid);
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

/// Closes for this thread what this process was left open by whoever started it, and what a library
/// opened without care: a daemon would hold it for ever. What is ours is closed by exec.
fn close_inherited() -> io::Result<()> {
    unshare(CloneFlags::CLONE_FILES)?;
    let entries: Vec<_> = fs::read_dir("/proc/thread-self/fd")?.collect::<Result<_, _>>()?;
    let numbers = entries.iter().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    for fd in numbers.filter(|fd: &RawFd| *fd > 2 && outlives_exec(*fd)) {
        nix::unistd::close(fd)?;
    }
    Ok(())
}

/// False for one that is closed by exec, or already.
fn outlives_exec(fd: RawFd) -> bool {
    let path = format!("/proc/thread-self/fdinfo/{fd}");
    let said = file::read(path.as_ref(), MAX_BYTES, &Trust::Any).unwrap_or_default();
    let said = String::from_utf8_lossy(&said);
    let flags = said.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
    flags.is_some_and(|flags| flags & OFlags::CLOEXEC.bits() == 0)
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
