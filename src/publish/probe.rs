//! A probe asks the API server what it stores of a slice: a version or feature gate without partitions,
//! shares or taints drops those fields, and says nothing. What it would keep is seen in a dry run.

use serde_json::{Value, json};

use super::{Offer, object::Pool};
use crate::api::{Api, ApiError};

/// What an API server stores, and what it said of its version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Server {
    /// What it stores.
    pub(super) stores: Offer,
    /// Its version, as it writes it.
    pub(super) version: String,
}

/// The first minor version whose slices have counters apart from devices.
const PARTITIONS_SINCE: u32 = 35;

/// Finds out what is stored of the slices of a pool.
pub(super) async fn probe(api: &Api, pool: &Pool) -> Result<Server, ApiError> {
    let said = api.version().await?;
    let version = said.get("gitVersion").and_then(Value::as_str).unwrap_or("unknown").to_owned();
    let partitions = minor(&said).is_none_or(|minor| minor >= PARTITIONS_SINCE);
    let kept = match api.create_slice(&slice(pool, partitions), true).await {
        // Its validation has another layout of counters.
        Err(error) if partitions && error.is_refusal() => {
            api.create_slice(&slice(pool, false), true).await?
        }
        kept => kept?,
    };
    let device = |field: &str| kept.pointer(&format!("/spec/devices/0/{field}")).is_some();
    let stores = Offer {
        shares: device("allowMultipleAllocations"),
        partitions: device("consumesCounters"),
        taints: device("taints"),
    };
    Ok(Server { stores, version })
}

/// The minor version of Kubernetes 1; none where the server was built without one.
fn minor(said: &Value) -> Option<u32> {
    let text = |key: &str| said.get(key).and_then(Value::as_str).unwrap_or_default();
    // `34+` of some clouds.
    let minor = text("minor").trim_end_matches(|c: char| !c.is_ascii_digit());
    minor.parse().ok().filter(|_| text("major") == "1")
}

fn slice(pool: &Pool, partitions: bool) -> Value {
    let mut device = json!({
        "name": "probe",
        "allowMultipleAllocations": true,
        "taints": [{ "key": "gpu.divvy.dev/probe", "effect": "NoSchedule" }],
    });
    if let (Some(device), true) = (device.as_object_mut(), partitions) {
        let consumed =
            json!([{ "counterSet": "probe", "counters": { "probe": { "value": "1" } } }]);
        device.insert("consumesCounters".to_owned(), consumed);
    }
    let pool = Pool { count: 1, ..pool.clone() };
    let mut object = pool.object(0, &super::Slice::Devices(Vec::new()), None);
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        spec.insert("devices".to_owned(), json!([device]));
    }
    object
}

// === impl Server ===

impl Server {
    /// What of an offer is not published on it, in words; none where all is.
    pub(super) fn lacks(&self, asked: Offer) -> Option<String> {
        let Offer { shares, partitions, taints } = self.stores;
        let all = [
            (
                asked.partitions && !partitions,
                "MIG partitions, which need Kubernetes 1.35 or newer with the feature gate \
                 DRAPartitionableDevices",
            ),
            (
                asked.shares && !shares,
                "shares of GPUs, which need the feature gate DRAConsumableCapacity",
            ),
            (
                asked.taints && !taints,
                "devices that would be tainted, which needs the feature gate DRADeviceTaints",
            ),
        ];
        let lacking: Vec<&str> =
            all.into_iter().filter_map(|(lacks, what)| lacks.then_some(what)).collect();
        let version = &self.version;
        (!lacking.is_empty()).then(|| {
            format!(
                "the API server, {version}, does not store everything; not published are {}",
                lacking.join("; ")
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_read_as_far_as_it_says_one() {
        for (major, text, found) in [
            ("1", "34", Some(34)),
            ("1", "35+", Some(35)),
            ("1", "", None),
            ("", "", None),
            ("0", "0", None),
            ("1", "x", None),
        ] {
            assert_eq!(minor(&json!({ "major": major, "minor": text })), found);
        }
        assert_eq!(minor(&json!({ "gitVersion": "v0.0.0-master+$Format:%H$" })), None);
    }
}
