//! The limits of Kubernetes for slices, held before anything is sent: the API server refuses a whole
//! slice for one value, and does not see at all what is wrong between two of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use super::{
    Attribute, Capacity, Consumption, CounterSet, Device, RequestPolicy, Slice, Taint, Valid,
    build::{MAX_DEVICES, MAX_LINKED_DEVICES, MAX_SETS},
    describe::MAX_TEXT,
};
use crate::quantity::Quantity;

/// What Kubernetes would refuse.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{of}: {field}: {found}; Kubernetes takes {limit}")]
pub struct LimitError {
    /// The device or counter set; the pool.
    of: String,
    /// Which of its fields.
    field: String,
    /// What it holds.
    found: String,
    /// What it may hold.
    limit: String,
}

const MAX_NAME: usize = 63;
const MAX_POOL: usize = 253;
const MAX_ID: usize = 32;
const MAX_VALUES: usize = 32;
const MAX_COUNTERS: usize = 32;
const MAX_CONSUMED_SETS: usize = 2;
const MAX_TAINTS: usize = 16;
const MAX_VALID_VALUES: usize = 10;

/// Finds what Kubernetes 1.35 and later would refuse of a pool's slices. (kubernetes-dra.md 2.7)
///
/// # Errors
/// The first that is found: the device, its field, and the limit.
pub fn check(pool: &str, slices: &[Slice]) -> Result<(), LimitError> {
    let parts = pool.split('/').all(is_subdomain);
    expect(parts && pool.len() <= MAX_POOL, "the pool", "name", &pool, || {
        format!("DNS subdomains joined by /, {MAX_POOL} bytes at most")
    })?;
    let mut sets: BTreeMap<&str, &CounterSet> = BTreeMap::new();
    let mut names = BTreeSet::new();
    for slice in slices {
        match slice {
            Slice::SharedCounters(of) => {
                at_most(MAX_SETS, of.len(), "the pool", "sharedCounters")?;
                for set in of {
                    counter_set(set)?;
                    let twice = sets.insert(&set.name, set).is_some();
                    expect(!twice, &set.name, "name", &"twice", || "a name once".to_owned())?;
                }
            }
            Slice::Devices(of) => {
                let linked = |device: &Device| {
                    !device.consumes_counters.is_empty() || !device.taints.is_empty()
                };
                let most = if of.iter().any(linked) { MAX_LINKED_DEVICES } else { MAX_DEVICES };
                at_most(most, of.len(), "the pool", "devices")?;
            }
        }
    }
    for device in slices.iter().flat_map(Slice::devices) {
        let twice = !names.insert(device.name.as_str());
        expect(!twice, &device.name, "name", &"twice", || "a name once".to_owned())?;
        check_device(device, &sets)?;
    }
    Ok(())
}

fn counter_set(set: &CounterSet) -> Result<(), LimitError> {
    expect(is_label(&set.name), &set.name, "name", &set.name, label)?;
    at_most(MAX_COUNTERS, set.counters.len(), &set.name, "counters")?;
    expect(!set.counters.is_empty(), &set.name, "counters", &"none", || "at least 1".to_owned())?;
    for name in set.counters.keys() {
        expect(is_label(name), &set.name, "counters", name, label)?;
    }
    Ok(())
}

fn check_device(device: &Device, sets: &BTreeMap<&str, &CounterSet>) -> Result<(), LimitError> {
    let of = device.name.as_str();
    expect(is_label(of), of, "name", &of, label)?;
    let count = device.attributes.len().saturating_add(device.capacity.len());
    at_most(MAX_VALUES, count, of, "attributes and capacity")?;
    for (name, value) in &device.attributes {
        let field = format!("attributes[{name:?}]");
        identifier(of, &field, name)?;
        let size = match value {
            Attribute::String(text) => text.len(),
            Attribute::Version(version) => version.to_string().len(),
            Attribute::Int(_) | Attribute::Bool(_) => 0,
        };
        expect(size <= MAX_TEXT, of, &field, value, || format!("{MAX_TEXT} bytes at most"))?;
    }
    for (name, capacity) in &device.capacity {
        let field = format!("capacity[{name:?}]");
        identifier(of, &field, name)?;
        if let Some(policy) = &capacity.request_policy {
            let shared = device.allow_multiple_allocations;
            let only = || "it with allowMultipleAllocations only".to_owned();
            expect(shared, of, &format!("{field}.requestPolicy"), &"there", only)?;
            check_policy(of, &format!("{field}.requestPolicy"), capacity, policy)?;
        }
    }
    at_most(MAX_CONSUMED_SETS, device.consumes_counters.len(), of, "consumesCounters")?;
    for consumption in &device.consumes_counters {
        consumed(of, consumption, sets)?;
    }
    at_most(MAX_TAINTS, device.taints.len(), of, "taints")?;
    device.taints.iter().try_for_each(|taint| check_taint(of, taint))
}

fn consumed(
    of: &str,
    consumption: &Consumption,
    sets: &BTreeMap<&str, &CounterSet>,
) -> Result<(), LimitError> {
    let Consumption { counter_set, counters } = consumption;
    let field = format!("consumesCounters[{counter_set:?}]");
    let set = sets.get(counter_set.as_str());
    expect(set.is_some(), of, &field, &"no such set", || "a set of the pool".to_owned())?;
    at_most(MAX_COUNTERS, counters.len(), of, &field)?;
    expect(!counters.is_empty(), of, &field, &"no counter", || "at least 1".to_owned())?;
    for name in counters.keys() {
        let known = set.is_some_and(|set| set.counters.contains_key(name));
        expect(known, of, &field, name, || "a counter of the set".to_owned())?;
    }
    Ok(())
}

fn check_policy(
    of: &str,
    field: &str,
    capacity: &Capacity,
    policy: &RequestPolicy,
) -> Result<(), LimitError> {
    let RequestPolicy { default, valid } = policy;
    let holds = |ok: bool, found: &dyn fmt::Display, limit: &str| {
        expect(ok, of, field, found, || limit.to_owned())
    };
    match valid {
        Valid::ValidValues(values) => {
            at_most(MAX_VALID_VALUES, values.len(), of, field)?;
            holds(values.is_sorted_by(|a, b| a < b), &"values", "them rising")?;
            let last = values.last().is_some_and(|last| *last <= capacity.value);
            holds(last, &"validValues", "values up to the capacity")?;
            holds(values.contains(default), default, "a default among the values")
        }
        Valid::ValidRange { min, max, step } => {
            let most = max.unwrap_or(capacity.value);
            holds(most <= capacity.value, &most, "at most the capacity")?;
            holds(min <= default && *default <= most, default, "a default in the range")?;
            let Some(step) = step else { return Ok(()) };
            holds(step.sign() > 0, step, "a step above 0")?;
            let on_grid = |value: Quantity| min.step_up(*step, value) == value;
            holds(on_grid(*default), default, "a default on the steps")?;
            holds(max.is_none_or(on_grid), &most, "a most on the steps")?;
            holds(min.plus(*step) <= capacity.value, step, "at least one step")
        }
    }
}

fn check_taint(of: &str, taint: &Taint) -> Result<(), LimitError> {
    let Taint { key, value, .. } = taint;
    let name = match key.split_once('/') {
        Some((domain, name)) => is_subdomain(domain).then_some(name),
        None => Some(key.as_str()),
    };
    let is_key = name.is_some_and(|name| !name.is_empty() && is_label_value(name));
    expect(is_key, of, "taints", key, || "a label's name as key".to_owned())?;
    expect(is_label_value(value), of, "taints", value, || "a label's value".to_owned())
}

/// The name of an attribute or capacity: a C identifier, with a domain or without.
fn identifier(of: &str, field: &str, name: &str) -> Result<(), LimitError> {
    let (domain, id) = name.split_once('/').unwrap_or(("a", name));
    let letters = |b: u8| b == b'_' || b.is_ascii_alphanumeric();
    let is_id = id.bytes().all(letters) && !id.starts_with(|c: char| c.is_ascii_digit());
    let fits = !id.is_empty() && id.len() <= MAX_ID && is_id;
    let fits = fits && is_subdomain(domain) && domain.len() <= MAX_NAME;
    expect(fits, of, field, &name, || {
        format!("a C identifier of {MAX_ID} bytes at most, behind a domain or none")
    })
}

/// True for what may stand behind a label, and, not empty, for its name.
pub(super) fn is_label_value(text: &str) -> bool {
    let edge = |c: Option<char>| c.is_none_or(|c| c.is_ascii_alphanumeric());
    let inner = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    text.len() <= MAX_NAME
        && text.bytes().all(inner)
        && edge(text.chars().next())
        && edge(text.chars().next_back())
}

fn is_label(name: &str) -> bool {
    name.len() <= MAX_NAME && !name.contains('.') && is_subdomain(name)
}

fn is_subdomain(name: &str) -> bool {
    let part = |part: &str| {
        let letters = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        !part.is_empty()
            && part.bytes().all(letters)
            && !part.starts_with('-')
            && !part.ends_with('-')
    };
    name.len() <= MAX_POOL && name.split('.').all(part)
}

fn label() -> String {
    format!("a DNS label of {MAX_NAME} bytes at most")
}

fn at_most(most: usize, found: usize, of: &str, field: &str) -> Result<(), LimitError> {
    expect(found <= most, of, field, &found, || format!("at most {most}"))
}

fn expect(
    ok: bool,
    of: &str,
    field: &str,
    found: &dyn fmt::Display,
    limit: impl FnOnce() -> String,
) -> Result<(), LimitError> {
    if ok {
        return Ok(());
    }
    let (of, field) = (of.to_owned(), field.to_owned());
    Err(LimitError { of, field, found: found.to_string(), limit: limit() })
}

// === impl LimitError ===

impl LimitError {
    /// Stable, for programs.
    pub fn code(&self) -> &'static str {
        "SLICE-INVALID"
    }
}
