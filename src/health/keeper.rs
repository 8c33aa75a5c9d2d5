//! A keeper finds out how GPUs are, and keeps that in the state directory: a restart forgets nothing, and two
//! divvy-nodes of a rolling update know the same.

use std::{
    collections::BTreeMap,
    fs,
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use divvy_cdi::{
    file::{self, Durability, FileError, Trust},
    problem::chain,
};
use tokio::sync::watch;

use super::{
    Book, Cause, GpuHealth, Known, Options,
    book::VERSION,
    xid::{Demand, demand},
};
use crate::{
    admin::tell,
    gpu::{Event, EventKind, Gpus},
    journal::Journal,
    lock::Lock,
};

/// Finds out how GPUs are, and tells.
#[derive(Debug)]
pub struct Keeper {
    options: Options,
    boot: String,
    journal: Journal,
    /// As it is in the file, or should be.
    book: Book,
    /// It could not be written: what is in the file is older.
    unwritten: bool,
    looked: Option<Instant>,
    xids: BTreeMap<(String, u64), u64>,
    /// What was said last of what keeps it from its work, and of GPUs.
    told: Option<String>,
    said: Vec<GpuHealth>,
    known: watch::Sender<Known>,
}

/// How often GPUs are asked.
const EVERY: Duration = Duration::from_secs(5);
/// How long an event is waited for at once; and how often GPUs are asked at most, whatever happens to them.
const WAIT: Duration = Duration::from_secs(1);

const MAX_BYTES: usize = 1 << 20;
const FILE: &str = "health.json";

// === impl Keeper ===

impl Keeper {
    /// One that keeps what it knows beside this journal, in this boot.
    pub fn new(journal: &Journal, boot: &str, options: Options) -> (Self, watch::Receiver<Known>) {
        let (known, heard) = watch::channel(Known::nothing(options.effect));
        let mut keeper = Self {
            options,
            boot: boot.to_owned(),
            journal: journal.clone(),
            book: Book::new(boot),
            unwritten: false,
            looked: None,
            xids: BTreeMap::new(),
            told: None,
            said: Vec::new(),
            known,
        };
        // What is published before the first look must not be without what ails GPUs. Where it cannot be read,
        // that look says why.
        if let Ok(Some(book)) = keeper.read() {
            keeper.book = book;
            let gpus = keeper.gpus(uptime());
            keeper.known.send_modify(|known| known.gpus = gpus);
        }
        (keeper, heard)
    }

    /// Keeps at it until nobody wants to know.
    pub fn run(mut self, gpus: &dyn Gpus) {
        while !self.known.is_closed() {
            self.turn(gpus);
        }
    }

    /// Waits a moment for something to happen to GPUs, looks at them if it is time, and tells.
    pub fn turn(&mut self, gpus: &dyn Gpus) {
        let first = self.looked.is_none();
        // Nothing is missed before the first look: the first call begins to hear.
        let wait = if first { Duration::ZERO } else { WAIT };
        let mut events = gpus.events(wait).unwrap_or_else(|_| {
            // The look says why, and comes as soon as that.
            thread::sleep(wait);
            Vec::new()
        });
        let age = self.looked.map_or(EVERY, |looked| looked.elapsed());
        if age < EVERY && events.is_empty() {
            return;
        }
        if age < WAIT {
            thread::sleep(WAIT - age);
            events.extend(gpus.events(Duration::ZERO).unwrap_or_default());
        }
        self.look(gpus, &events);
    }

    /// Looks at the GPUs, to which this happened, and tells.
    pub(super) fn look(&mut self, gpus: &dyn Gpus, events: &[Event]) {
        self.count(events);
        let checkup = gpus.checkup();
        self.looked = Some(Instant::now());
        let now = uptime();
        let kept = self.change(|book, options| {
            if let Ok(checkup) = &checkup {
                book.observe(now, checkup);
            }
            let counts = |event: &&Event| match event.kind {
                EventKind::Xid(xid) => !options.ignored.contains(&xid),
                _ => true,
            };
            events.iter().filter(counts).for_each(|event| book.hear(now, event));
        });
        self.say(kept.err());
        self.publish(now, checkup.err().map(|error| chain(&error)));
    }

    /// Changes the book, under a lock that all who keep it take; what was written last by another is in it.
    fn change(&mut self, change: impl FnOnce(&mut Book, &Options)) -> Result<(), String> {
        let held = self.lock();
        if held.is_ok() && !self.unwritten {
            match self.read() {
                Ok(Some(book)) => self.book = book,
                Ok(None) => {}
                Err(why) => {
                    tell(&format!("{why}; what it said of the GPUs is made anew\n"));
                    self.unwritten = true;
                }
            }
        }
        let before = self.book.clone();
        change(&mut self.book, &self.options);
        if self.book == before && !self.unwritten && self.path().exists() {
            return held.map(drop);
        }
        let written = held.and_then(|_held| self.write());
        self.unwritten = written.is_err();
        written
    }

    fn lock(&self) -> Result<Lock, String> {
        let place = self.journal.lock_place("health").map_err(|e| chain(&e))?;
        // Whoever has it writes one small file: one that is stopped meanwhile keeps nobody.
        Lock::wait(&place, Some(Instant::now() + EVERY)).map_err(|e| chain(&e))
    }

    fn path(&self) -> PathBuf {
        self.journal.state_dir().join(FILE)
    }

    /// The book of this boot; none where there is none.
    fn read(&self) -> Result<Option<Book>, String> {
        let path = self.path();
        let bytes = match file::read(&path, MAX_BYTES, &Trust::of_process()) {
            Ok(bytes) => bytes,
            Err(FileError::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(chain(&error)),
        };
        let wrong = |why: String| format!("{}: {why}", path.display());
        let book: Book = serde_json::from_slice(&bytes).map_err(|e| wrong(e.to_string()))?;
        if book.version != VERSION {
            return Err(wrong(format!("version {} is not known here", book.version)));
        }
        // With the boot went all of it.
        Ok((book.boot == self.boot).then_some(book))
    }

    fn write(&self) -> Result<(), String> {
        let bytes = serde_json::to_vec_pretty(&self.book).map_err(|e| e.to_string())?;
        let written = file::replace(&self.path(), &bytes, 0o600, Durability::Durable);
        written.map_err(|e| chain(&e))
    }

    /// Says once what keeps it from its work.
    fn say(&mut self, trouble: Option<String>) {
        if let Some(why) = trouble.as_ref().filter(|_| self.told != trouble) {
            tell(&format!("{why}; what is known of GPUs ends with this process\n"));
        }
        self.told = trouble;
    }

    fn count(&mut self, events: &[Event]) {
        for event in events {
            match &event.kind {
                EventKind::Xid(xid) => {
                    let count = self.xids.entry((event.gpu.clone(), *xid)).or_default();
                    *count += 1;
                    // An application may do it again, and again.
                    if *count == 1 && demand(*xid) == Demand::Nothing {
                        tell(&format!(
                            "GPU {}: XID {xid}: no taint, by NVIDIA's catalogue\n",
                            event.gpu
                        ));
                    }
                }
                EventKind::Unwatched(why) => {
                    let gpu = if event.gpu.is_empty() { "all" } else { &event.gpu };
                    tell(&format!("GPU {gpu}: is not watched for XIDs: {why}\n"));
                }
                EventKind::Changed => {}
            }
        }
    }

    fn gpus(&self, now: u64) -> Vec<GpuHealth> {
        let health = |(pci, record): (&str, &super::Record)| {
            let (pci, gpu) = (pci.parse().ok()?, record.gpu.clone());
            Some(GpuHealth { pci, gpu, causes: record.causes(now) })
        };
        self.book.gpus().filter_map(health).collect()
    }

    /// Tells who wants to know, and the log what is another than before.
    fn publish(&mut self, now: u64, trouble: Option<String>) {
        let (gpus, xids) = (self.gpus(now), self.xids.clone());
        say_changes(&self.said, &gpus);
        self.said.clone_from(&gpus);
        self.known.send_if_modified(|known| {
            let changed = (&known.gpus, &known.trouble, &known.xids) != (&gpus, &trouble, &xids);
            if trouble.is_none() {
                known.seen = Some(Instant::now());
            }
            (known.gpus, known.trouble, known.xids) = (gpus, trouble, xids);
            changed
        });
    }
}

fn say_changes(before: &[GpuHealth], now: &[GpuHealth]) {
    let causes = |all: &[GpuHealth], pci| -> Vec<Cause> {
        let found = all.iter().find(|health| health.pci == pci);
        found.map(|health| health.causes.clone()).unwrap_or_default()
    };
    for health in now {
        let title = match &health.gpu {
            Some(gpu) => format!("GPU {gpu} at {}", health.pci),
            None => format!("the GPU at {}", health.pci),
        };
        let earlier = causes(before, health.pci);
        for cause in health.causes.iter().filter(|cause| !earlier.contains(cause)) {
            tell(&format!("{title}: {cause}\n"));
        }
        for cause in earlier.iter().filter(|cause| !health.causes.contains(cause)) {
            tell(&format!("{title}: no more {}\n", cause.name()));
        }
    }
}

/// Seconds since the boot; a clock that somebody sets does not count.
fn uptime() -> u64 {
    let text = fs::read_to_string("/proc/uptime").unwrap_or_default();
    let seconds = text.split(['.', ' ']).next().and_then(|seconds| seconds.parse().ok());
    seconds.unwrap_or_default()
}
