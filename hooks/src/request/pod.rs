//! A pod, as the engine itself names it in the config of each of its containers.
//!
//! Pod authors cannot set these: containerd and CRI-O write their own keys after whatever they
//! copy from the pod.

use std::{collections::BTreeMap, fmt};

use divvy_cdi::{oci::Config, problem::quoted};

use crate::{error::HookError, settings::Engine};

/// CRI-O's key with the labels of the container, as JSON.
const CRIO_LABELS: &str = "io.kubernetes.cri-o.Labels";

/// A container of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pod {
    pub(super) uid: String,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) container: String,
    /// The pod's own sandbox: no container of the pod, it gets nothing.
    pub(super) sandbox: bool,
}

// === impl Pod ===

impl Pod {
    /// As containerd writes it: each part an annotation.
    pub(super) fn of_cri(config: &Config<'_>) -> Option<Self> {
        Self::read_cri(config).known()
    }

    /// As CRI-O writes it: the kubelet's labels.
    pub(super) fn of_crio(config: &Config<'_>) -> Result<Option<Self>, HookError> {
        Ok(Self::read_crio(config)?.known())
    }

    /// Whatever pod a container may be of, by the keys of either engine. The UID is enough.
    pub(super) fn of_any(config: &Config<'_>) -> Result<Vec<Self>, HookError> {
        let mut pods = vec![Self::read_cri(config), Self::read_crio(config)?];
        pods.retain(|pod| !pod.sandbox && !pod.uid.is_empty());
        Ok(pods)
    }

    fn read_cri(config: &Config<'_>) -> Self {
        let mut pod = Self::empty();
        for (key, value) in config.annotations() {
            let Some(key) = key.strip_prefix("io.kubernetes.cri.") else { continue };
            match key {
                "sandbox-uid" => pod.uid = value.into_owned(),
                "sandbox-namespace" => pod.namespace = value.into_owned(),
                "sandbox-name" => pod.name = value.into_owned(),
                "container-name" => pod.container = value.into_owned(),
                "container-type" => pod.sandbox = value == "sandbox",
                _ => {}
            }
        }
        pod
    }

    fn read_crio(config: &Config<'_>) -> Result<Self, HookError> {
        let mut pod = Self::empty();
        for (key, value) in config.annotations() {
            if key == CRIO_LABELS {
                let mut labels: BTreeMap<String, String> =
                    serde_json::from_str(&value).map_err(|error| HookError::Invalid {
                        what: format!("annotation {CRIO_LABELS:?}"),
                        why: error.to_string(),
                    })?;
                let mut take = |label: &str| labels.remove(label).unwrap_or_default();
                pod.uid = take("io.kubernetes.pod.uid");
                pod.namespace = take("io.kubernetes.pod.namespace");
                pod.name = take("io.kubernetes.pod.name");
                pod.container = take("io.kubernetes.container.name");
            } else if key == "io.kubernetes.cri-o.ContainerType" {
                pod.sandbox = value == "sandbox";
            }
        }
        Ok(pod)
    }

    /// True for a pod of a file on the node: the kubelet names it by a hash in place of a UID, and
    /// refuses one that names claims ("static pods may not reference resourceclaims": 1.37's).
    pub(super) fn is_static(&self) -> bool {
        let digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        self.uid.len() == 32 && self.uid.bytes().all(digit)
    }

    fn empty() -> Self {
        let [uid, namespace, name, container] = [const { String::new() }; 4];
        Self { uid, namespace, name, container, sandbox: false }
    }

    /// A sandbox may have no UID; a container needs it and its own name.
    fn known(self) -> Option<Self> {
        (self.sandbox || (!self.uid.is_empty() && !self.container.is_empty())).then_some(self)
    }
}

impl fmt::Display for Pod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { uid, namespace, name, container, .. } = self;
        write!(f, "container {} of pod {namespace}/{name} ({uid})", quoted(container))
    }
}

/// Why a config names no pod, and what to do.
pub(super) fn unknown(engine: Option<Engine>) -> String {
    let (key, engine) = match engine {
        Some(Engine::Crio) => (CRIO_LABELS, "CRI-O"),
        _ => ("io.kubernetes.cri.sandbox-uid", "containerd 1.6 or newer"),
    };
    format!(
        "the config has no {key:?} or no container name: {engine} sets it for a pod; for \
         containers without a pod declare another handler, or set require_record = false"
    )
}
