//! A call is what somebody wants done now: until when others are waited for, and what its time goes into.

use std::{
    future::Future,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

use tracing::{Instrument, Span};

/// A call.
#[derive(Debug, Clone, Copy, Default)]
pub struct Call<'a> {
    /// Until when others who are at the same claim or GPU are waited for; without end where it is none.
    pub until: Option<Instant>,
    /// Where it is noted what its time goes into.
    pub spent: Option<&'a Spent>,
}

/// What the time of a call goes into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Asking the API server.
    Api,
    /// Waiting for what passes by itself.
    Wait,
    /// Waiting for others who are at the same claim or GPU.
    Lock,
    /// The GPUs and their driver.
    Nvml,
    /// Reading and writing the journal.
    Journal,
    /// Writing CDI spec and record.
    Cdi,
}

/// How long a call was at each of its parts, in microseconds.
#[derive(Debug, Default)]
pub struct Spent([AtomicU64; Part::ALL.len()]);

// === impl Call ===

impl Call<'_> {
    /// Does a part of the call.
    pub(crate) fn at<T>(self, part: Part, work: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        let done = part.span().in_scope(work);
        if let Some(spent) = self.spent {
            spent.add(part, begun.elapsed());
        }
        done
    }
}

// === impl Part ===

impl Part {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Api, Self::Wait, Self::Lock, Self::Nvml, Self::Journal, Self::Cdi];

    /// As metrics have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Api => "api",
            Self::Wait => "wait",
            Self::Lock => "lock",
            Self::Nvml => "nvml",
            Self::Journal => "journal",
            Self::Cdi => "cdi",
        }
    }

    /// In a trace, below that of its call.
    fn span(self) -> Span {
        tracing::debug_span!("part", otel.name = self.name())
    }

    fn place(self) -> usize {
        Self::ALL.into_iter().position(|part| part == self).unwrap_or_default()
    }
}

// === impl Spent ===

impl Spent {
    /// Waits for a part of the call.
    pub(crate) async fn during<T>(&self, part: Part, work: impl Future<Output = T>) -> T {
        let begun = Instant::now();
        let done = work.instrument(part.span()).await;
        self.add(part, begun.elapsed());
        done
    }

    /// So much more on this.
    fn add(&self, part: Part, time: Duration) {
        if let Some(spent) = self.0.get(part.place()) {
            spent.fetch_add(u64::try_from(time.as_micros()).unwrap_or(u64::MAX), Relaxed);
        }
    }

    /// What was spent on this so far.
    pub(crate) fn on(&self, part: Part) -> Duration {
        let spent = self.0.get(part.place()).map(|spent| spent.load(Relaxed));
        Duration::from_micros(spent.unwrap_or_default())
    }
}
