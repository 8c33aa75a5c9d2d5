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

/// What is known.
#[derive(Debug, Default)]
pub(super) struct State {
    /// By UID.
    pub(super) pods: BTreeMap<String, Tracked>,
    /// The cluster's claims that are prepared here, by UID.
    pub(super) claims: BTreeMap<String, ClaimRecord>,
    /// The API server told of all of them once; since then it tells of them as they come, but for
    /// interruptions.
    pub(super) is_listed: bool,
}

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
    /// It has devices of ours, and this UID; the pod is among those who may use it.
    Ours(String),
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
        let has = |tracked: &&Tracked| {
            tracked.known.values().any(|known| matches!(known, Known::Ours(uid) if uid == claim))
        };
        self.pods.values().filter(has).map(|tracked| tracked.pod.uid.clone()).collect()
    }

    /// Forgets that a pod has this claim: the next of its name may be another.
    pub(super) fn unlearn(&mut self, pod: &str, claim: &str) {
        if let Some(tracked) = self.pods.get_mut(pod) {
            tracked.known.retain(|_, known| !matches!(known, Known::Ours(uid) if uid == claim));
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
            Known::Ours(uid) => claims.contains_key(uid),
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

    /// What is to be done about a pod's record.
    pub(super) fn settled(&mut self, uid: &str, boot: &str) -> Settled {
        let Some(tracked) = self.pods.get_mut(uid) else { return Settled::Same };
        tracked.learn_from(&self.claims);
        let mut claims = BTreeMap::new();
        for name in &tracked.pod.claims {
            let known = name.as_ref().and_then(|name| Some((name, tracked.known.get(name)?)));
            let of = match known {
                Some((name, Known::Others)) => (name.as_str(), Of::Others),
                Some((name, Known::Ours(uid))) => match self.claims.get(uid) {
                    Some(record) => (name.as_str(), Of::Us(record)),
                    // Not prepared, or not any more.
                    None => return Settled::None,
                },
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

// === impl Tracked ===

impl Tracked {
    fn new(pod: Pod) -> Self {
        Self { pod, known: BTreeMap::new(), written: None, asked: 0, ask_at: None }
    }

    /// A prepared claim that is reserved for the pod by its UID needs no question.
    fn learn_from(&mut self, claims: &BTreeMap<String, ClaimRecord>) {
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
            if let Some(claim) = claims.values().find(is) {
                known.insert(name.clone(), Known::Ours(claim.uid.clone()));
            }
        }
    }

    /// The claims of which nothing is known, while that matters.
    fn unknown(&self) -> impl Iterator<Item = &String> {
        let unknown = |name: &&String| !self.pod.is_over && !self.known.contains_key(*name);
        self.pod.claims.iter().flatten().filter(unknown)
    }
}
