//! Metadata tells a claim's containers what their devices are (KEP-5304): a file for each request,
//! mounted where every driver's is.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use divvy_cdi::spec::{ContainerEdits, Device, Mount};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{claim::wrong_with, journal::Entry, plan::Planned, publish::Attribute};

/// What a claim's containers are told.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Metadata {
    /// The pod's name for the claim, where a template made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_claim: Option<String>,
    /// The attributes of its devices, as they were when it was prepared, by the devices' names.
    pub attributes: BTreeMap<String, BTreeMap<String, Attribute>>,
}

/// The file of one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// The request, without subrequest.
    pub request: String,
    /// The device of the claim's spec that has the file.
    pub device: String,
    /// Where the file is on the host.
    pub path: PathBuf,
    /// What is in it.
    pub text: String,
    /// Where it is in a container.
    pub container_path: String,
}

/// Where every driver's files are in a container.
const IN_CONTAINER: &str = "/var/run/kubernetes.io/dra-device-attributes";

/// The one version that there is so far (Kubernetes 1.36 and 1.37).
const API_VERSION: &str = "metadata.resource.k8s.io/v1alpha1";

/// Where a claim's files are on the host.
pub fn metadata_dir(run_dir: &Path, driver: &str, uid: &str) -> PathBuf {
    run_dir.join("metadata").join(driver).join(uid)
}

/// The files of a claim, by request; none where its containers are told nothing.
pub fn metadata(entry: &Entry) -> Vec<Told> {
    let Some(metadata) = &entry.metadata else { return Vec::new() };
    let mut requests = BTreeMap::<&str, Vec<&Planned>>::new();
    for device in &entry.devices {
        let request = device.request.split('/').next().unwrap_or_default();
        requests.entry(request).or_default().push(device);
    }
    // A request becomes a part of paths.
    requests.retain(|request, _| wrong_with(request).is_none());
    let told = |(request, devices): (&str, Vec<&Planned>)| Told {
        request: request.to_owned(),
        // No device has a name with _ in it.
        device: format!("{}_{request}", entry.uid),
        path: metadata_dir(&entry.run_dir, &entry.driver, &entry.uid)
            .join(format!("{request}.json")),
        text: text(entry, metadata, &devices),
        container_path: container_path(entry, metadata, request),
    };
    requests.into_iter().map(told).collect()
}

fn container_path(entry: &Entry, metadata: &Metadata, request: &str) -> String {
    let of_claim = match &metadata.pod_claim {
        Some(name) => format!("resourceclaimtemplates/{name}"),
        None => format!("resourceclaims/{}", entry.name),
    };
    format!("{IN_CONTAINER}/{of_claim}/{request}/{}-metadata.json", entry.driver)
}

fn text(entry: &Entry, metadata: &Metadata, devices: &[&Planned]) -> String {
    let mut requests: Vec<(&str, Vec<serde_json::Value>)> = Vec::new();
    for device in devices {
        let mut told =
            json!({ "driver": entry.driver, "pool": device.pool, "name": device.device });
        let attributes = metadata.attributes.get(&device.device);
        if let (Some(told), Some(attributes)) = (told.as_object_mut(), attributes) {
            told.insert("attributes".to_owned(), json!(attributes));
        }
        match requests.iter_mut().find(|(request, _)| *request == device.request) {
            Some((_, all)) => all.push(told),
            None => requests.push((&device.request, vec![told])),
        }
    }
    let requests = requests.into_iter();
    let requests = requests.map(|(name, devices)| json!({ "name": name, "devices": devices }));
    let mut text = json!({
        "apiVersion": API_VERSION,
        "kind": "DeviceMetadata",
        "metadata": {
            "name": entry.name,
            "namespace": entry.namespace,
            "uid": entry.uid,
            // What is told never changes.
            "generation": 1,
        },
        "requests": requests.collect::<Vec<_>>(),
    });
    if let (Some(text), Some(name)) = (text.as_object_mut(), &metadata.pod_claim) {
        text.insert("podClaimName".to_owned(), json!(name));
    }
    format!("{text}\n")
}

// === impl Told ===

impl Told {
    /// The device by which containers get it.
    pub(super) fn device(&self) -> Device {
        let mount = Mount {
            host_path: self.path.display().to_string(),
            container_path: self.container_path.clone(),
            options: ["ro", "nosuid", "nodev", "noexec", "rbind", "rprivate"]
                .map(str::to_owned)
                .to_vec(),
            kind: Some("bind".to_owned()),
        };
        let container_edits = ContainerEdits { mounts: vec![mount], ..ContainerEdits::default() };
        Device { name: self.device.clone(), annotations: BTreeMap::new(), container_edits }
    }

    /// Its CDI name.
    pub fn cdi_name(&self, entry: &Entry) -> String {
        format!("{}={}", super::kind(&entry.driver), self.device)
    }
}
