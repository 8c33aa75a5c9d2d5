//! The versions of CDI, and which of them a document's fields need.

use std::fmt;

use serde::{Serialize, Serializer};

use super::{ContainerEdits, Spec};

/// A released version of CDI that a document may declare.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// 0.3.0, the oldest that still counts.
    V0_3_0,
    /// 0.4.0
    V0_4_0,
    /// 0.5.0
    V0_5_0,
    /// 0.6.0
    V0_6_0,
    /// 0.7.0
    V0_7_0,
    /// 0.8.0
    V0_8_0,
    /// 1.0.0
    V1_0_0,
    /// 1.1.0, the newest.
    V1_1_0,
}

// === impl Version ===

impl Version {
    /// All, oldest first.
    pub const ALL: [Self; 8] = [
        Self::V0_3_0,
        Self::V0_4_0,
        Self::V0_5_0,
        Self::V0_6_0,
        Self::V0_7_0,
        Self::V0_8_0,
        Self::V1_0_0,
        Self::V1_1_0,
    ];

    /// As a document writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V0_3_0 => "0.3.0",
            Self::V0_4_0 => "0.4.0",
            Self::V0_5_0 => "0.5.0",
            Self::V0_6_0 => "0.6.0",
            Self::V0_7_0 => "0.7.0",
            Self::V0_8_0 => "0.8.0",
            Self::V1_0_0 => "1.0.0",
            Self::V1_1_0 => "1.1.0",
        }
    }

    /// The version that `text` names; one leading `v` is allowed, nothing else.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.strip_prefix('v').unwrap_or(text);
        Self::ALL.into_iter().find(|version| version.as_str() == text)
    }

    /// The lowest version that has every field `spec` uses (CDI `MinimumRequiredVersion`).
    pub fn required_by(spec: &Spec) -> Self {
        needed(spec).0
    }

    /// [`Version::required_by`], and what makes it so, for messages.
    pub fn needed_by(spec: &Spec) -> (Self, &'static str) {
        needed(spec)
    }
}

/// [`Version::required_by`], and what makes it so, for messages.
pub(super) fn needed(spec: &Spec) -> (Version, &'static str) {
    let mut needed = (Version::V0_3_0, "CDI");
    let mut need = |version, feature| {
        if needed.0 < version {
            needed = (version, feature);
        }
    };
    // The class, not the vendor, raises the version by its dot.
    if spec.kind.split_once('/').is_some_and(|(_, class)| class.contains('.')) {
        need(Version::V0_6_0, "a class with a dot");
    }
    if !spec.annotations.is_empty() {
        need(Version::V0_6_0, "annotations");
    }
    edits_need(&spec.container_edits, &mut need);
    for device in &spec.devices {
        if device.name.starts_with(|c: char| c.is_ascii_digit()) {
            need(Version::V0_5_0, "a device name with a digit first");
        }
        if !device.annotations.is_empty() {
            need(Version::V0_6_0, "annotations");
        }
        edits_need(&device.container_edits, &mut need);
    }
    needed
}

fn edits_need(edits: &ContainerEdits, need: &mut impl FnMut(Version, &'static str)) {
    if !edits.net_devices.is_empty() {
        need(Version::V1_1_0, "netDevices");
    }
    if let Some(rdt) = &edits.intel_rdt {
        need(Version::V0_7_0, "intelRdt");
        if rdt.schemata.is_some() {
            need(Version::V1_1_0, "intelRdt.schemata");
        }
        if rdt.enable_monitoring {
            need(Version::V1_1_0, "intelRdt.enableMonitoring");
        }
    }
    if !edits.additional_gids.is_empty() {
        need(Version::V0_7_0, "additionalGids");
    }
    if edits.device_nodes.iter().any(|node| node.host_path.is_some()) {
        need(Version::V0_5_0, "deviceNodes[].hostPath");
    }
    if edits.mounts.iter().any(|mount| mount.kind.is_some()) {
        need(Version::V0_4_0, "mounts[].type");
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Version {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}
