//! A stranger is a claim whose CDI spec lies beside those of ours, and of which the journal knows
//! nothing: one of another state directory. A directory is listed once and watched from then on, as
//! listing it takes longer the more claims there are.

use std::{
    collections::BTreeSet,
    io,
    mem::MaybeUninit,
    os::{fd::OwnedFd, unix::fs::MetadataExt},
    path::Path,
};

use divvy_cdi::file::FileError;
use rustix::{
    fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags},
    io::Errno,
};

use super::{Journal, JournalError};
use crate::emit;

/// The specs of a directory, but for those that were seen to be ours.
#[derive(Debug)]
pub(super) struct Strangers {
    /// Device and inode of the directory.
    id: (u64, u64),
    /// None where the system has no watch left: then it is of use only once.
    watch: Option<OwnedFd>,
    /// The claims, by UID.
    uids: BTreeSet<String>,
}

// === impl Journal ===

impl Journal {
    /// The UIDs of the claims that have a spec of this driver's in this directory and no entry here.
    ///
    /// # Errors
    /// When the directory cannot be listed. One that is missing is empty.
    pub fn strangers(&self, dir: &Path, driver: &str) -> Result<BTreeSet<String>, JournalError> {
        let failed = |source| FileError::Io { path: dir.to_owned(), doing: "read", source };
        let id = match std::fs::metadata(dir) {
            Ok(dir) => (dir.dev(), dir.ino()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
            Err(error) => return Err(failed(error).into()),
        };
        let mut last = self.strangers.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let known = last.take().filter(|known| known.id == id).and_then(|known| known.now(driver));
        let mut strangers = match known {
            Some(known) => known,
            None => Strangers::list(dir, id, driver).map_err(failed)?,
        };
        // After the specs: a claim of ours has an entry before its spec, and until that is gone.
        strangers.uids.retain(|uid| !self.has(uid).unwrap_or(false));
        let uids = strangers.uids.clone();
        *last = Some(strangers);
        Ok(uids)
    }
}

// === impl Strangers ===

impl Strangers {
    fn list(dir: &Path, id: (u64, u64), driver: &str) -> io::Result<Self> {
        // First: what comes while it is listed is told too.
        let watch = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).and_then(|watch| {
            let come = WatchFlags::MOVED_TO | WatchFlags::CLOSE_WRITE | WatchFlags::CREATE;
            let go = WatchFlags::MOVED_FROM | WatchFlags::DELETE;
            inotify::add_watch(&watch, dir, come | go | WatchFlags::ONLYDIR).map(|_| watch)
        });
        let mut uids = BTreeSet::new();
        for entry in std::fs::read_dir(dir)? {
            let name = entry?.file_name();
            let uid = name.to_str().and_then(|name| emit::uid_of(driver, name));
            uids.extend(uid.map(str::to_owned));
        }
        Ok(Self { id, watch: watch.ok(), uids })
    }

    /// With what came and went since; none where that cannot be known.
    fn now(mut self, driver: &str) -> Option<Self> {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut events = Reader::new(self.watch.as_ref()?, &mut buffer);
        loop {
            let event = match events.next() {
                Ok(event) => event,
                Err(Errno::WOULDBLOCK) => return Some(self),
                Err(_) => return None,
            };
            let lost = ReadFlags::QUEUE_OVERFLOW | ReadFlags::IGNORED | ReadFlags::UNMOUNT;
            if event.events().intersects(lost) {
                return None;
            }
            let name = event.file_name().and_then(|name| name.to_str().ok());
            let uid = name.and_then(|name| emit::uid_of(driver, name));
            let Some(uid) = uid else { continue };
            match event.events().intersects(ReadFlags::MOVED_FROM | ReadFlags::DELETE) {
                true => self.uids.remove(uid),
                false => self.uids.insert(uid.to_owned()),
            };
        }
    }
}
