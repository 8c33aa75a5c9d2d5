//! A driver root is the folder that a driver's paths begin below, open as long as they are looked
//! up: a driver container that starts again has another one at the same place.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    io,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use divvy_hook::container::{cache, elf::Library, root::Root};
use rustix::fs::{Dir, FileType, Stat};

use crate::gpu::{MountFile, MountKind};

/// An open driver root.
#[derive(Debug)]
pub struct DriverRoot {
    /// Its path on this machine, absolute.
    path: PathBuf,
    root: Root,
    looked: RefCell<Looked>,
}

/// The folders that something was looked for in, and what they were then: a folder that has another
/// name in it has another time. None stands for one that was not there: that shows in the one above.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Looked(BTreeMap<PathBuf, Option<Seen>>);

/// Device, inode, and time of the last change in nanoseconds.
type Seen = (u64, u64, i128);

/// How coarse the clock of a file system may be: what changes so soon after a folder's time shows in
/// no other time.
const CLOCK: Duration = Duration::from_millis(20);

/// The most names of a folder; a desktop's folder of libraries has a tenth of it.
const MAX_NAMES: usize = 1 << 16;

// === impl DriverRoot ===

impl DriverRoot {
    /// Opens the driver root at `path`, a path of this machine.
    ///
    /// # Errors
    /// The system's answer.
    pub fn open(path: &Path) -> io::Result<Self> {
        let path = std::path::absolute(path)?;
        let root = Root::any(&path)?;
        Ok(Self { path, root, looked: RefCell::default() })
    }

    /// Its path on this machine.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path on this machine of what is at `inside`, a path without links below the root.
    pub fn outside(&self, inside: &Path) -> PathBuf {
        self.path.join(inside.strip_prefix("/").unwrap_or(inside))
    }

    /// Where the regular file at `path` really is, below the root; none where there is no such file.
    pub fn file(&self, path: &Path) -> Option<PathBuf> {
        self.place(path, FileType::RegularFile)
    }

    /// What stands at `path`, links followed below the root.
    ///
    /// # Errors
    /// The system's answer.
    pub fn stat(&self, path: &Path) -> io::Result<Stat> {
        Ok(self.root.stat(path)?)
    }

    /// Where the folder at `path` really is, below the root.
    pub(super) fn folder(&self, path: &Path) -> Option<PathBuf> {
        self.place(path, FileType::Directory)
    }

    /// Where the socket at `path` really is, below the root. That it was looked for is not noted.
    pub(super) fn socket(&self, path: &Path) -> Option<PathBuf> {
        self.real(path, FileType::Socket)
    }

    /// What was looked at since it was opened; none where it may have changed meanwhile.
    pub(super) fn looked(&self) -> Option<Looked> {
        let looked = self.looked.borrow();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let sure = i128::try_from(now.saturating_sub(CLOCK).as_nanos()).unwrap_or_default();
        let told = looked.0.values().flatten().all(|(.., time)| *time < sure);
        told.then(|| looked.clone())
    }

    /// Whether all folders are as they were when they were looked in.
    pub(super) fn is_as(&self, looked: &Looked) -> bool {
        let mut there = looked.0.iter().filter(|(_, seen)| seen.is_some());
        there.all(|(folder, seen)| self.see(folder) == *seen)
    }

    fn see(&self, folder: &Path) -> Option<Seen> {
        let stat = self.root.stat(folder).ok()?;
        let time = i128::from(stat.st_mtime) * 1_000_000_000 + i128::from(stat.st_mtime_nsec);
        Some((stat.st_dev, stat.st_ino, time))
    }

    /// Notes that something is looked for in a folder, or in what is there of those above it.
    fn look(&self, folder: Option<&Path>) {
        for folder in folder.iter().flat_map(|folder| folder.ancestors()) {
            if self.looked.borrow().0.get(folder).is_some_and(Option::is_some) {
                return;
            }
            let seen = self.see(folder);
            self.looked.borrow_mut().0.insert(folder.to_owned(), seen);
            if seen.is_some() {
                return;
            }
        }
    }

    fn place(&self, path: &Path, kind: FileType) -> Option<PathBuf> {
        self.look(path.parent());
        let real = self.real(path, kind)?;
        // A link may lead to where nobody looked.
        self.look(real.parent());
        Some(real)
    }

    fn real(&self, path: &Path, kind: FileType) -> Option<PathBuf> {
        let stat = self.root.stat(path).ok()?;
        (FileType::from_raw_mode(stat.st_mode) == kind).then(|| self.root.real(path).ok())?
    }

    /// The names in the folder at `path`, in order; none where there is no such folder. Those that
    /// no spec should hold are left out: [`is_plain`].
    pub(super) fn names(&self, path: &Path) -> Vec<String> {
        self.look(Some(path));
        let Ok(folder) = self.root.folder(path).and_then(Dir::read_from) else { return Vec::new() };
        let names = folder.take(MAX_NAMES).map_while(Result::ok);
        let mut names: Vec<String> = names
            .filter_map(|entry| {
                let name = OsStr::from_bytes(entry.file_name().to_bytes());
                is_plain(name).then(|| name.to_str().map(str::to_owned))?
            })
            .collect();
        names.sort_unstable();
        names
    }

    /// The library at `path`, if one of 64 bits is there.
    pub(super) fn library(&self, path: &Path) -> Option<Library> {
        Library::read(&self.root.file(path).ok()??)
    }

    /// What the loader's cache below the root has: names of libraries, and where they lead.
    pub(super) fn cached(&self) -> Vec<(OsString, PathBuf)> {
        self.look(Some(Path::new("/etc")));
        let cached = cache::libraries(&self.root).unwrap_or_default();
        cached.into_iter().map(|(name, path)| (OsStr::from_bytes(&name).into(), path)).collect()
    }

    /// What is at `inside`, a path without links below the root, mounted as `path` in a container.
    /// None where a spec should not hold a path: [`is_plain`].
    pub(super) fn mount(&self, inside: &Path, path: &Path, kind: MountKind) -> Option<MountFile> {
        let host_path = self.outside(inside);
        if !is_plain(path.as_os_str()) || !is_plain(host_path.as_os_str()) {
            return None;
        }
        let text = |path: &Path| path.to_str().map(str::to_owned);
        Some(MountFile { path: text(path)?, host_path: text(&host_path)?, kind })
    }
}

/// Text without control characters, and without `::`, which divides a link of the hook's command line.
pub(super) fn is_plain(text: &OsStr) -> bool {
    text.to_str().is_some_and(|text| !text.contains(char::is_control) && !text.contains("::"))
}
