//! An event says why a claim is not prepared, on the claim and on its pods. One that comes again is
//! counted, and no object gets many.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{Reference, status::Object};

/// The events of this node.
#[derive(Debug)]
pub(super) struct Events {
    driver: String,
    /// Who reports them.
    instance: String,
    /// By the UID of what they regard, and what they say.
    seen: BTreeMap<(String, String), Seen>,
    /// How many an object may still get, by UID.
    budgets: BTreeMap<String, Budget>,
}

/// An event that was sent.
#[derive(Debug)]
struct Seen {
    name: String,
    count: u32,
    last: Instant,
}

#[derive(Debug)]
struct Budget {
    left: u32,
    /// When it was full, or got one more.
    since: Instant,
}

/// An event that is to be sent now.
#[derive(Debug)]
pub(super) struct Next {
    pub(super) name: String,
    /// How often it came by now, where it is there already.
    pub(super) series: Option<Value>,
}

/// As client-go has them: after so long the same is another event; so many of one object at once, and
/// then one in so long.
const FINISH: Duration = Duration::from_secs(360);
const BURST: u32 = 25;
const REFILL: Duration = Duration::from_secs(300);

/// Limits of the API server, in bytes.
const MAX_NOTE: usize = 1024;
const MAX_INSTANCE: usize = 128;
const MAX_NAME: usize = 253;

/// How many pods of a claim get one.
const MAX_PODS: usize = 8;

/// What the events of a claim regard: itself, and the pods that wait for it.
pub(super) fn regarded(claim: &Reference, object: &Object) -> Vec<Value> {
    let of_claim = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "namespace": claim.namespace, "name": claim.name, "uid": claim.uid,
    });
    let of_pods = object.pods().take(MAX_PODS).map(|pod| {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "namespace": claim.namespace, "name": pod.name, "uid": pod.uid,
        })
    });
    std::iter::once(of_claim).chain(of_pods).collect()
}

// === impl Events ===

impl Events {
    /// Those of a driver on a node.
    pub(super) fn of(driver: &str, node: &str) -> Self {
        let instance = cut(&format!("{driver}-{node}"), MAX_INSTANCE).to_owned();
        Self {
            driver: driver.to_owned(),
            instance,
            seen: BTreeMap::new(),
            budgets: BTreeMap::new(),
        }
    }

    /// What is to be sent of one that is seen now, if anything.
    pub(super) fn next(&mut self, object: &Value, why: &str, now: Instant) -> Option<Next> {
        self.forget(now);
        let text =
            |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let uid = text("uid");
        let key = (uid.clone(), why.to_owned());
        if let Some(seen) = self.seen.get_mut(&key) {
            (seen.count, seen.last) = (seen.count.saturating_add(1), now);
        }
        let budget = self.budgets.entry(uid).or_insert(Budget { left: BURST, since: now });
        while budget.left < BURST && now.saturating_duration_since(budget.since) >= REFILL {
            (budget.left, budget.since) = (budget.left + 1, budget.since + REFILL);
        }
        if budget.left == BURST {
            budget.since = now;
        }
        budget.left = budget.left.checked_sub(1)?;
        if let Some(Seen { name, count, .. }) = self.seen.get(&key) {
            let series = json!({"series": {
                "count": count, "lastObservedTime": format!("{:.6}", Timestamp::now()),
            }});
            return Some(Next { name: name.clone(), series: Some(series) });
        }
        let suffix = format!(".{:x}", Timestamp::now().as_nanosecond());
        let name = cut(&text("name"), MAX_NAME - suffix.len()).to_owned() + &suffix;
        self.seen.insert(key, Seen { name: name.clone(), count: 1, last: now });
        Some(Next { name, series: None })
    }

    /// The whole event.
    pub(super) fn made(&self, next: &Next, namespace: &str, object: &Value, why: &str) -> Value {
        json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event",
            "metadata": {"namespace": namespace, "name": next.name},
            "eventTime": format!("{:.6}", Timestamp::now()),
            "reportingController": self.driver, "reportingInstance": self.instance,
            "type": "Warning", "action": "Prepare", "reason": "PrepareFailed",
            "regarding": object, "note": cut(why, MAX_NOTE),
        })
    }

    fn forget(&mut self, now: Instant) {
        self.seen.retain(|_, seen| now.saturating_duration_since(seen.last) < FINISH);
        let fills = |budget: &Budget| REFILL * (BURST - budget.left);
        self.budgets
            .retain(|_, budget| now.saturating_duration_since(budget.since) < fills(budget));
    }
}

/// As much of a text as has room.
pub(super) fn cut(text: &str, most: usize) -> &str {
    text.get(..text.floor_char_boundary(most)).unwrap_or(text)
}
