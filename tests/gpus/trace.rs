//! A program that is watched as it changes files below a folder, and killed or refused at one of
//! those moments: every place where it can fail is found by counting, none by hand.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs::{self, File},
    os::unix::{ffi::OsStrExt, fs::FileExt},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use nix::{
    errno::Errno,
    libc,
    sys::{
        ptrace::{self, Options},
        signal::{Signal, kill},
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::Pid,
};

/// What happens to a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It runs to its end.
    Runs,
    /// It is killed just before its change of this number, from 0.
    Killed(usize),
    /// From its change of this number on, from 0, none succeeds.
    Refused(usize, Errno),
}

/// How a program ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// The changes that it made or tried.
    pub(crate) changes: usize,
    /// None: killed.
    pub(crate) code: Option<i32>,
    /// On stderr.
    pub(crate) said: String,
}

/// The calls that change what lies in a folder, and the argument that says where: a path, the two of
/// a rename by the second; or an open file.
const BY_PATH: [(libc::c_long, usize); 16] = [
    (libc::SYS_openat, 1),
    (libc::SYS_open, 0),
    (libc::SYS_rename, 1),
    (libc::SYS_renameat, 3),
    (libc::SYS_renameat2, 3),
    (libc::SYS_unlink, 0),
    (libc::SYS_unlinkat, 1),
    (libc::SYS_rmdir, 0),
    (libc::SYS_mkdir, 0),
    (libc::SYS_mkdirat, 1),
    (libc::SYS_symlink, 1),
    (libc::SYS_symlinkat, 2),
    (libc::SYS_link, 1),
    (libc::SYS_linkat, 3),
    (libc::SYS_mount, 1),
    (libc::SYS_umount2, 0),
];
const BY_FILE: [libc::c_long; 2] = [libc::SYS_write, libc::SYS_fsync];

/// A program being watched.
struct Traced<'a> {
    below: &'a Path,
    fate: Fate,
    changes: usize,
    /// Its threads, and whether each is inside a call that is refused.
    threads: BTreeMap<i32, Inside>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Inside {
    No,
    Yes,
    Refused(Errno),
}

/// Runs a program, as its fate is, and watches what it changes below a folder.
#[expect(clippy::zombie_processes, reason = "it is waited for by its number, as it is watched")]
pub(crate) fn run(command: &Command, below: &Path, fate: Fate) -> Ended {
    // It waits until it is watched, and only then becomes the program.
    let mut stopped = Command::new("/bin/sh");
    stopped.args(["-c", "kill -STOP $$; exec \"$@\"", "sh"]).arg(command.get_program());
    stopped.args(command.get_args()).current_dir(command.get_current_dir().unwrap());
    let said = tempfile::tempfile().unwrap();
    let child = stopped.stdout(Stdio::null()).stderr(said.try_clone().unwrap()).spawn().unwrap();
    let pid = Pid::from_raw(child.id().try_into().unwrap());
    let stop = waitpid(pid, Some(WaitPidFlag::WUNTRACED)).unwrap();
    assert_eq!(stop, WaitStatus::Stopped(pid, Signal::SIGSTOP));
    let options = Options::PTRACE_O_TRACESYSGOOD
        | Options::PTRACE_O_TRACECLONE
        | Options::PTRACE_O_TRACEEXEC
        | Options::PTRACE_O_EXITKILL;
    ptrace::seize(pid, options).unwrap();
    kill(pid, Signal::SIGCONT).unwrap();
    let threads = BTreeMap::from([(pid.as_raw(), Inside::No)]);
    let mut traced = Traced { below, fate, changes: 0, threads };
    let code = traced.until_its_end(pid);
    let mut text = vec![0; said.metadata().unwrap().len().try_into().unwrap()];
    said.read_exact_at(&mut text, 0).unwrap();
    Ended { changes: traced.changes, code, said: String::from_utf8(text).unwrap() }
}

impl Traced<'_> {
    fn until_its_end(&mut self, pid: Pid) -> Option<i32> {
        loop {
            // Of this thread's children alone: other tests have theirs.
            let flags = WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD;
            let (thread, signal) = match waitpid(None, Some(flags)).unwrap() {
                WaitStatus::Exited(ended, code) if ended == pid => return Some(code),
                WaitStatus::Signaled(ended, ..) if ended == pid => return None,
                WaitStatus::PtraceSyscall(thread) => {
                    self.at_call(pid, thread);
                    (thread, None)
                }
                WaitStatus::PtraceEvent(thread, ..) => (thread, None),
                WaitStatus::Stopped(thread, signal) => (thread, Some(signal)),
                _ => continue,
            };
            // One that was killed meanwhile is heard of again.
            match ptrace::syscall(thread, signal) {
                Ok(()) | Err(Errno::ESRCH) => {}
                Err(errno) => panic!("{errno}"),
            }
        }
    }

    /// A thread enters a call of the system or leaves it.
    fn at_call(&mut self, pid: Pid, thread: Pid) {
        let inside = self.threads.get(&thread.as_raw()).copied().unwrap_or(Inside::No);
        let now = match inside {
            Inside::No => self.enter(pid, thread),
            Inside::Yes => Inside::No,
            Inside::Refused(errno) => {
                if let Ok(mut registers) = ptrace::getregs(thread) {
                    registers.rax = (-i64::from(errno as i32)).cast_unsigned();
                    ptrace::setregs(thread, registers).unwrap();
                }
                Inside::No
            }
        };
        self.threads.insert(thread.as_raw(), now);
    }

    fn enter(&mut self, pid: Pid, thread: Pid) -> Inside {
        let Ok(mut registers) = ptrace::getregs(thread) else { return Inside::Yes };
        let call = registers.orig_rax.cast_signed();
        let arguments = [registers.rdi, registers.rsi, registers.rdx, registers.r10, registers.r8];
        if !self.is_change(thread, call, &arguments) {
            return Inside::Yes;
        }
        self.changes += 1;
        match self.fate {
            Fate::Killed(at) if self.changes > at => {
                kill(pid, Signal::SIGKILL).unwrap();
                Inside::Yes
            }
            Fate::Refused(from, errno) if self.changes > from && is_refused(errno, call) => {
                registers.orig_rax = u64::MAX;
                ptrace::setregs(thread, registers).unwrap();
                Inside::Refused(errno)
            }
            _ => Inside::Yes,
        }
    }

    fn is_change(&self, thread: Pid, call: i64, arguments: &[u64; 5]) -> bool {
        let path = if BY_FILE.contains(&call) {
            fs::read_link(format!("/proc/{thread}/fd/{}", arguments[0])).ok()
        } else if let Some((_, at)) = BY_PATH.iter().find(|(by_path, _)| *by_path == call) {
            let writes = match call {
                libc::SYS_openat => arguments[2] & CREATES != 0,
                libc::SYS_open => arguments[1] & CREATES != 0,
                _ => true,
            };
            writes.then(|| text(thread, arguments[*at])).flatten()
        } else {
            None
        };
        path.is_some_and(|path| path.starts_with(self.below))
    }
}

const CREATES: u64 = libc::O_CREAT as u64;

/// A full disk still removes, and a file that was written takes another's place.
fn is_refused(errno: Errno, call: i64) -> bool {
    let needs_no_room = [
        libc::SYS_unlink,
        libc::SYS_unlinkat,
        libc::SYS_rmdir,
        libc::SYS_rename,
        libc::SYS_renameat,
        libc::SYS_renameat2,
    ];
    errno != Errno::ENOSPC || !needs_no_room.contains(&call)
}

/// The text at an address of the program.
fn text(thread: Pid, address: u64) -> Option<PathBuf> {
    let memory = File::open(format!("/proc/{thread}/mem")).ok()?;
    let mut bytes = [0; 512];
    let read = memory.read_at(&mut bytes, address).ok()?;
    let length = bytes[..read].iter().position(|byte| *byte == 0)?;
    Some(Path::new(OsStr::from_bytes(&bytes[..length])).to_owned())
}
