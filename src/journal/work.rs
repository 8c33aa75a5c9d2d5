//! Work on the journal is shared: each claim and each GPU has a lock of its own, so that claims on
//! different GPUs wait for nothing of each other.
//!
//! ```text
//! locks/work             shared by all who prepare or end claims; alone: whoever tidies up
//! locks/index            whoever makes the index, once in a boot; then `work`, alone
//! locks/claims/<uid>     whoever prepares, verifies or ends this claim
//! locks/names            for a moment: whoever gives a claim its name
//! locks/gpus/<GPU>       whoever changes this GPU, or chooses what to give of it
//! ```
//!
//! They are taken in this order, those of several GPUs by UUID, so nobody waits in a circle.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    time::SystemTime,
};

use divvy_cdi::file::{self, Durability};
use divvy_hook::record::Origin;

use super::{
    Call, Entry, Journal, JournalError, Listed, Part,
    index::{Index, IndexError, UNKNOWN},
};
use crate::{
    lock::{Lock, LockError},
    plan::Held,
};

/// Being at work, with others who are.
#[derive(Debug)]
pub struct Work<'a> {
    journal: &'a Journal,
    index: Index,
    call: Call<'a>,
    _shared: Lock,
}

/// Nobody else is at work.
#[derive(Debug)]
pub struct Alone<'a> {
    journal: &'a Journal,
    _alone: Lock,
}

/// A claim in nobody else's hands.
#[derive(Debug)]
pub struct Claimed<'a> {
    work: &'a Work<'a>,
    uid: String,
    /// None while it is dropped.
    lock: Option<Lock>,
    gpus: BTreeMap<String, Lock>,
    /// Namespace and name, where the index has it by them.
    named: Option<(String, String)>,
    /// The GPUs for which the index has it.
    indexed: BTreeSet<String>,
}

// === impl Journal ===

impl Journal {
    /// Begins to work, in this boot, for this call. Waits only for somebody who tidies up.
    ///
    /// # Errors
    /// When the state directory cannot be made or locked, or others can write it, or the journal
    /// cannot be listed.
    pub fn work<'a>(&'a self, boot: &str, call: Call<'a>) -> Result<Work<'a>, JournalError> {
        self.make_dirs()?;
        let (work, index) = (self.lock_path("work"), Index::of(&self.state_dir, boot));
        loop {
            let shared = call.at(Part::Lock, || Lock::share(&work, call.until))?;
            if index.is_there() {
                return Ok(Work { journal: self, index, call, _shared: shared });
            }
            drop(shared);
            // Who comes later waits for the index, and not for what others do for long once it is there.
            let making = self.lock_path("index");
            let _maker = call.at(Part::Lock, || Lock::wait(&making, call.until))?;
            if !index.is_there() {
                let _alone = call.at(Part::Lock, || Lock::wait(&work, call.until))?;
                self.make_index(&index)?;
            }
        }
    }

    /// The journal while nobody works on it; none while somebody does.
    ///
    /// # Errors
    /// As [`Self::work`].
    pub fn alone(&self) -> Result<Option<Alone<'_>>, JournalError> {
        self.make_dirs()?;
        let alone = Lock::attempt(&self.lock_path("work"))?;
        Ok(alone.map(|alone| Alone { journal: self, _alone: alone }))
    }

    pub(super) fn make_dirs(&self) -> Result<(), JournalError> {
        // Whoever can write the one above could put another journal in the place of this one.
        file::make_dir(&self.state_dir, 0o755, Durability::Durable)?;
        file::make_dir(&self.dir, 0o700, Durability::Durable)?;
        for dir in ["", "claims", "gpus"] {
            file::make_dir(&self.lock_path(dir), 0o700, Durability::Volatile)?;
        }
        Ok(())
    }

    pub(super) fn lock_path(&self, name: &str) -> PathBuf {
        self.state_dir.join("locks").join(name)
    }

    fn make_index(&self, index: &Index) -> Result<(), JournalError> {
        let listed = self.listing()?;
        let fill = |index: &Index| {
            for listed in &listed {
                let Listed::Claim(uid) = listed else { continue };
                match self.entry(uid) {
                    Ok(Some(entry)) => {
                        for gpu in entry.held_gpus() {
                            index.add(&gpu, uid)?;
                        }
                        if entry.origin == Origin::Local {
                            index.name(&entry.namespace, &entry.name, uid)?;
                        }
                    }
                    Ok(None) => {}
                    // It may hold any of them.
                    Err(_) => index.add(UNKNOWN, uid)?,
                }
            }
            Ok(())
        };
        Ok(index.make(fill)?)
    }
}

// === impl Alone ===

impl Alone<'_> {
    /// Removes what crashes left half written in the journal, and in a directory in which nobody else
    /// writes.
    pub fn sweep(&self, dir: &Path) {
        file::sweep(&self.journal.dir);
        file::sweep(dir);
    }
}

// === impl Work ===

impl<'a> Work<'a> {
    /// Waits until this claim is in nobody else's hands.
    ///
    /// # Errors
    /// When it cannot be locked.
    pub fn claim(&'a self, uid: &str) -> Result<Claimed<'a>, JournalError> {
        Ok(self.claimed(uid, self.wait(&self.lock_of(uid))?))
    }

    /// A claim, unless it is in somebody else's hands.
    ///
    /// # Errors
    /// When it cannot be locked.
    pub fn attempt_claim(&'a self, uid: &str) -> Result<Option<Claimed<'a>>, JournalError> {
        let lock = Lock::attempt(&self.lock_of(uid))?;
        Ok(lock.map(|lock| self.claimed(uid, lock)))
    }

    /// A lock, whose holder is named by the claim that it is at.
    fn wait(&self, path: &Path) -> Result<Lock, JournalError> {
        let lock = self.call.at(Part::Lock, || Lock::wait(path, self.call.until));
        Ok(lock.map_err(|error| match error {
            LockError::Held { path, mut by } => {
                let uid = by.claim.take();
                let entry = uid.as_ref().and_then(|uid| self.journal.entry(uid).ok().flatten());
                by.claim = entry.map(|entry| entry.title()).or(uid);
                LockError::Held { path, by }
            }
            error => error,
        })?)
    }

    fn claimed(&'a self, uid: &str, lock: Lock) -> Claimed<'a> {
        let (uid, lock) = (uid.to_owned(), Some(lock));
        let (gpus, named, indexed) = Default::default();
        Claimed { work: self, uid, lock, gpus, named, indexed }
    }

    fn lock_of(&self, uid: &str) -> PathBuf {
        self.journal.lock_path("claims").join(uid)
    }
}

// === impl Claimed ===

impl Claimed<'_> {
    /// Its UID.
    pub fn uid(&self) -> &str {
        &self.uid
    }

    /// Its entry, if it has one.
    ///
    /// # Errors
    /// When it cannot be read or is damaged.
    pub fn entry(&self) -> Result<Option<Entry>, JournalError> {
        self.work.call.at(Part::Journal, || self.work.journal.entry(&self.uid))
    }

    /// Waits until these GPUs, and no others, are in nobody else's hands, and says when the last one
    /// was.
    ///
    /// # Errors
    /// When one cannot be locked, or not in time.
    pub fn lock_gpus(&mut self, gpus: &BTreeSet<String>) -> Result<SystemTime, JournalError> {
        let mut last = SystemTime::UNIX_EPOCH;
        if self.gpus.keys().eq(gpus) {
            return Ok(last);
        }
        self.free_gpus();
        for gpu in gpus {
            let mut lock = self.work.wait(&self.lock_of(gpu))?;
            last = last.max(lock.touched().unwrap_or_else(|_| SystemTime::now()));
            lock.note(&self.uid);
            self.gpus.insert(gpu.clone(), lock);
        }
        Ok(last)
    }

    fn free_gpus(&mut self) {
        self.gpus.values().for_each(Lock::touch);
        self.gpus.clear();
    }

    /// [`Self::lock_gpus`] without waiting: false while somebody else has one of them.
    ///
    /// # Errors
    /// When one cannot be locked.
    pub fn attempt_gpus(&mut self, gpus: &BTreeSet<String>) -> Result<bool, JournalError> {
        self.free_gpus();
        for gpu in gpus {
            let Some(mut lock) = Lock::attempt(&self.lock_of(gpu))? else { return Ok(false) };
            lock.note(&self.uid);
            self.gpus.insert(gpu.clone(), lock);
        }
        Ok(true)
    }

    /// What other claims hold of these GPUs; of all, where none are named.
    ///
    /// # Errors
    /// When an entry of one of them cannot be read: what its claim holds is not known.
    pub fn held_by_others(
        &self,
        gpus: Option<&BTreeSet<String>>,
    ) -> Result<Vec<Held>, JournalError> {
        self.work.call.at(Part::Journal, || self.held(gpus))
    }

    fn held(&self, gpus: Option<&BTreeSet<String>>) -> Result<Vec<Held>, JournalError> {
        let index = &self.work.index;
        let mut claims = BTreeSet::new();
        match gpus {
            None => claims = index.all_claims()?,
            Some(gpus) => {
                for gpu in gpus {
                    claims.append(&mut index.claims(gpu)?);
                }
            }
        }
        claims.remove(&self.uid);
        let mut held = Vec::new();
        for uid in claims {
            // One that is gone since it was listed holds nothing.
            held.extend(self.work.journal.entry(&uid)?.iter().flat_map(Entry::held));
        }
        Ok(held)
    }

    /// Gives the claim its name, by which the hook finds it; the UID of another claim that has it.
    ///
    /// # Errors
    /// When the index cannot be read or written.
    pub fn take_name(
        &mut self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<String>, JournalError> {
        let Self { work, uid, .. } = self;
        let _held = work.wait(&work.journal.lock_path("names"))?;
        if let Some(other) = work.index.named(namespace, name)?.filter(|other| other != uid) {
            // In somebody's hands, it has a name before it has an entry.
            let has = match work.attempt_claim(&other)? {
                None => true,
                Some(other) => !matches!(other.entry(), Ok(None)),
            };
            if has {
                return Ok(Some(other));
            }
        }
        work.index.name(namespace, name, uid)?;
        self.named = Some((namespace.to_owned(), name.to_owned()));
        Ok(None)
    }

    /// Writes its entry so that it outlives a crash.
    ///
    /// # Errors
    /// When it cannot be written; what was there before stays.
    pub fn write(&mut self, entry: &Entry) -> Result<(), JournalError> {
        let work = self.work;
        work.call.at(Part::Journal, || {
            self.index(entry)?;
            work.journal.write(entry)
        })
    }

    /// Puts it into the index, where it is missing.
    ///
    /// # Errors
    /// When the index cannot be written.
    pub fn index(&mut self, entry: &Entry) -> Result<(), JournalError> {
        for gpu in entry.held_gpus() {
            if !self.indexed.contains(&gpu) {
                self.work.index.add(&gpu, &self.uid)?;
                self.indexed.insert(gpu);
            }
        }
        Ok(())
    }

    /// Removes its entry.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn remove(&mut self, entry: &Entry) -> Result<(), JournalError> {
        self.discard()?;
        if entry.origin == Origin::Local {
            self.named = Some((entry.namespace.clone(), entry.name.clone()));
        }
        self.indexed.extend(entry.held_gpus());
        Ok(())
    }

    /// Removes an entry that cannot be read.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn discard(&mut self) -> Result<(), JournalError> {
        let place = self.work.journal.place(&self.uid);
        self.work.call.at(Part::Journal, || file::remove(&place, Durability::Durable))?;
        Ok(())
    }

    /// Keeps a copy of its damaged entry aside, and says where; the entry stays until another is
    /// written or it is removed.
    ///
    /// # Errors
    /// When it cannot be kept.
    pub fn keep_damaged(&self) -> Result<PathBuf, JournalError> {
        self.work.journal.keep_damaged(&self.work.journal.place(&self.uid))
    }

    fn lock_of(&self, gpu: &str) -> PathBuf {
        self.work.journal.lock_path("gpus").join(gpu)
    }

    /// What the index and the locks still have of a claim that is no more.
    fn forget(&mut self) -> Result<(), IndexError> {
        let index = &self.work.index;
        if let Some((namespace, name)) = &self.named {
            index.unname(namespace, name, &self.uid)?;
        }
        for gpu in self.indexed.iter().map(String::as_str).chain([UNKNOWN]) {
            index.remove(gpu, &self.uid)?;
        }
        if let Some(lock) = self.lock.take() {
            lock.remove();
        }
        Ok(())
    }
}

impl Drop for Claimed<'_> {
    fn drop(&mut self) {
        self.free_gpus();
        if matches!(self.work.journal.has(&self.uid), Ok(false)) {
            // The index may say more than there is: whoever reads it looks at the entries.
            let _stays = self.forget();
        }
    }
}
