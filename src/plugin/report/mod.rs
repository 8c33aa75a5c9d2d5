//! A report tells the cluster what became of a claim: in its `status.devices`, and where it failed in
//! events of the claim and of its pods. Nobody waits for it.

mod event;
mod status;

use std::{sync::Arc, time::Duration};

use serde_json::Value;
use tokio::{sync::mpsc, time::Instant};

use super::{Metrics, Reference};
use crate::{
    admin::{exit::Failure, tell},
    api::{Api, ApiError},
};

use event::Events;
use status::Object;

/// What became of a claim.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) claim: Reference,
    /// As the API server had it.
    pub(super) text: String,
    /// Why it is not prepared, in one line.
    pub(super) failed: Option<String>,
}

/// Where reports are left.
#[derive(Debug, Clone)]
pub(super) struct Reports {
    to: mpsc::Sender<Report>,
    metrics: Arc<Metrics>,
}

/// Brings them to the API server, one after the other.
pub(super) struct Courier {
    from: mpsc::Receiver<Report>,
    api: Api,
    /// Whose reports they are: of a claim's devices they tell of that driver's.
    driver: String,
    metrics: Arc<Metrics>,
    events: Events,
    /// What was said last of why one could not be brought: it is said once.
    told: String,
}

/// What is brought: where it goes, and what it says.
#[derive(Debug)]
enum Letter<'a> {
    /// The status of a claim of this name.
    Status(&'a str, Value),
    /// A new event.
    Event(Value),
    /// One more of the event of this name.
    Series(&'a str, Value),
}

/// How many wait to be brought. The next one is lost: it would be of no use later.
const MAX_WAITING: usize = 256;

/// How often one is tried that may be brought in a moment, and how long after the first time.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_secs(1);

// === impl Reports ===

impl Reports {
    /// Reports of a driver of this node; they are brought by [`Courier::run`].
    pub(super) fn new(
        api: Api,
        driver: &str,
        node: &str,
        metrics: Arc<Metrics>,
    ) -> (Self, Courier) {
        let (to, from) = mpsc::channel(MAX_WAITING);
        let (events, told) = (Events::of(driver, node), String::new());
        let driver = driver.to_owned();
        let courier = Courier { from, api, driver, metrics: Arc::clone(&metrics), events, told };
        (Self { to, metrics }, courier)
    }

    /// Leaves one, where there is room.
    pub(super) fn leave(&self, report: Report) {
        if self.to.try_send(report).is_err() {
            self.metrics.failed("report", "REPORT-LOST");
        }
    }
}

// === impl Courier ===

impl Courier {
    /// Brings every report, for as long as there are any.
    pub(super) async fn run(mut self) {
        while let Some(report) = self.from.recv().await {
            let Report { claim, text, failed } = report;
            let Some(object) = Object::read(&text, &claim) else { continue };
            if let Some(status) = object.status(&claim, &self.driver, failed.as_deref()) {
                let status = Letter::Status(&claim.name, status);
                self.bring(&claim.namespace, &status).await;
            }
            let Some(why) = failed else { continue };
            for regarded in event::regarded(&claim, &object) {
                self.event(&claim.namespace, &regarded, &why).await;
            }
        }
    }

    /// One more event of an object.
    async fn event(&mut self, namespace: &str, object: &Value, why: &str) {
        let Some(mut next) = self.events.next(object, why, Instant::now()) else { return };
        if let Some(series) = next.series.take()
            && self.bring(namespace, &Letter::Series(&next.name, series)).await
        {
            return;
        }
        // The first of it; or the server has forgotten it, as it does after an hour.
        let event = self.events.made(&next, namespace, object, why);
        self.bring(namespace, &Letter::Event(event)).await;
    }

    /// Tries it while that may help; false where what it is about is not there.
    async fn bring(&mut self, namespace: &str, letter: &Letter<'_>) -> bool {
        let mut pause = PAUSE;
        for left in (0..TRIES).rev() {
            let sent = match letter {
                Letter::Status(name, claim) => {
                    self.api.apply_claim_status(&self.driver, namespace, name, claim).await
                }
                Letter::Event(event) => self.api.create_event(namespace, event).await,
                Letter::Series(name, change) => self.api.patch_event(namespace, name, change).await,
            };
            match sent {
                Ok(()) => {
                    self.told.clear();
                    return true;
                }
                Err(ApiError::Absent { .. }) => return false,
                Err(error) if error.is_transient() && left > 0 => {
                    tokio::time::sleep(pause).await;
                    pause *= 2;
                }
                Err(error) => {
                    self.say(&error);
                    break;
                }
            }
        }
        true
    }

    fn say(&mut self, error: &ApiError) {
        // It was replaced, or somebody else made the same.
        if error.status() == Some(409) {
            return;
        }
        self.metrics.failed("report", error.code());
        let text = Failure::of(error.code(), error).to_string();
        // The same rule is missing for each of them.
        let same = error.lacks().unwrap_or(&text);
        if self.told != same {
            tell(&text);
            same.clone_into(&mut self.told);
        }
    }
}

#[cfg(test)]
mod tests;
