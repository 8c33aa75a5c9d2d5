//! A counter, as Kubernetes writes one: an object with its value.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::quantity::Quantity;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Counter {
    value: Quantity,
}

pub(super) fn serialize<S: Serializer>(
    counters: &BTreeMap<String, Quantity>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(counters.iter().map(|(name, value)| (name, Counter { value: *value })))
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, Quantity>, D::Error> {
    let counters: BTreeMap<String, Counter> = Deserialize::deserialize(deserializer)?;
    Ok(counters.into_iter().map(|(name, counter)| (name, counter.value)).collect())
}
