//! The state is what is known of the node's pods and their claims.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use divvy_hook::record::{ClaimRecord, PodRecord};

use super::{
    index::{self, Of},
    pod::Pod,
};
use crate::claim::Claim;

/// What is known.
#[derive(Debug, Default)]
pub(super) struct State {
    /// The drivers of this node.
    pub(super) drivers: BTreeSet<String>,
    /// By UID.
    pub(super) pods: BTreeMap<String, Tracked>,
    /// The cluster's claims that are prepared here.
    pub(super) claims: Claims,
    /// The API server told of all of them once; since then it tells of them as they come, but for
    /// interruptions.
    pub(super) is_listed: bool,
}

/// Claims by UID, each with the record of every driver that has prepared its part of it.
pub(super) type Claims = BTreeMap<String, BTreeMap<String, ClaimRecord>>;

/// A pod, and what is known of its claims.
#[derive(Debug)]
pub(super) struct Tracked {
    pod: Pod,
    /// By their names.
    known: BTreeMap<String, Known>,
    /// The record as it was written last.
    written: Option<PodRecord>,
    /// How often the API server was asked for what is not known, and when it is next.
    asked: u32,
    ask_at: Option<Instant>,
}

/// What is known of a claim of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Known {
    /// It has devices of ours; the pod is among those who may use it.
    Ours {
        /// Its UID.
        uid: String,
        /// The drivers of ours that it has them of.
        drivers: BTreeSet<String>,
    },
    /// It has none of ours.
    Others,
}

/// What is to be done about a pod's record.
#[derive(Debug)]
pub(super) enum Settled {
    /// Something is not known yet, or not prepared.
    Unknown,
    /// It is as it should be.
    Same,
    /// There should be none.
    None,
    /// It should be this.
    Record(PodRecord),
}

/// The first time that something is asked for again, doubled each time, and the longest.
const ASK_AGAIN: Duration = Duration::from_secs(1);
const ASK_AT_MOST: u32 = 5;

// === impl State ===

impl State {
    /// A pod as it is now. What was known of its claims stays: their names do not change.
    pub(super) fn apply(&mut self, pod: Pod) {
        match self.pods.get_mut(&pod.uid) {
            Some(tracked) => tracked.pod = pod,
            None => {
                let tracked = Tracked::new(pod);
                self.pods.insert(tracked.pod.uid.clone(), tracked);
            }
        }
    }

    /// All pods that there are; the UIDs of those that are gone.
    pub(super) fn replace(&mut self, pods: Vec<Pod>) -> Vec<String> {
        let there: BTreeSet<String> = pods.iter().map(|pod| pod.uid.clone()).collect();
        let gone: Vec<String> =
            self.pods.keys().filter(|uid| !there.contains(*uid)).cloned().collect();
        gone.iter().for_each(|uid| drop(self.pods.remove(uid)));
        pods.into_iter().for_each(|pod| self.apply(pod));
        gone
    }

    /// The UIDs of the pods that name this claim.
    pub(super) fn pods_of(&self, namespace: &str, claim: &str) -> Vec<String> {
        let names = |tracked: &&Tracked| {
            let pod = &tracked.pod;
            pod.namespace == namespace && pod.claims.iter().flatten().any(|name| name == claim)
        };
        self.pods.values().filter(names).map(|tracked| tracked.pod.uid.clone()).collect()
    }

    /// The UIDs of the pods that have the claim of this UID.
    pub(super) fn pods_with(&self, claim: &str) -> Vec<String> {
        let has = |tracked: &&Tracked| tracked.known.values().any(|known| known.is(claim));
        self.pods.values().filter(has).map(|tracked| tracked.pod.uid.clone()).collect()
    }

    /// Forgets that a pod has this claim: the next of its name may be another.
    pub(super) fn unlearn(&mut self, pod: &str, claim: &str) {
        if let Some(tracked) = self.pods.get_mut(pod) {
            tracked.known.retain(|_, known| !known.is(claim));
        }
    }

    /// Takes in what is there of a pod's record, whoever wrote it. False where the pod has a claim
    /// that is not prepared any more: the next of its name may be another.
    pub(super) fn found(&mut self, pod: &str, record: Option<PodRecord>) -> bool {
        let Self { pods, claims, .. } = self;
        let Some(tracked) = pods.get_mut(pod) else { return true };
        tracked.written = record;
        let before = tracked.known.len();
        tracked.known.retain(|_, known| match known {
            Known::Ours { uid, drivers } => all_of(claims, uid, drivers).is_some(),
            Known::Others => true,
        });
        tracked.known.len() == before
    }

    /// The record of its pod is there.
    pub(super) fn wrote(&mut self, record: PodRecord) {
        if let Some(tracked) = self.pods.get_mut(&record.uid) {
            tracked.written = Some(record);
        }
    }

    /// The record of a pod is not there any more.
    pub(super) fn removed(&mut self, pod: &str) {
        if let Some(tracked) = self.pods.get_mut(pod) {
            tracked.written = None;
        }
    }

    /// What the API server said of a claim of a pod. False when the pod is gone meanwhile.
    pub(super) fn learn(&mut self, pod: &str, claim: &str, known: Known) -> bool {
        let Some(tracked) = self.pods.get_mut(pod) else { return false };
        tracked.known.insert(claim.to_owned(), known);
        true
    }

    /// What a claim that is prepared is to the pods that may use it.
    pub(super) fn learn_of(&mut self, claim: &Claim) {
        let Some(allocation) = &claim.allocation else { return };
        let drivers: BTreeSet<String> =
            allocation.drivers.intersection(&self.drivers).cloned().collect();
        for pod in claim.consumers.iter().filter(|consumer| consumer.kind == "Pod") {
            let known = Known::Ours { uid: claim.uid.clone(), drivers: drivers.clone() };
            self.learn(&pod.uid, &claim.name, known);
        }
    }

    /// The claims of a pod of which a driver's record is not known, as (claim, driver).
    pub(super) fn missing(&self, pod: &str) -> Vec<(String, String)> {
        let known = self.pods.get(pod).into_iter().flat_map(|tracked| tracked.known.values());
        let missing = known.filter_map(|known| match known {
            Known::Ours { uid, drivers } => Some((uid, drivers)),
            Known::Others => None,
        });
        let missing = missing.flat_map(|(uid, drivers)| {
            let there = self.claims.get(uid);
            let is_there =
                move |driver: &&String| there.is_some_and(|all| all.contains_key(*driver));
            drivers.iter().filter(move |driver| !is_there(driver)).map(move |driver| (uid, driver))
        });
        missing.map(|(uid, driver)| (uid.clone(), driver.clone())).collect()
    }

    /// What is to be done about a pod's record.
    pub(super) fn settled(&mut self, uid: &str, boot: &str) -> Settled {
        let Some(tracked) = self.pods.get_mut(uid) else { return Settled::Same };
        // What another driver is yet to prepare, a record does not tell.
        if let (1, Some(driver)) = (self.drivers.len(), self.drivers.first()) {
            tracked.learn_from(&self.claims, driver);
        }
        let mut claims = BTreeMap::new();
        for name in &tracked.pod.claims {
            let known = name.as_ref().and_then(|name| Some((name, tracked.known.get(name)?)));
            let of = match known {
                Some((name, Known::Others)) => (name.as_str(), Of::Others),
                Some((name, Known::Ours { uid, drivers })) => {
                    match all_of(&self.claims, uid, drivers) {
                        Some(records) => (name.as_str(), Of::Us(records)),
                        // Not prepared, or not any more.
                        None => return Settled::None,
                    }
                }
                None => return Settled::Unknown,
            };
            claims.insert(of.0, of.1);
        }
        match index::record(&tracked.pod, boot, &claims) {
            None => Settled::None,
            Some(record) if tracked.written.as_ref() == Some(&record) => Settled::Same,
            Some(record) => Settled::Record(record),
        }
    }

    /// The claims to ask the API server for now, as (pod, namespace, claim), and when there is more.
    pub(super) fn unknown(
        &mut self,
        now: Instant,
    ) -> (Vec<(String, String, String)>, Option<Instant>) {
        let (mut asks, mut next) = (Vec::new(), None::<Instant>);
        for (uid, tracked) in &mut self.pods {
            let unknown: Vec<String> = tracked.unknown().cloned().collect();
            if unknown.is_empty() {
                (tracked.asked, tracked.ask_at) = (0, None);
                continue;
            }
            let at = *tracked.ask_at.get_or_insert(now);
            if at <= now {
                let wait = ASK_AGAIN.saturating_mul(1 << tracked.asked.min(ASK_AT_MOST));
                tracked.asked = tracked.asked.saturating_add(1);
                tracked.ask_at = Some(now + wait);
                let namespace = &tracked.pod.namespace;
                asks.extend(unknown.into_iter().map(|name| (uid.clone(), namespace.clone(), name)));
            }
            next = next.into_iter().chain(tracked.ask_at).min();
        }
        (asks, next)
    }
}

/// The records of a claim, once these drivers have prepared it.
fn all_of<'a>(
    claims: &'a Claims,
    uid: &str,
    drivers: &BTreeSet<String>,
) -> Option<&'a BTreeMap<String, ClaimRecord>> {
    let records = claims.get(uid)?;
    drivers.iter().all(|driver| records.contains_key(driver)).then_some(records)
}

// === impl Known ===

impl Known {
    fn is(&self, claim: &str) -> bool {
        matches!(self, Self::Ours { uid, .. } if uid == claim)
    }
}

// === impl Tracked ===

impl Tracked {
    fn new(pod: Pod) -> Self {
        Self { pod, known: BTreeMap::new(), written: None, asked: 0, ask_at: None }
    }

    /// A prepared claim that is reserved for the pod by its UID needs no question.
    fn learn_from(&mut self, claims: &Claims, driver: &str) {
        let Self { pod: Pod { uid, namespace, claims: names, .. }, known, .. } = self;
        for name in names.iter().flatten() {
            if known.contains_key(name) {
                continue;
            }
            let is = |claim: &&ClaimRecord| {
                claim.namespace == *namespace
                    && claim.name == *name
                    && claim.consumers.iter().any(|consumer| consumer.uid == *uid)
            };
            let mut records = claims.values().filter_map(|records| records.get(driver));
            if let Some(claim) = records.find(is) {
                let (uid, drivers) = (claim.uid.clone(), [driver.to_owned()].into());
                known.insert(name.clone(), Known::Ours { uid, drivers });
            }
        }
    }

    /// The claims of which nothing is known, while that matters.
    fn unknown(&self) -> impl Iterator<Item = &String> {
        let unknown = |name: &&String| !self.pod.is_over && !self.known.contains_key(*name);
        self.pod.claims.iter().flatten().filter(unknown)
    }
}
