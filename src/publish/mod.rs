//! A slice is what a node offers, as a ResourceSlice of Kubernetes says it: devices with typed
//! attributes and capacities, and the counters that they share. Built from the inventory alone, so
//! the same node has the same slices, byte for byte.

mod build;
mod controller;
mod counter;
mod describe;
mod diff;
mod limit;
mod object;
mod offer;
mod probe;
mod rival;
mod sole;
mod trouble;
mod version;
mod view;

use std::{collections::BTreeMap, fmt};

use semver::Version;
use serde::{Deserialize, Serialize};

use crate::quantity::Quantity;

pub use build::slices;
pub(crate) use build::split;
pub use controller::{Options, Source, State, run};
pub(crate) use describe::attributes;
pub use limit::{LimitError, check};
pub use offer::Offer;
pub use trouble::Trouble;
pub use version::normalized;
pub use view::{Health, Hold, View, ViewError};

/// One slice of the node's pool: devices, or counters that they consume. Never both: Kubernetes
/// 1.35 and later refuse that.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Slice {
    /// Counter sets, at most 8.
    SharedCounters(Vec<CounterSet>),
    /// Devices, at most 128; 64 where one of them consumes counters or is tainted.
    Devices(Vec<Device>),
}

/// Amounts that devices share: what one consumes, the others do not have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CounterSet {
    /// Its name, a DNS label, once in the pool.
    pub name: String,
    /// The amounts by name.
    #[serde(with = "counter")]
    pub counters: BTreeMap<String, Quantity>,
}

/// A device that a claim can be given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Device {
    /// Its name, once in the pool.
    pub name: String,
    /// What is to be known of it. A name without a domain is in our driver's.
    #[serde(default)]
    pub attributes: BTreeMap<String, Attribute>,
    /// How much it has, by name.
    #[serde(default)]
    pub capacity: BTreeMap<String, Capacity>,
    /// What it takes of counters that it shares.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub consumes_counters: Vec<Consumption>,
    /// What keeps it from those who do not tolerate that.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<Taint>,
    /// Several claims may have it at once, each a part of its capacity.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_multiple_allocations: bool,
}

/// A value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Attribute {
    /// A text of at most 64 bytes.
    String(String),
    /// A whole number.
    Int(i64),
    /// A truth value.
    Bool(bool),
    /// A semantic version.
    Version(Version),
}

/// An amount that a device has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Capacity {
    /// All of it.
    pub value: Quantity,
    /// How a part of it may be asked for, on a device that several claims may have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_policy: Option<RequestPolicy>,
}

/// How a part of a capacity may be asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestPolicy {
    /// What a request gets that does not say.
    pub default: Quantity,
    /// What a request may get; what it asks for is rounded up to that.
    #[serde(flatten)]
    pub valid: Valid,
}

/// Which parts of a capacity there are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Valid {
    /// These, rising.
    ValidValues(Vec<Quantity>),
    /// `min`, `min + step`, … up to `max`; any between without a step.
    ValidRange {
        /// The least.
        min: Quantity,
        /// The most; all of the capacity where it is unset.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        max: Option<Quantity>,
        /// From one to the next.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        step: Option<Quantity>,
    },
}

/// What a device takes of a counter set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Consumption {
    /// The set's name.
    pub counter_set: String,
    /// How much of each of its counters.
    #[serde(with = "counter")]
    pub counters: BTreeMap<String, Quantity>,
}

/// What keeps a device from claims that do not tolerate it. The same taint is the same whenever it was
/// put there.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Taint {
    /// A label's name.
    pub key: String,
    /// A label's value.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub value: String,
    /// What it does.
    pub effect: Effect,
    /// Since when it is there, as the API server noted it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_added: Option<String>,
}

/// What a taint does to those who do not tolerate it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Effect {
    /// Nothing: it says something.
    None,
    /// They are not given the device.
    NoSchedule,
    /// They are not given the device, and lose it.
    NoExecute,
}

// === impl Effect ===

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Kubernetes has the same names.
        write!(f, "{self:?}")
    }
}

// === impl Slice ===

impl Slice {
    /// Its devices.
    pub fn devices(&self) -> &[Device] {
        match self {
            Self::Devices(devices) => devices,
            Self::SharedCounters(_) => &[],
        }
    }

    /// Its counter sets.
    pub fn counter_sets(&self) -> &[CounterSet] {
        match self {
            Self::SharedCounters(sets) => sets,
            Self::Devices(_) => &[],
        }
    }
}

// === impl Taint ===

impl Taint {
    /// One of the domain of GPUs.
    pub(crate) fn ours(name: &str, value: &str, effect: Effect) -> Self {
        Self::of(crate::claim::DRIVER, name, value, effect)
    }

    /// One of a driver's domain.
    pub(crate) fn of(driver: &str, name: &str, value: &str, effect: Effect) -> Self {
        let (key, value) = (format!("{driver}/{name}"), value.to_owned());
        Self { key, value, effect, time_added: None }
    }
}

impl PartialEq for Taint {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key && self.value == other.value && self.effect == other.effect
    }
}

impl Eq for Taint {}

// === impl Attribute ===

impl fmt::Display for Attribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::String(text) => write!(f, "{text:?}"),
            Self::Int(number) => write!(f, "{number}"),
            Self::Bool(flag) => write!(f, "{flag}"),
            Self::Version(version) => write!(f, "{version}"),
        }
    }
}

#[cfg(test)]
mod tests;
