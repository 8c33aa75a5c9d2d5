//! An attempt prepares one claim, and comes again for as long as what is in the way may pass by itself: the kubelet
//! would come again only after a minute.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use tokio::{sync::watch, task::spawn_blocking, time::Instant};

use super::{
    PluginError,
    claims::{Hand, Reference, Shared, spawn_in_span},
    given::Given,
    report::Report,
};
use crate::{
    claim::Claim,
    journal::{Call, Part, Spent},
    plan,
};

/// One attempt.
pub(super) struct Attempt {
    pub(super) shared: Arc<Shared>,
    pub(super) claim: Reference,
    pub(super) hand: Arc<Hand>,
    /// True when the claim was ended meanwhile.
    pub(super) cancels: watch::Receiver<bool>,
    /// How long it is tried.
    pub(super) until: Instant,
    /// Since when the API server does not let us read the claim.
    pub(super) denied: Option<Instant>,
    /// The claim, as the API server had it last.
    pub(super) text: Option<String>,
    pub(super) spent: Arc<Spent>,
}

/// Why it is not prepared yet.
struct Obstacle {
    error: PluginError,
    /// What it was allocated, once that is known: [`plan::units`].
    wants: BTreeSet<String>,
}

/// How long is waited before the second try, and at most before another.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LAST_PAUSE: Duration = Duration::from_secs(1);

/// How long an API server may deny what it is asked: one that says that it is ready, and one that
/// may still read its rules.
const DENIES: Duration = Duration::from_secs(2);
const DENIES_AT_START: Duration = Duration::from_secs(15);

// === impl Attempt ===

impl Attempt {
    /// Tries until it is prepared, or cannot be; and reports that.
    pub(super) async fn run(mut self) -> Result<Vec<Given>, PluginError> {
        let outcome = self.until_settled().await;
        let failed = match &outcome {
            Ok(_) => None,
            // Its pod is gone.
            Err(PluginError::Unprepared { .. }) => return outcome,
            Err(error) => Some(error.line()),
        };
        if let Some(text) = self.text {
            self.shared.reports.leave(Report { claim: self.claim, text, failed });
        }
        outcome
    }

    async fn until_settled(&mut self) -> Result<Vec<Given>, PluginError> {
        let mut pause = FIRST_PAUSE;
        let (mut ending, mut cancels) = (self.shared.ending.clone(), self.cancels.clone());
        loop {
            let mut freed = self.shared.freed.subscribe();
            let error = match self.once().await {
                Ok(given) => return Ok(given),
                Err(obstacle) => {
                    let passes = self.passes(&obstacle).await;
                    if !passes || Instant::now() >= self.until {
                        return Err(obstacle.error);
                    }
                    obstacle.error
                }
            };
            let again = (Instant::now() + pause).min(self.until);
            let waited = self.spent.during(Part::Wait, async {
                tokio::select! {
                    () = tokio::time::sleep_until(again) => Ok(()),
                    Ok(()) = freed.changed() => Ok(()),
                    Ok(_) = cancels.wait_for(|cancelled| *cancelled) => Err(self.cancelled()),
                    Ok(_) = ending.wait_for(|ending| *ending) => Err(error),
                }
            });
            waited.await?;
            pause = (pause * 2).min(LAST_PAUSE);
        }
    }

    async fn once(&mut self) -> Result<Vec<Given>, Obstacle> {
        let spent = Arc::clone(&self.spent);
        let claim = spent.during(Part::Api, self.read()).await?;
        let wants = wants(&claim);
        let blocked = |error| Obstacle { error, wants };
        let turn = tokio::time::timeout_at(self.until, self.hand.turn.lock());
        let turn = spent.during(Part::Lock, turn).await;
        let turn =
            turn.map_err(|_| PluginError::InHand { claim: self.claim.title(), doing: "ended" })?;
        if *self.cancels.borrow() {
            return Err(self.cancelled().into());
        }
        let (shared, until) = (Arc::clone(&self.shared), Some(self.until.into_std()));
        let prepared = spawn_in_span(move || {
            let call = Call { until, spent: Some(&spent) };
            let entry = shared.machine.prepare(&claim, call)?;
            shared.consumers.prepared(&claim, &entry);
            Ok(Given::of(&entry))
        });
        let prepared = prepared.await;
        drop(turn);
        match prepared {
            Ok(prepared) => prepared.map_err(blocked),
            Err(panic) => Err(PluginError::panicked(self.claim.title(), panic).into()),
        }
    }

    /// The claim as the API server has it, if it is to be prepared here.
    async fn read(&mut self) -> Result<Claim, PluginError> {
        let (title, uid) = (self.claim.title(), self.claim.uid.clone());
        let Some(text) = self.shared.text(&self.claim).await? else {
            return Err(PluginError::Gone { claim: title, uid });
        };
        let read = Claim::of_api(&title, text.as_bytes(), self.shared.machine.pool().driver());
        self.text = Some(text);
        let claim = read?;
        if claim.uid != uid {
            return Err(PluginError::Replaced { claim: title, uid, found: claim.uid });
        }
        let lacks = match (&claim.allocation, claim.consumers.as_slice()) {
            (None, _) => "is not allocated",
            (_, []) => "is reserved for no pod",
            _ => return Ok(claim),
        };
        Err(PluginError::Unallocated { claim: title, lacks })
    }

    /// True for what may be gone in a moment.
    async fn passes(&mut self, obstacle: &Obstacle) -> bool {
        if let PluginError::Api(error) = &obstacle.error
            && error.is_denial()
        {
            let since = *self.denied.get_or_insert_with(Instant::now);
            let most = if self.shared.api.is_ready().await { DENIES } else { DENIES_AT_START };
            return since.elapsed() < most;
        }
        self.denied = None;
        match &obstacle.error {
            PluginError::Api(error) => error.is_transient(),
            error => match error.code() {
                // A device node that is not made yet; a process that is not quite gone.
                "DEVICE-GONE" | "GPU-IN-USE" => true,
                "OVERLAP" => self.is_about_to_end(&obstacle.wants).await,
                _ => false,
            },
        }
    }

    /// Whether a claim that has these GPUs is not the cluster's any more: its pod was deleted by force, and its
    /// containers are being stopped. Until then nobody else gets them.
    async fn is_about_to_end(&self, gpus: &BTreeSet<String>) -> bool {
        let shared = Arc::clone(&self.shared);
        let Ok(Ok(entries)) = spawn_blocking(move || shared.machine.claims()).await else {
            return false;
        };
        for entry in entries.into_iter().filter(|entry| entry.uid != self.claim.uid) {
            if entry.units().is_disjoint(gpus) {
                continue;
            }
            let (namespace, name, uid) = (entry.namespace, entry.name, entry.uid);
            let holder = Reference { namespace, name, uid };
            match self.shared.holds(&holder).await {
                Ok(Some(allocated)) if !allocated.is_disjoint(gpus) => {}
                // It is not known; or nobody holds it any more.
                Err(_) | Ok(_) => return true,
            }
        }
        false
    }

    fn cancelled(&self) -> PluginError {
        PluginError::Unprepared { claim: self.claim.title() }
    }
}

// === impl Shared ===

impl Shared {
    /// The claim of this name that the API server has, as text.
    async fn text(&self, claim: &Reference) -> Result<Option<String>, PluginError> {
        Ok(self.api.claim(&claim.namespace, &claim.name).await?)
    }

    /// What a claim is allocated in the API ([`plan::units`]); none when it is gone, replaced or not allocated.
    pub(super) async fn holds(
        &self,
        claim: &Reference,
    ) -> Result<Option<BTreeSet<String>>, PluginError> {
        let Some(text) = self.text(claim).await? else { return Ok(None) };
        if Claim::uid_of_api(&claim.title(), text.as_bytes())? != claim.uid {
            return Ok(None);
        }
        let found = Claim::of_api(&claim.title(), text.as_bytes(), self.machine.pool().driver())?;
        Ok(found.allocation.is_some().then(|| wants(&found)))
    }
}

// === impl Obstacle ===

impl<E: Into<PluginError>> From<E> for Obstacle {
    fn from(error: E) -> Self {
        Self { error: error.into(), wants: BTreeSet::new() }
    }
}

fn wants(claim: &Claim) -> BTreeSet<String> {
    let results = claim.allocation.iter().flat_map(|allocation| &allocation.results);
    plan::units(results.map(|given| given.device.as_str()))
}
