//! Metrics count what the plugin does, in the words that Prometheus reads.

use std::{
    collections::BTreeMap,
    fmt::Write,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

/// What was counted since the start.
#[derive(Debug, Default)]
pub struct Metrics {
    phases: [Histogram; Phase::ALL.len()],
    /// By operation and code.
    errors: Mutex<BTreeMap<(&'static str, &'static str), u64>>,
}

/// What time goes into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Reading a claim from the API server.
    Read,
    /// Waiting for whoever else is at the claim, and for what passes by itself.
    Wait,
    /// Preparing it on the node.
    Node,
    /// All of a prepare.
    Prepare,
    /// All of an unprepare.
    Unprepare,
}

/// How often something took how long.
#[derive(Debug, Default)]
struct Histogram {
    /// How often at most as long as the bound of the same place; the last is for what took longer.
    counts: [AtomicU64; BOUNDS.len() + 1],
    microseconds: AtomicU64,
}

/// Microseconds, each as Prometheus is told it.
const BOUNDS: [(u64, &str); 12] = [
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
    pub(super) fn took(&self, phase: Phase, time: Duration) {
        if let Some(histogram) = self.phases.get(phase.place()) {
            histogram.add(time);
        }
    }

    /// An operation failed with this code.
    pub(super) fn failed(&self, operation: &'static str, code: &'static str) {
        let mut errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        *errors.entry((operation, code)).or_default() += 1;
    }

    /// All of it, as Prometheus reads it.
    pub(super) fn write(&self, text: &mut String) {
        let mut before = "";
        for (phase, histogram) in Phase::ALL.into_iter().zip(&self.phases) {
            let (name, label) = phase.name();
            if name != before {
                head(text, name, "histogram", "Seconds that calls of the kubelet took");
                before = name;
            }
            histogram.write(text, name, label);
        }
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

// === impl Phase ===

impl Phase {
    const ALL: [Self; 5] = [Self::Read, Self::Wait, Self::Node, Self::Prepare, Self::Unprepare];

    fn place(self) -> usize {
        Self::ALL.into_iter().position(|phase| phase == self).unwrap_or_default()
    }

    /// The metric, and the label of this part of it.
    fn name(self) -> (&'static str, &'static str) {
        const PREPARE: &str = "divvy_prepare_duration_seconds";
        match self {
            Self::Read => (PREPARE, "phase=\"api\""),
            Self::Wait => (PREPARE, "phase=\"wait\""),
            Self::Node => (PREPARE, "phase=\"node\""),
            Self::Prepare => (PREPARE, "phase=\"all\""),
            Self::Unprepare => ("divvy_unprepare_duration_seconds", "phase=\"all\""),
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
