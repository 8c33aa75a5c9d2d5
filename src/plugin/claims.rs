//! Claims as the kubelet has them prepared and ended. Each is in one hand at a time, and what was begun for it is
//! finished, whoever still waits for it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use tokio::{
    sync::watch,
    task::{JoinHandle, spawn_blocking},
    time::Instant,
};
use tracing::{Instrument, Span};

use super::{
    Machine, Metrics, PluginError, attempt::Attempt, given::Given, metrics::Operation,
    report::Reports,
};
use crate::{
    api::Api,
    claim::{Claim, is_uid, wrong_with},
    journal::{Call, Entry, Part, Spent},
};

/// The claims of this node. Clones are the same.
#[derive(Debug, Clone)]
pub struct Claims(pub(super) Arc<Shared>);

/// What all calls share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) machine: Arc<Machine>,
    pub(super) api: Api,
    pub(super) consumers: Arc<dyn Consumers>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) reports: Reports,
    hands: Mutex<BTreeMap<String, Weak<Hand>>>,
    /// How many claims were ended: changes when something has become free.
    pub(super) freed: watch::Sender<u64>,
    pub(super) ending: watch::Receiver<bool>,
}

/// Told of claims as they come and go; both may block, as they are called where that is allowed.
pub trait Consumers: std::fmt::Debug + Send + Sync {
    /// It is prepared, now or since earlier.
    fn prepared(&self, claim: &Claim, entry: &Entry);
    /// Nothing of this driver's part of it is left.
    fn unprepared(&self, driver: &str, uid: &str);
}

/// Nobody is told.
#[cfg(test)]
#[derive(Debug)]
pub(super) struct Nobody;

/// A claim as the kubelet names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
}

/// What became of a claim.
pub(super) type Outcome = Result<Vec<Given>, Arc<PluginError>>;

/// What became of the end of a claim.
pub(super) type Ended = Result<(), Arc<PluginError>>;

/// A claim that somebody is at.
#[derive(Debug, Default)]
pub(super) struct Hand {
    /// Whose turn it is to change something for it.
    pub(super) turn: tokio::sync::Mutex<()>,
    running: Mutex<Option<Running>>,
    /// What becomes of the end of it that is on its way.
    ending: Mutex<Option<watch::Receiver<Option<Ended>>>>,
}

/// An attempt to prepare it that is on its way.
#[derive(Debug)]
struct Running {
    cancelled: watch::Sender<bool>,
    outcome: watch::Receiver<Option<Outcome>>,
}

/// How long the kubelet's call is used to wait for what passes by itself; it waits for 45 s, and comes again only
/// a minute later.
const PATIENCE: Duration = Duration::from_secs(if cfg!(test) { 5 } else { 30 });

/// How long something may still be used that is to be ended.
const IN_USE: Duration = Duration::from_secs(10);
const AGAIN: Duration = Duration::from_millis(250);

// === impl Claims ===

impl Claims {
    /// The claims of a machine, as this API server has them. Attempts end when `ending` is true.
    pub(super) fn new(
        machine: Arc<Machine>,
        api: Api,
        consumers: Arc<dyn Consumers>,
        (reports, metrics): (Reports, Arc<Metrics>),
        ending: watch::Receiver<bool>,
    ) -> Self {
        let (hands, freed) = Default::default();
        let shared = Shared { machine, api, consumers, metrics, reports, hands, freed, ending };
        Self(Arc::new(shared))
    }

    /// Prepares a claim, or waits for the attempt that is on its way.
    ///
    /// # Errors
    /// After some patience with what passes by itself.
    pub async fn prepare(&self, claim: &Reference) -> Outcome {
        claim.check()?;
        let mut outcome = self.begin(claim);
        let title = claim.title();
        match outcome.wait_for(Option::is_some).await.map(|outcome| outcome.clone()) {
            Ok(Some(outcome)) => outcome,
            _ => Err(Arc::new(PluginError::Panicked { claim: title, panic: String::new() })),
        }
    }

    fn begin(&self, claim: &Reference) -> watch::Receiver<Option<Outcome>> {
        let hand = self.0.hand(&claim.uid);
        let mut running = lock(&hand.running);
        if let Some(running) = running.as_ref() {
            return running.outcome.clone();
        }
        let (done, outcome) = watch::channel(None);
        let (cancelled, cancels) = watch::channel(false);
        *running = Some(Running { cancelled, outcome: outcome.clone() });
        drop(running);
        let (shared, claim) = (Arc::clone(&self.0), claim.clone());
        let Reference { namespace, name, uid } = &claim;
        let span = tracing::info_span!("prepare", namespace, claim = name, uid);
        // Its own task: it is finished whether or not the kubelet still waits.
        let work = async move {
            let (begun, title) = (Instant::now(), claim.title());
            let (metrics, until) = (Arc::clone(&shared.metrics), begun + PATIENCE);
            let spent: Arc<Spent> = Arc::default();
            let attempt = Attempt {
                shared,
                claim,
                hand: Arc::clone(&hand),
                cancels,
                until,
                denied: None,
                text: None,
                spent: Arc::clone(&spent),
            };
            let outcome = tokio::spawn(attempt.run().in_current_span()).await;
            let outcome = outcome.unwrap_or_else(|panic| Err(PluginError::panicked(title, panic)));
            let took = begun.elapsed();
            metrics.took(Operation::Prepare, took, &spent);
            match &outcome {
                Ok(given) => {
                    tracing::info!(devices = given.len(), seconds = took.as_secs_f64(), "prepared");
                }
                Err(error) => {
                    metrics.failed(Operation::Prepare.name(), error.code());
                    let seconds = took.as_secs_f64();
                    tracing::error!(code = error.code(), seconds, "not prepared: {}", error.line());
                }
            }
            let outcome = outcome.map_err(Arc::new);
            let mut running = lock(&hand.running);
            // One that was cancelled is not this one any more.
            if running.as_ref().is_some_and(|one| one.outcome.same_channel(&done.subscribe())) {
                *running = None;
            }
            done.send_replace(Some(outcome));
        };
        tokio::spawn(work.instrument(span));
        outcome
    }

    /// Ends a claim, and the attempt to prepare it that may be on its way. One that is not prepared is ended.
    ///
    /// # Errors
    /// Something of it is left, and its entry, so that it can be tried again.
    pub async fn unprepare(&self, uid: &str) -> Ended {
        if !is_uid(uid) {
            // Nothing was ever prepared under it.
            return Ok(());
        }
        let mut ended = self.begin_end(uid);
        match ended.wait_for(Option::is_some).await.map(|ended| ended.clone()) {
            Ok(Some(ended)) => ended,
            _ => Err(PluginError::Panicked { claim: uid.to_owned(), panic: String::new() }.into()),
        }
    }

    /// Begins to end a claim, or joins who does.
    fn begin_end(&self, uid: &str) -> watch::Receiver<Option<Ended>> {
        let hand = self.0.hand(uid);
        let mut ending = lock(&hand.ending);
        // Before the turn of the end that is on its way is over: it finds the attempt cancelled.
        if let Some(running) = lock(&hand.running).take() {
            running.cancelled.send_replace(true);
        }
        if let Some(ended) = ending.as_ref() {
            return ended.clone();
        }
        let (done, ended) = watch::channel(None);
        *ending = Some(ended.clone());
        drop(ending);
        let span = tracing::info_span!("unprepare", uid);
        let (shared, uid) = (Arc::clone(&self.0), uid.to_owned());
        let work = async move {
            let (begun, metrics) = (Instant::now(), Arc::clone(&shared.metrics));
            let (until, spent) = (begun + PATIENCE, Arc::<Spent>::default());
            let turn = tokio::time::timeout_at(until, hand.turn.lock());
            let turn = spent.during(Part::Lock, turn).await;
            let ended = match &turn {
                Ok(_) => {
                    let (of, spent) = (uid.clone(), Arc::clone(&spent));
                    let end = async move { shared.end(&of, until, &spent).await };
                    let ended = tokio::spawn(end.in_current_span()).await;
                    ended.unwrap_or_else(|panic| Err(PluginError::panicked(uid.clone(), panic)))
                }
                Err(_) => Err(PluginError::InHand { claim: uid.clone(), doing: "prepared" }),
            };
            let took = begun.elapsed();
            metrics.took(Operation::Unprepare, took, &spent);
            let seconds = took.as_secs_f64();
            match &ended {
                Ok(()) => tracing::info!(seconds, "unprepared"),
                Err(error) => {
                    metrics.failed(Operation::Unprepare.name(), error.code());
                    tracing::error!(code = error.code(), seconds, "not ended: {}", error.line());
                }
            }
            // Whoever comes from here on begins anew; until the turn is over, nobody prepares it.
            lock(&hand.ending).take();
            drop(turn);
            done.send_replace(Some(ended.map_err(Arc::new)));
        };
        tokio::spawn(work.instrument(span));
        ended
    }

    /// Waits until every attempt that is on its way has ended, and every end, but not without end;
    /// the UIDs of those that have not.
    pub(super) async fn finish(&self, until: Instant) -> Vec<String> {
        let hands: Vec<_> = self.0.hands().iter().filter_map(of_use).collect();
        let mut late = Vec::new();
        for (uid, hand) in hands {
            let outcome = lock(&hand.running).as_ref().map(|running| running.outcome.clone());
            let over = async {
                if let Some(mut outcome) = outcome {
                    // It panicked.
                    let _ended = outcome.wait_for(Option::is_some).await;
                }
                let _turn = hand.turn.lock().await;
            };
            if tokio::time::timeout_at(until, over).await.is_err() {
                late.push(uid);
            }
        }
        late
    }
}

/// One that somebody is at.
fn of_use((uid, hand): (&String, &Weak<Hand>)) -> Option<(String, Arc<Hand>)> {
    Some((uid.clone(), hand.upgrade()?))
}

// === impl Shared ===

impl Shared {
    fn hands(&self) -> MutexGuard<'_, BTreeMap<String, Weak<Hand>>> {
        lock(&self.hands)
    }

    fn hand(&self, uid: &str) -> Arc<Hand> {
        let mut hands = self.hands();
        if let Some(hand) = hands.get(uid).and_then(Weak::upgrade) {
            return hand;
        }
        hands.retain(|_, hand| hand.strong_count() > 0);
        let hand = Arc::default();
        hands.insert(uid.to_owned(), Arc::downgrade(&hand));
        hand
    }

    /// True while a call is at this claim.
    pub(super) fn is_in_hand(&self, uid: &str) -> bool {
        self.hands().get(uid).is_some_and(|hand| hand.strong_count() > 0)
    }

    /// Ends a claim whose turn it is. Whoever else is at its GPUs is waited for until then.
    async fn end(
        self: &Arc<Self>,
        uid: &str,
        until: Instant,
        spent: &Arc<Spent>,
    ) -> Result<(), PluginError> {
        let used_until = Instant::now() + IN_USE;
        loop {
            let (shared, of) = (Arc::clone(self), uid.to_owned());
            let spent_on = Arc::clone(spent);
            let ended = spawn_in_span(move || {
                let call = Call { until: Some(until.into_std()), spent: Some(&spent_on) };
                let ended = shared.machine.unprepare(&of, call)?;
                shared.consumers.unprepared(shared.machine.pool().driver(), &of);
                Ok::<_, PluginError>(ended)
            });
            match ended.await.unwrap_or_else(|e| Err(PluginError::panicked(uid.to_owned(), e))) {
                Ok(ended) => {
                    if ended {
                        self.freed.send_modify(|count| *count += 1);
                    }
                    return Ok(());
                }
                // The last process of a container is on its way out.
                Err(error) if error.code() == "GPU-IN-USE" && Instant::now() < used_until => {
                    spent.during(Part::Wait, tokio::time::sleep(AGAIN)).await;
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// Does work that blocks, as part of what is being done here.
pub(super) fn spawn_in_span<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    let span = Span::current();
    spawn_blocking(move || span.in_scope(work))
}

// === impl Reference ===

impl Reference {
    /// `namespace/name`
    pub fn title(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// They become parts of paths.
    fn check(&self) -> Result<(), Arc<PluginError>> {
        let named = |name: &str| wrong_with(name).is_none();
        if named(&self.namespace) && named(&self.name) && is_uid(&self.uid) {
            return Ok(());
        }
        let Self { namespace, name, uid } = self.clone();
        Err(Arc::new(PluginError::Reference { namespace, name, uid }))
    }
}

// === impl Nobody ===

#[cfg(test)]
impl Consumers for Nobody {
    fn prepared(&self, _: &Claim, _: &Entry) {}
    fn unprepared(&self, _: &str, _: &str) {}
}

/// A lock that no panic spoils: what it guards is whole at every moment.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
