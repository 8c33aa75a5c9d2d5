//! A temporary file is one that is not yet where it belongs; a crash leaves it there.

use std::{
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::{
    fs::{self, AtFlags, CWD, Mode, OFlags, Stat},
    io::{Errno, retry_on_intr},
    process::Pid,
};

use super::{Durability, FileError, failed, parent, sync_parent};

/// Temporary names tried before giving up; each one taken is a crash's remains.
const ATTEMPTS: u32 = 1000;

/// No write takes longer, but for one on a disk that hangs.
const WRITTEN_BY_THEN: Duration = Duration::from_secs(600);

/// A file that is not yet where it belongs. Dropped before its rename, it is removed.
pub(super) struct Temporary<'a> {
    target: &'a Path,
    path: PathBuf,
    fd: OwnedFd,
    renamed: bool,
}

/// Puts a symbolic link to `to` at `path`, in one step for whoever follows it; what stood there,
/// unless it is a directory, is gone then. A link that leads there already is left alone.
///
/// # Errors
/// [`FileError::Io`]; what stood at `path` stays, unless only the sync of the directory failed.
pub fn link(path: &Path, to: &Path, durability: Durability) -> Result<(), FileError> {
    if std::fs::read_link(path).is_ok_and(|found| found == to) {
        return Ok(());
    }
    let write = |errno| failed(path, "write", errno);
    let (parent, pid) = (parent(path), std::process::id());
    let mut names = (0..ATTEMPTS).map(|attempt| parent.join(name_of(pid, attempt)));
    let made = names.find_map(|name| match fs::symlinkat(to, CWD, &name) {
        Err(Errno::EXIST) => None,
        made => Some(made.map(|()| name)),
    });
    let name = made.unwrap_or(Err(Errno::EXIST)).map_err(write)?;
    if let Err(errno) = fs::renameat(CWD, &name, CWD, path) {
        let _left = fs::unlinkat(CWD, &name, AtFlags::empty());
        return Err(write(errno));
    }
    match durability {
        Durability::Durable => sync_parent(path),
        Durability::Volatile => Ok(()),
    }
}

/// Removes the temporary files that crashes left in `dir`: regular files and links, named as [`super::replace`]
/// names them, of processes that are no more. What cannot be removed stays; nobody reads it.
///
/// One of this process's number is an earlier process's, since the first process of a container always has the same,
/// unless somebody here is just writing it: it goes when it is older than any write takes.
pub fn sweep(dir: &Path) {
    let Ok(listing) = std::fs::read_dir(dir) else { return };
    for entry in listing.map_while(Result::ok) {
        let ours = |kind: std::fs::FileType| kind.is_file() || kind.is_symlink();
        let ours = entry.file_type().is_ok_and(ours);
        let writer = entry.file_name().to_str().and_then(writer);
        let is_old = || {
            let modified = entry.metadata().and_then(|meta| meta.modified());
            modified.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > WRITTEN_BY_THEN))
        };
        if ours && writer.is_some_and(|writer| is_gone(writer, is_old)) {
            let _stays = fs::unlinkat(CWD, entry.path(), AtFlags::empty());
        }
    }
}

/// Whether [`super::replace`] gives a file this name until it is whole.
pub fn is_temporary(name: &str) -> bool {
    writer(name).is_some()
}

/// Whose temporary file has this name: `.divvy-<pid>-<attempt>.tmp`, and nothing like it.
fn writer(name: &str) -> Option<Pid> {
    let (pid, attempt) = name.strip_prefix(".divvy-")?.strip_suffix(".tmp")?.split_once('-')?;
    let (number, attempt): (i32, u32) = (pid.parse().ok()?, attempt.parse().ok()?);
    let exact = attempt < ATTEMPTS && name == name_of(number.unsigned_abs(), attempt);
    if exact { Pid::from_raw(number) } else { None }
}

fn is_gone(pid: Pid, is_old: impl FnOnce() -> bool) -> bool {
    match pid == rustix::process::getpid() {
        true => is_old(),
        false => rustix::process::test_kill_process(pid) == Err(Errno::SRCH),
    }
}

/// No extension of a spec, so that no scan takes it for one.
fn name_of(pid: u32, attempt: u32) -> String {
    format!(".divvy-{pid}-{attempt}.tmp")
}

// === impl Temporary ===

impl<'a> Temporary<'a> {
    pub(super) fn create(target: &'a Path) -> Result<Self, FileError> {
        if target.file_name().is_none() {
            return Err(failed(target, "write", Errno::INVAL));
        }
        let flags = OFlags::WRONLY
            | OFlags::CREATE
            | OFlags::EXCL
            | OFlags::NOFOLLOW
            | OFlags::CLOEXEC
            | OFlags::NOCTTY;
        let (parent, pid) = (parent(target), std::process::id());
        for attempt in 0..ATTEMPTS {
            let path = parent.join(name_of(pid, attempt));
            match fs::openat(CWD, &path, flags, Mode::RUSR | Mode::WUSR) {
                Ok(fd) => return Ok(Self { target, path, fd, renamed: false }),
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(failed(target, "write", errno)),
            }
        }
        Err(failed(target, "write", Errno::EXIST))
    }

    pub(super) fn fill(
        self,
        mut bytes: &[u8],
        owner: Option<&Stat>,
        mode: u32,
    ) -> Result<Self, FileError> {
        let io = |errno| failed(self.target, "write", errno);
        while !bytes.is_empty() {
            let count = retry_on_intr(|| rustix::io::write(&self.fd, bytes)).map_err(io)?;
            bytes = bytes.get(count..).unwrap_or_default();
        }
        if let Some(Stat { st_uid, st_gid, .. }) = owner {
            let (uid, gid) = (fs::Uid::from_raw(*st_uid), fs::Gid::from_raw(*st_gid));
            fs::fchown(&self.fd, Some(uid), Some(gid)).map_err(io)?;
        }
        // After the change of owner, which clears set-id bits; and not by the umask.
        fs::fchmod(&self.fd, Mode::from_raw_mode(mode)).map_err(io)?;
        Ok(self)
    }

    pub(super) fn rename(mut self, durability: Durability) -> Result<(), FileError> {
        if durability == Durability::Durable {
            fs::fsync(&self.fd).map_err(|errno| failed(self.target, "sync", errno))?;
        }
        fs::renameat(CWD, &self.path, CWD, self.target)
            .map_err(|errno| failed(self.target, "write", errno))?;
        self.renamed = true;
        match durability {
            Durability::Durable => sync_parent(self.target),
            Durability::Volatile => Ok(()),
        }
    }
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        if !self.renamed {
            // Nothing more can be done; the name says what it is.
            let _left = fs::unlinkat(CWD, &self.path, AtFlags::empty());
        }
    }
}
