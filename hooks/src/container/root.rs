//! The root of a container, or of a driver: an open directory, below which the kernel resolves every
//! path.
//!
//! A link in it, absolute or with `..`, leads to where it would lead inside, and a link of
//! /proc leads nowhere (`RESOLVE_IN_ROOT`, `RESOLVE_NO_MAGICLINKS`). What was opened is what is
//! asked and changed, never the same path again. Files are written here and not by
//! `divvy_cdi::file`, which takes paths.

use std::{
    ffi::{CStr, CString, OsStr},
    os::{
        fd::{AsRawFd as _, OwnedFd},
        unix::ffi::OsStrExt as _,
    },
    path::{Component, Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use rustix::{
    fs::{self, AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Stat, StatVfsMountFlags},
    io::{Errno, retry_on_intr},
    mount::{self, MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags},
};

use super::led;

/// How often what another process moves below us is looked for again.
const TURNS: usize = 32;

/// How many links to nothing are followed, one after the other.
const LINKS: usize = 8;

/// How a file system of /proc names itself (`PROC_SUPER_MAGIC`).
const PROC: fs::FsWord = 0x9fa0;

/// An open root.
#[derive(Debug)]
pub struct Root(OwnedFd);

/// A regular file, open to read.
#[derive(Debug)]
pub struct File {
    fd: OwnedFd,
    /// Its size when it was opened, bytes.
    pub size: usize,
}

// === impl Root ===

impl Root {
    /// Opens the root at `path`, a path of the host. None when that is the host's own root.
    pub(super) fn open(path: &Path) -> Result<Option<Self>, Errno> {
        let root = Self::any(path)?;
        let same = id(&fs::fstat(&root.0)?) == id(&fs::stat(c"/")?);
        Ok((!same).then_some(root))
    }

    /// Opens the root at `path`, a path of the host, which may be the host's own.
    ///
    /// # Errors
    /// The system's answer.
    pub fn any(path: &Path) -> Result<Self, Errno> {
        let path = &*c(path.as_os_str())?;
        fs::openat(CWD, path, PLACE | OFlags::DIRECTORY, Mode::empty()).map(Self)
    }

    /// Where `path` leads, links followed: an absolute path below the root.
    ///
    /// # Errors
    /// The system's answer.
    pub fn real(&self, path: &Path) -> Result<PathBuf, Errno> {
        let below = path_of(&self.at(path, PLACE)?)?;
        let below = below.strip_prefix(path_of(&self.0)?).map_err(|_| Errno::XDEV)?;
        Ok(Path::new("/").join(below))
    }

    /// What stands at `path`, links followed.
    ///
    /// # Errors
    /// The system's answer.
    pub fn stat(&self, path: &Path) -> Result<Stat, Errno> {
        fs::fstat(self.at(path, PLACE)?)
    }

    /// Opens `path`, without a right to read or write unless `flags` ask for one.
    fn at(&self, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
        self.open_at(path, flags, Mode::empty())
    }

    fn open_at(&self, path: &Path, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
        let path = &*c(path.as_os_str())?;
        let how = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let mut turns = TURNS;
        loop {
            match fs::openat2(&self.0, path, flags | OFlags::CLOEXEC, mode, how) {
                // Something on the way was moved while `..` was followed.
                Err(Errno::AGAIN | Errno::INTR) if turns > 0 => turns -= 1,
                done => return done,
            }
        }
    }

    /// Whether anything stands at `path`, links followed.
    pub(super) fn has(&self, path: &Path) -> bool {
        self.at(path, PLACE).is_ok()
    }

    /// What tells the file at `path` from any other.
    pub(super) fn id(&self, path: &Path) -> Option<(u64, u64)> {
        let place = self.at(path, PLACE).ok()?;
        fs::fstat(place).ok().as_ref().map(id)
    }

    /// The folder at `path`, open to list.
    ///
    /// # Errors
    /// The system's answer.
    pub fn folder(&self, path: &Path) -> Result<OwnedFd, Errno> {
        self.at(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK)
    }

    /// The folder at `path`, made with its parents where it is missing.
    fn make_folder(&self, path: &Path) -> Result<OwnedFd, Errno> {
        let flags = PLACE | OFlags::DIRECTORY;
        match self.at(path, flags) {
            Err(Errno::NOENT) => {}
            done => return done,
        }
        let mut so_far = PathBuf::from("/");
        let mut folder = self.at(&so_far, flags)?;
        for part in path.components() {
            let Component::Normal(name) = part else { continue };
            so_far.push(name);
            folder = match self.at(&so_far, flags) {
                Err(Errno::NOENT) => {
                    // One name in an open folder, so no link is followed: one that leads to nothing
                    // stays in the way.
                    match fs::mkdirat(&folder, &*c(name)?, Mode::from_raw_mode(0o755)) {
                        Ok(()) | Err(Errno::EXIST) => self.at(&so_far, flags)?,
                        Err(errno) => return Err(errno),
                    }
                }
                done => done?,
            };
        }
        Ok(folder)
    }

    /// The regular file at `path`; none when nothing is there, or something else.
    ///
    /// # Errors
    /// The system's answer, where it is another.
    pub fn file(&self, path: &Path) -> Result<Option<File>, Errno> {
        match self.at(path, PLACE) {
            Ok(place) => File::of(&place),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// Mounts the file at `source`, a path of the host, where `target` leads, links followed: to read and to run, not
    /// more. Where nothing stands, an empty file is made to mount on.
    ///
    /// # Errors
    /// The system's answer; [`Errno::PERM`] where a link leads to the kernel's own files, on which whoever creates the
    /// container relies.
    pub(super) fn mount(&self, source: &Path, target: &Path) -> Result<(), Errno> {
        // Before anything is made: it may be missing.
        let copy = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let mount = mount::open_tree(CWD, &*c(source.as_os_str())?, copy)?;
        if FileType::from_raw_mode(fs::fstat(&mount)?.st_mode).is_dir() {
            return Err(Errno::ISDIR);
        }
        let place = self.file_to_mount_on(target)?;
        if fs::fstatfs(&place)?.f_type == PROC {
            return Err(Errno::PERM);
        }
        let both =
            MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        mount::move_mount(&mount, c"", &place, c"", both)?;
        // What else is set may be locked where the mount comes from a namespace above.
        let set = fs::fstatvfs(&mount)?.f_flag & StatVfsMountFlags::NOEXEC;
        let noexec = if set.is_empty() { MountFlags::empty() } else { MountFlags::NOEXEC };
        let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV | noexec;
        let mount = &*own_path(&mount)?;
        mount::mount_remount(mount, MountFlags::BIND | flags, c"")?;
        mount::mount_change(mount, MountPropagationFlags::PRIVATE)
    }

    /// What stands where `path` leads, or the empty file that is made there.
    fn file_to_mount_on(&self, path: &Path) -> Result<OwnedFd, Errno> {
        match self.at(path, PLACE) {
            Err(Errno::NOENT) => {}
            found => return found,
        }
        let flags = OFlags::RDONLY | OFlags::CREATE | OFlags::NONBLOCK;
        let mut leads = path.to_owned();
        for _ in 0..LINKS {
            self.make_folder(leads.parent().ok_or(Errno::INVAL)?)?;
            match self.open_at(path, flags, Mode::from_raw_mode(0o644)) {
                Err(Errno::NOENT) => {}
                done => return done,
            }
            // A link into a folder that is not there, of an image that was made for another driver.
            let link = self.at(&leads, PLACE | OFlags::NOFOLLOW)?;
            let target = fs::readlinkat(link, c"", Vec::new())?;
            leads = led(OsStr::from_bytes(target.as_bytes()).as_ref(), &leads);
        }
        Err(Errno::LOOP)
    }

    /// Puts a link to `target` at `link`, in one step for whoever looks. An equal one stays.
    ///
    /// # Errors
    /// [`Errno::EXIST`] when something other than a link stands there.
    pub(super) fn link(&self, target: &Path, link: &Path) -> Result<(), Errno> {
        let (Some(parent), Some(name)) = (link.parent(), link.file_name()) else {
            return Err(Errno::INVAL);
        };
        let (name, target) = (&*c(name)?, &*c(target.as_os_str())?);
        let folder = self.make_folder(parent)?;
        match fs::readlinkat(&folder, name, Vec::new()) {
            Ok(found) if *found == *target => return Ok(()),
            Ok(_) => {}
            Err(Errno::NOENT) => return fs::symlinkat(target, &folder, name),
            Err(Errno::INVAL) => return Err(Errno::EXIST),
            Err(errno) => return Err(errno),
        }
        let temporary = temporary()?;
        fs::symlinkat(target, &folder, &*temporary)?;
        Self::move_to(&folder, &temporary, name, Ok(()))
    }

    /// Puts `bytes` at `name` in the folder at `parent`, in one step for whoever reads it.
    pub(super) fn replace(&self, parent: &Path, name: &str, bytes: &[u8]) -> Result<(), Errno> {
        let folder = self.make_folder(parent)?;
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o644);
        let temporary = temporary()?;
        let file = fs::openat(&folder, &*temporary, flags, mode)?;
        Self::move_to(&folder, &temporary, &c(name.as_ref())?, write(&file, bytes))
    }

    /// Gives what was made as `temporary` its name, or removes it.
    fn move_to(
        folder: &OwnedFd,
        temporary: &CStr,
        name: &CStr,
        made: Result<(), Errno>,
    ) -> Result<(), Errno> {
        let moved = made.and_then(|()| fs::renameat(folder, temporary, folder, name));
        if moved.is_err() {
            let _gone = fs::unlinkat(folder, temporary, AtFlags::empty());
        }
        moved
    }
}

/// A name that nobody has.
fn temporary() -> Result<CString, Errno> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    c(format!(".divvy-{}-{}", now.as_secs(), now.subsec_nanos()).as_ref())
}

/// As the kernel takes it.
#[inline(never)]
fn c(text: &OsStr) -> Result<CString, Errno> {
    CString::new(text.as_bytes()).map_err(|_| Errno::INVAL)
}

fn write(file: &OwnedFd, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        let written = retry_on_intr(|| rustix::io::write(file, bytes))?;
        bytes = bytes.get(written..).unwrap_or_default();
    }
    Ok(())
}

// === impl File ===

impl File {
    /// The file `name` in an open folder; none when it is not regular itself. No FIFO blocks, and no
    /// device notices.
    pub(super) fn in_folder(folder: &OwnedFd, name: &Path) -> Result<Option<Self>, Errno> {
        match fs::openat(folder, &*c(name.as_os_str())?, PLACE | OFlags::NOFOLLOW, Mode::empty()) {
            Ok(place) => Self::of(&place),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    fn of(place: &OwnedFd) -> Result<Option<Self>, Errno> {
        let stat = fs::fstat(place)?;
        if !FileType::from_raw_mode(stat.st_mode).is_file() {
            return Ok(None);
        }
        // The same file, opened anew through the host's /proc: before the container's root is ours.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = fs::openat(CWD, &*own_path(place)?, flags, Mode::empty())?;
        Ok(Some(Self { fd, size: usize::try_from(stat.st_size).unwrap_or(usize::MAX) }))
    }

    /// What tells it from any other file.
    pub(super) fn id(&self) -> Option<(u64, u64)> {
        fs::fstat(&self.fd).ok().as_ref().map(id)
    }

    /// At most `length` bytes from `offset` on; fewer where the file ends.
    pub(super) fn bytes(&self, offset: u64, length: usize) -> Result<Vec<u8>, Errno> {
        let mut bytes = vec![0; length];
        let mut filled = 0;
        while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            let at = offset.saturating_add(u64::try_from(filled).unwrap_or(u64::MAX));
            match retry_on_intr(|| rustix::io::pread(&self.fd, &mut *rest, at))? {
                0 => break,
                read => filled += read,
            }
        }
        bytes.truncate(filled);
        Ok(bytes)
    }
}

/// The path that leads to an open file itself, whatever has its name now.
fn own_path(fd: &OwnedFd) -> Result<CString, Errno> {
    c(format!("/proc/self/fd/{}", fd.as_raw_fd()).as_ref())
}

/// The path that the kernel has for an open file.
fn path_of(fd: &OwnedFd) -> Result<PathBuf, Errno> {
    let name = fs::readlinkat(CWD, &*own_path(fd)?, Vec::new())?;
    Ok(OsStr::from_bytes(name.as_bytes()).into())
}

/// A place in the tree: no right to read or write.
const PLACE: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

fn id(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

#[cfg(test)]
mod tests;
