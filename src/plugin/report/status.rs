//! The status of a claim's devices says whether they are prepared: the condition `Ready` of each in
//! `status.devices`.

use k8s_openapi::jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Reference, event::cut};

/// A claim as the API server had it, however wrong its configuration is.
#[derive(Debug, Deserialize)]
pub(super) struct Object {
    metadata: Metadata,
    #[serde(default)]
    status: Status,
}

#[derive(Debug, Deserialize)]
struct Metadata {
    uid: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    allocation: Allocation,
    reserved_for: Vec<Consumer>,
    devices: Vec<Told>,
}

/// Who may use it.
#[derive(Debug, Deserialize)]
pub(super) struct Consumer {
    pub(super) resource: String,
    pub(super) name: String,
    pub(super) uid: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Allocation {
    devices: Devices,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Devices {
    results: Vec<Device>,
}

/// A device that it was allocated.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Device {
    driver: String,
    pool: String,
    device: String,
    #[serde(rename = "shareID")]
    share_id: Option<String>,
}

/// What is told of one.
#[derive(Debug, Deserialize)]
struct Told {
    #[serde(flatten)]
    device: Device,
    #[serde(default)]
    conditions: Vec<Condition>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Condition {
    r#type: String,
    status: String,
    #[serde(default)]
    message: String,
    last_transition_time: String,
}

/// The most that a condition says.
const MAX_MESSAGE: usize = 4096;

// === impl Object ===

impl Object {
    /// The claim of this text, if it is this one.
    pub(super) fn read(text: &str, claim: &Reference) -> Option<Self> {
        serde_json::from_str(text).ok().filter(|one: &Self| one.metadata.uid == claim.uid)
    }

    /// The pods that may use it.
    pub(super) fn pods(&self) -> impl Iterator<Item = &Consumer> {
        self.status.reserved_for.iter().filter(|consumer| consumer.resource == "pods")
    }

    /// What the API server is to be told of its devices of this driver; none where it says so already.
    pub(super) fn status(
        &self,
        claim: &Reference,
        driver: &str,
        failed: Option<&str>,
    ) -> Option<Value> {
        let (status, reason) =
            if failed.is_some() { ("False", "PrepareFailed") } else { ("True", "Prepared") };
        let message = cut(failed.unwrap_or_default(), MAX_MESSAGE);
        let devices = self.devices(driver);
        let is_told = |device: &&Device| {
            let ready = self.ready(device);
            ready.is_some_and(|ready| ready.status == status && ready.message == message)
        };
        if devices.iter().all(is_told) {
            return None;
        }
        let now = format!("{:.0}", Timestamp::now());
        let told = |device: &Device| {
            let same = self.ready(device).filter(|ready| ready.status == status);
            let since = same.map_or(now.as_str(), |ready| &ready.last_transition_time);
            let condition = json!({
                "type": "Ready", "status": status, "reason": reason, "message": message,
                "lastTransitionTime": since,
            });
            let (driver, pool, name) = (&device.driver, &device.pool, &device.device);
            match &device.share_id {
                None => json!({
                    "driver": driver, "pool": pool, "device": name, "conditions": [condition],
                }),
                Some(share) => json!({
                    "driver": driver, "pool": pool, "device": name, "shareID": share,
                    "conditions": [condition],
                }),
            }
        };
        let devices: Vec<Value> = devices.into_iter().map(told).collect();
        Some(json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            // With the UID it is never another claim of its name.
            "metadata": {"namespace": claim.namespace, "name": claim.name, "uid": claim.uid},
            "status": {"devices": devices},
        }))
    }

    /// The devices of this driver, each once: two requests may have the same.
    fn devices(&self, driver: &str) -> Vec<&Device> {
        let results = &self.status.allocation.devices.results;
        let mut devices: Vec<&Device> = Vec::new();
        for device in results.iter().filter(|one| one.driver == driver) {
            if !devices.contains(&device) {
                devices.push(device);
            }
        }
        devices
    }

    fn ready(&self, device: &Device) -> Option<&Condition> {
        let told = self.status.devices.iter().find(|told| told.device == *device)?;
        told.conditions.iter().find(|condition| condition.r#type == "Ready")
    }
}
