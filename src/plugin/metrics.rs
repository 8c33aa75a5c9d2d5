//! Metrics count what the plugin does, in the words that Prometheus reads.

use std::{
    collections::BTreeMap,
    fmt::Write,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use crate::{
    gpu::{Device, Gpu, Inventory, Mig, Placement, Profile},
    journal::{Part, Spent},
};

/// What was counted since the start, and what was seen last.
#[derive(Debug, Default)]
pub struct Metrics {
    calls: [Calls; Operation::ALL.len()],
    /// By operation and code.
    errors: Mutex<BTreeMap<(&'static str, &'static str), u64>>,
    orphans: AtomicUsize,
    rooms: Mutex<Vec<Room>>,
}

/// How long calls took, in all and at each part.
#[derive(Debug, Default)]
struct Calls {
    all: Histogram,
    parts: [Histogram; Part::ALL.len()],
}

/// What a call is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    /// Preparing a claim.
    Prepare,
    /// Ending it.
    Unprepare,
}

/// What is left of a GPU in MIG mode, in memory slices.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Room {
    /// Its device's name.
    gpu: String,
    /// Those that no partition has.
    free: u8,
    /// Those of the largest partition that could still be made.
    largest: u8,
}

/// How often something took how long.
#[derive(Debug, Default)]
struct Histogram {
    /// How often at most as long as the bound of the same place; the last is for what took longer.
    counts: [AtomicU64; BOUNDS.len() + 1],
    microseconds: AtomicU64,
}

/// Microseconds, each as Prometheus is told it.
const BOUNDS: [(u64, &str); 14] = [
    (100, "0.0001"),
    (500, "0.0005"),
    (1_000, "0.001"),
    (2_500, "0.0025"),
    (5_000, "0.005"),
    (10_000, "0.01"),
    (25_000, "0.025"),
    (50_000, "0.05"),
    (100_000, "0.1"),
    (250_000, "0.25"),
    (1_000_000, "1"),
    (5_000_000, "5"),
    (15_000_000, "15"),
    (45_000_000, "45"),
];

// === impl Metrics ===

impl Metrics {
    /// A call took so long, and its parts so much of it.
    pub(super) fn took(&self, operation: Operation, time: Duration, spent: &Spent) {
        let Some(calls) = self.calls.get(operation as usize) else { return };
        calls.all.add(time);
        for (part, histogram) in Part::ALL.into_iter().zip(&calls.parts) {
            histogram.add(spent.on(part));
        }
    }

    /// So many claims are prepared that the cluster has no more.
    pub(super) fn orphaned(&self, count: usize) {
        self.orphans.store(count, Relaxed);
    }

    /// The node has these GPUs.
    pub(super) fn saw(&self, inventory: &Inventory) {
        let rooms = inventory.gpus.iter().filter_map(Room::of).collect();
        *self.rooms.lock().unwrap_or_else(PoisonError::into_inner) = rooms;
    }

    /// An operation failed with this code.
    pub(super) fn failed(&self, operation: &'static str, code: &'static str) {
        let mut errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        *errors.entry((operation, code)).or_default() += 1;
    }

    /// All of it, as Prometheus reads it.
    pub(super) fn write(&self, text: &mut String) {
        let name = "divvy_claim_duration_seconds";
        head(text, name, "histogram", "Seconds from the kubelet's call for a claim to its end");
        for (operation, calls) in Operation::ALL.into_iter().zip(&self.calls) {
            calls.all.write(text, name, &operation.label());
        }
        let name = "divvy_claim_phase_duration_seconds";
        head(text, name, "histogram", "Seconds of such a call in each phase");
        for (operation, calls) in Operation::ALL.into_iter().zip(&self.calls) {
            for (part, histogram) in Part::ALL.into_iter().zip(&calls.parts) {
                let labels = format!("{},phase=\"{}\"", operation.label(), part.name());
                histogram.write(text, name, &labels);
            }
        }
        let name = "divvy_orphaned_claims";
        head(text, name, "gauge", "Prepared claims that the cluster and the kubelet have no more");
        line(text, name, "", &self.orphans.load(Relaxed).to_string());
        self.write_rooms(text);
        head(
            text,
            "divvy_errors_total",
            "counter",
            "Claims that failed, by operation and error code",
        );
        for ((operation, code), count) in
            self.errors.lock().unwrap_or_else(PoisonError::into_inner).iter()
        {
            let labels = format!("operation=\"{operation}\",code=\"{code}\"");
            line(text, "divvy_errors_total", &labels, &count.to_string());
        }
    }

    fn write_rooms(&self, text: &mut String) {
        let rooms = self.rooms.lock().unwrap_or_else(PoisonError::into_inner).clone();
        type Value = fn(&Room) -> String;
        let all: [(&str, &str, Value); 3] = [
            (
                "divvy_mig_free_slices",
                "Memory slices of a GPU in MIG mode that nobody has",
                |room| room.free.to_string(),
            ),
            (
                "divvy_mig_largest_free_slices",
                "Memory slices of the largest partition that it still has room for",
                |room| room.largest.to_string(),
            ),
            (
                "divvy_mig_fragmentation_ratio",
                "The part of its free memory slices that the largest partition could not have",
                |room| room.fragmentation().to_string(),
            ),
        ];
        for (name, help, value) in all {
            head(text, name, "gauge", help);
            for room in &rooms {
                line(text, name, &format!("gpu=\"{}\"", room.gpu), &value(room));
            }
        }
    }
}

/// What a metric is.
pub(super) fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    // A text takes whatever is written.
    let _whole = write!(text, "# HELP {name} {help}.\n# TYPE {name} {kind}\n");
}

/// A value of it.
pub(super) fn line(text: &mut String, name: &str, labels: &str, value: &str) {
    let _whole = match labels {
        "" => writeln!(text, "{name} {value}"),
        labels => writeln!(text, "{name}{{{labels}}} {value}"),
    };
}

// === impl Operation ===

impl Operation {
    const ALL: [Self; 2] = [Self::Prepare, Self::Unprepare];

    /// As error counts have it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Prepare => "prepare",
            Self::Unprepare => "unprepare",
        }
    }

    fn label(self) -> String {
        format!("operation=\"{}\"", self.name())
    }
}

// === impl Room ===

impl Room {
    /// None of a GPU that is given whole.
    fn of(gpu: &Gpu) -> Option<Self> {
        if !matches!(gpu.mig, Mig::On(_)) {
            return None;
        }
        let partitions = gpu.partitions().iter().map(|one| one.placement);
        let taken: Vec<Placement> =
            partitions.chain(gpu.instances.iter().map(|one| one.placement)).collect();
        let places = gpu.profiles.iter().flat_map(Profile::placements);
        let end = places.map(|place| place.start.saturating_add(place.size)).max()?;
        let is_free = |slice: &u8| {
            !taken
                .iter()
                .any(|place| (place.start..place.start.saturating_add(place.size)).contains(slice))
        };
        let fits = |profile: &Profile| {
            let place = profile.placements().find(|at| gpu.in_the_way(profile, *at).is_none());
            place.map(|place| place.size)
        };
        Some(Self {
            gpu: Device::Gpu(gpu).name().to_string(),
            free: u8::try_from((0..end).filter(is_free).count()).unwrap_or(u8::MAX),
            largest: gpu.profiles.iter().filter_map(fits).max().unwrap_or_default(),
        })
    }

    fn fragmentation(&self) -> f64 {
        match self.free {
            0 => 0.0,
            free => 1.0 - f64::from(self.largest.min(free)) / f64::from(free),
        }
    }
}

// === impl Histogram ===

impl Histogram {
    fn add(&self, time: Duration) {
        let microseconds = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let place = BOUNDS.iter().position(|(bound, _)| microseconds <= *bound);
        if let Some(count) = self.counts.get(place.unwrap_or(BOUNDS.len())) {
            count.fetch_add(1, Relaxed);
        }
        self.microseconds.fetch_add(microseconds, Relaxed);
    }

    fn write(&self, text: &mut String, name: &str, label: &str) {
        let mut sum = 0;
        let bounds = BOUNDS.iter().map(|(_, bound)| *bound).chain(["+Inf"]);
        for (count, bound) in self.counts.iter().zip(bounds) {
            sum += count.load(Relaxed);
            let labels = format!("{label},le=\"{bound}\"");
            line(text, &format!("{name}_bucket"), &labels, &sum.to_string());
        }
        let seconds = Duration::from_micros(self.microseconds.load(Relaxed)).as_secs_f64();
        line(text, &format!("{name}_sum"), label, &seconds.to_string());
        line(text, &format!("{name}_count"), label, &sum.to_string());
    }
}
