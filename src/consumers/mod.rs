//! The consumers of prepared claims are pods. The kubelet has a claim prepared for the first of them
//! alone, so what each pod's containers get is learned from the pods of this node themselves, and
//! written where the hook finds it: one record a pod ([`divvy_hook::record::PodRecord`]).
//!
//! A record is there once everything that the pod's claims have of ours is prepared, and not before:
//! until then the hook lets no container of it start.

mod index;
mod pod;
mod state;
mod watch;

use std::{
    collections::BTreeSet,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use divvy_hook::record::{ClaimRecord, Consumer, RunDir};
use tokio::sync::Notify;

use crate::{admin::tell, api::Api, claim::Claim, journal::Entry, plugin};
use pod::Pod;
use state::{Claims, State};

/// The pods of this node.
#[derive(Debug)]
pub struct Pods {
    api: Api,
    node: String,
    run: RunDir,
    boot: String,
    /// The drivers of this node.
    drivers: BTreeSet<String>,
    state: Mutex<State>,
    /// A pod has come.
    seen: Condvar,
    /// There is something to ask the API server for.
    asks: Notify,
    /// The claims' records may have changed.
    changes: Notify,
}

/// How long a claim that is prepared waits for the pod that it is for: the kubelet knew that pod
/// before, so it is on its way here too.
const ON_ITS_WAY: Duration = Duration::from_secs(1);

// === impl Pods ===

impl Pods {
    /// The pods of the node of this name, and the claims of these drivers. Nothing is asked before
    /// [`Self::run`].
    pub fn new(
        api: Api,
        node: String,
        drivers: BTreeSet<String>,
        run: RunDir,
        boot: String,
    ) -> Arc<Self> {
        let state = Mutex::new(State { drivers: drivers.clone(), ..State::default() });
        let (seen, asks, changes) = Default::default();
        Arc::new(Self { api, node, run, boot, drivers, state, seen, asks, changes })
    }

    /// Has the records of all claims looked at soon: a round may have made some anew.
    pub fn look_soon(&self) {
        self.changes.notify_one();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Whole at every moment, so no panic spoils it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in a pod as it is now. Blocks: it may write a record.
    fn apply(&self, pod: Pod) {
        let mut state = self.state();
        let uid = pod.uid.clone();
        state.apply(pod);
        self.settle(&mut state, &uid);
        self.seen.notify_all();
    }

    /// Forgets a pod that is not on this node any more.
    fn delete(&self, uid: &str) {
        let mut state = self.state();
        state.pods.remove(uid);
        self.remove(&mut state, uid);
    }

    /// Everything there is: pods that are not in this list are gone, and so are their records.
    fn list(&self, pods: Vec<Pod>) {
        let mut state = self.state();
        self.read_claims(&mut state);
        let gone = state.replace(pods);
        for uid in gone.into_iter().chain(self.strays(&state)) {
            self.remove(&mut state, &uid);
        }
        let all: Vec<String> = state.pods.keys().cloned().collect();
        all.iter().for_each(|uid| self.settle(&mut state, uid));
        state.is_listed = true;
        self.seen.notify_all();
    }

    /// Looks at all records again: a round may have brought back a claim with other files.
    fn refresh(&self) {
        let mut state = self.state();
        if !state.is_listed {
            return;
        }
        self.read_claims(&mut state);
        let all: Vec<String> = state.pods.keys().cloned().collect();
        for uid in &all {
            // A bad one is written anew.
            let there = self.run.pod(uid).ok().flatten();
            if !state.found(uid, there) {
                self.remove(&mut state, uid);
            }
            self.settle(&mut state, uid);
        }
    }

    /// The records of the cluster's claims, as they are.
    fn read_claims(&self, state: &mut State) {
        let mut all = Claims::new();
        for driver in &state.drivers {
            match self.run.of_driver(driver).claims() {
                Ok(claims) => {
                    let good = claims.into_iter().filter_map(|(_, claim)| claim.ok());
                    for record in good.filter_map(|claim| self.kept(claim)) {
                        all.entry(record.uid.clone()).or_default().insert(driver.clone(), record);
                    }
                }
                Err(error) => return say(&error),
            }
        }
        state.claims = all;
    }

    /// What is kept of a claim's record, if it is of the cluster and of this boot.
    fn kept(&self, claim: ClaimRecord) -> Option<ClaimRecord> {
        let of_cluster = matches!(claim.origin, divvy_hook::record::Origin::Api);
        let kept = of_cluster && claim.boot == self.boot;
        kept.then_some(ClaimRecord { stamp: None, ..claim })
    }

    /// The records of pods that are not here.
    fn strays(&self, state: &State) -> Vec<String> {
        match self.run.pods() {
            Ok(uids) => uids.into_iter().filter(|uid| !state.pods.contains_key(uid)).collect(),
            Err(error) => {
                say(&error);
                Vec::new()
            }
        }
    }

    /// Writes the record of a pod as soon as everything that it needs is known.
    fn settle(&self, state: &mut State, uid: &str) {
        // While the driver is updated there are two of it, and the other may have prepared the claim.
        for (claim, driver) in state.missing(uid) {
            let record = self.run.of_driver(&driver).claim(&claim).ok().flatten();
            if let Some(record) = record.and_then(|record| self.kept(record)) {
                state.claims.entry(claim).or_default().insert(driver, record);
            }
        }
        match state.settled(uid, &self.boot) {
            state::Settled::Unknown => self.asks.notify_one(),
            state::Settled::Same => {}
            state::Settled::None => self.remove(state, uid),
            state::Settled::Record(record) => match self.run.write_pod(&record) {
                Ok(()) => state.wrote(record),
                Err(error) => say(&error),
            },
        }
    }

    /// Takes a pod's record away, so that the same one is written again when it is due.
    fn remove(&self, state: &mut State, uid: &str) {
        state.removed(uid);
        if let Err(error) = self.run.remove_pod(uid) {
            say(&error);
        }
    }

    /// Waits a little for one of these pods, so that its record is there when the kubelet goes on.
    fn wait_for<'a>(
        &self,
        mut state: MutexGuard<'a, State>,
        consumers: &[Consumer],
    ) -> MutexGuard<'a, State> {
        let pods = || consumers.iter().filter(|consumer| consumer.kind == "Pod");
        if !state.is_listed || pods().next().is_none() {
            return state;
        }
        let missing = |state: &mut State| {
            state.is_listed && !pods().any(|consumer| state.pods.contains_key(&consumer.uid))
        };
        let waited = self.seen.wait_timeout_while(state, ON_ITS_WAY, missing);
        state = waited.map_or_else(|poisoned| poisoned.into_inner().0, |(state, _)| state);
        state
    }
}

impl plugin::Consumers for Pods {
    fn prepared(&self, claim: &Claim, entry: &Entry) {
        let record = match entry.run().claim(&entry.uid) {
            Ok(record) => record,
            Err(error) => return say(&error),
        };
        let mut state = self.wait_for(self.state(), &claim.consumers);
        if let Some(record) = record.and_then(|record| self.kept(record)) {
            let records = state.claims.entry(entry.uid.clone()).or_default();
            records.insert(entry.driver.clone(), record);
        }
        state.learn_of(claim);
        let of_claim = state.pods_of(&claim.namespace, &claim.name);
        of_claim.iter().for_each(|uid| self.settle(&mut state, uid));
    }

    fn unprepared(&self, driver: &str, claim: &str) {
        let mut state = self.state();
        if let Some(records) = state.claims.get_mut(claim) {
            records.remove(driver);
        }
        state.claims.retain(|_, records| !records.is_empty());
        for uid in state.pods_with(claim) {
            state.unlearn(&uid, claim);
            self.remove(&mut state, &uid);
        }
    }
}

fn say(error: &dyn std::error::Error) {
    tell(&format!("pod records: {}\n", divvy_cdi::problem::chain(error)));
}

#[cfg(test)]
mod tests;
