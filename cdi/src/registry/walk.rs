//! A walk over spec directories: each once, its spec files in the order of their names.

use std::{
    ffi::{CStr, OsStr},
    io,
    mem::MaybeUninit,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{self, CWD, FileType, Mode, OFlags, RawDir},
    io::Errno,
};

use super::{Directory, State};
use crate::{errno, file::Trust};

/// Bytes of directory entries that one call of the system returns: some thousand files.
const LISTING: usize = 64 << 10;

/// A spec file that a directory lists. It has not been opened.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Listed<'d> {
    pub(crate) directory: &'d Path,
    pub(crate) fd: BorrowedFd<'d>,
    pub(crate) name: &'d CStr,
    /// The place of the directory in the list of directories.
    pub(crate) priority: usize,
    kind: FileType,
}

/// A directory that can be read.
struct Open<'d> {
    path: &'d Path,
    fd: OwnedFd,
    id: (u64, u64),
}

/// The order in which the files of one directory come. Which definition counts does not depend on
/// it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// Of their names, for people.
    Sorted,
    /// As the directory lists them: sorting a thousand names costs more than looking at the files.
    Listed,
}

/// Shows every spec file of `dirs` to `visit`, lowest priority first, and says what became of each
/// directory. One that is named twice counts at its last place.
pub(crate) fn walk(
    dirs: &[PathBuf],
    trust: &Trust,
    order: Order,
    mut visit: impl FnMut(&Listed<'_>),
) -> Vec<Directory> {
    let opened: Vec<_> = dirs.iter().map(|path| open(path, trust)).collect();
    let mut buffer = Vec::new();
    let mut found = Vec::with_capacity(dirs.len());
    for (priority, (path, dir)) in dirs.iter().zip(&opened).enumerate() {
        let state = match dir {
            Err(state) => state.clone(),
            Ok(dir) => {
                let mut later = opened.iter().skip(priority + 1).flatten();
                match later.find(|other| other.id == dir.id) {
                    Some(same) => State::Same(same.path.to_owned()),
                    None => read(dir, priority, order, &mut buffer, &mut visit),
                }
            }
        };
        found.push(Directory { path: path.clone(), state });
    }
    found
}

fn open<'d>(path: &'d Path, trust: &Trust) -> Result<Open<'d>, State> {
    if path.as_os_str().is_empty() {
        return Err(State::Refused("UNREADABLE", "an empty path names no directory".to_owned()));
    }
    let failed = |errno: Errno| match errno {
        Errno::NOENT => State::Missing,
        Errno::NOTDIR => State::Refused("UNREADABLE", "is no directory".to_owned()),
        errno => State::Refused("UNREADABLE", errno::words(&errno.into())),
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let fd = fs::openat(CWD, path, flags, Mode::empty()).map_err(failed)?;
    let stat = fs::fstat(&fd).map_err(failed)?;
    match trust.distrust(&stat) {
        Some(why) => Err(State::Refused("UNTRUSTED", why.to_string())),
        None => Ok(Open { path, fd, id: (stat.st_dev, stat.st_ino) }),
    }
}

fn read(
    dir: &Open<'_>,
    priority: usize,
    order: Order,
    buffer: &mut Vec<MaybeUninit<u8>>,
    visit: &mut impl FnMut(&Listed<'_>),
) -> State {
    let names = match Names::of(dir, buffer) {
        Ok(names) => names,
        Err(error) => return State::Refused("UNREADABLE", errno::words(&error)),
    };
    let mut files = 0;
    for (name, kind) in names.in_order(order) {
        if kind != FileType::Directory {
            files += 1;
            let fd = dir.fd.as_fd();
            visit(&Listed { directory: dir.path, fd, name, priority, kind });
        }
    }
    State::Read { files }
}

/// The names of spec files, behind each other, each with its end.
#[derive(Default)]
struct Names {
    bytes: Vec<u8>,
    list: Vec<(usize, usize, FileType)>,
}

// === impl Names ===

impl Names {
    fn of(dir: &Open<'_>, buffer: &mut Vec<MaybeUninit<u8>>) -> io::Result<Self> {
        buffer.resize(LISTING, MaybeUninit::uninit());
        let mut names = Self::default();
        let mut entries = RawDir::new(&dir.fd, buffer);
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = entry.file_name().to_bytes_with_nul();
            if name.ends_with(b".json\0") || name.ends_with(b".yaml\0") {
                let start = names.bytes.len();
                names.bytes.extend_from_slice(name);
                names.list.push((start, names.bytes.len(), entry.file_type()));
            }
        }
        Ok(names)
    }

    fn in_order(&self, order: Order) -> Vec<(&CStr, FileType)> {
        let of = |&(start, end, kind): &(usize, usize, FileType)| {
            let bytes = self.bytes.get(start..end).unwrap_or_default();
            CStr::from_bytes_with_nul(bytes).ok().map(|name| (name, kind))
        };
        let mut names: Vec<_> = self.list.iter().filter_map(of).collect();
        if order == Order::Sorted {
            names.sort_unstable_by_key(|(name, _)| *name);
        }
        names
    }
}

// === impl Listed ===

impl Listed<'_> {
    pub(crate) fn path(&self) -> PathBuf {
        self.directory.join(OsStr::from_bytes(self.name.to_bytes()))
    }

    /// What it is, when the directory says that it is no file: it needs no opening, which a FIFO or
    /// a device might answer.
    pub(crate) fn irregular(&self) -> Option<&'static str> {
        match self.kind {
            FileType::RegularFile | FileType::Symlink | FileType::Unknown => None,
            FileType::Fifo => Some("a FIFO"),
            FileType::Socket => Some("a socket"),
            FileType::CharacterDevice | FileType::BlockDevice => Some("a device"),
            FileType::Directory => Some("a directory"),
        }
    }

    /// A regular file by its own name: if it is not there now, it was removed meanwhile.
    pub(crate) fn may_vanish(&self) -> bool {
        self.kind != FileType::Symlink
    }
}
