//! The versions of CDI, and which of them a document's fields need.

use std::fmt;

use serde::{Serialize, Serializer};

use super::Spec;

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
        // The class, not the vendor, raises the version by its dot.
        let class_has_dot = spec.kind.split_once('/').is_some_and(|(_, class)| class.contains('.'));
        let annotated = !spec.annotations.is_empty()
            || spec.devices.iter().any(|device| !device.annotations.is_empty());
        let digit_first =
            spec.devices.iter().any(|d| d.name.starts_with(|c: char| c.is_ascii_digit()));
        let mut required = Self::V0_3_0;
        if digit_first {
            required = Self::V0_5_0;
        }
        if class_has_dot || annotated {
            required = Self::V0_6_0;
        }
        let device_edits = spec.devices.iter().map(|device| &device.container_edits);
        for edits in device_edits.chain([&spec.container_edits]) {
            let rdt_1_1 = |rdt: &super::IntelRdt| rdt.schemata.is_some() || rdt.enable_monitoring;
            let needs =
                if !edits.net_devices.is_empty() || edits.intel_rdt.as_ref().is_some_and(rdt_1_1) {
                    Self::V1_1_0
                } else if edits.intel_rdt.is_some() || !edits.additional_gids.is_empty() {
                    Self::V0_7_0
                } else if edits.device_nodes.iter().any(|node| node.host_path.is_some()) {
                    Self::V0_5_0
                } else if edits.mounts.iter().any(|mount| mount.kind.is_some()) {
                    Self::V0_4_0
                } else {
                    Self::V0_3_0
                };
            required = required.max(needs);
        }
        required
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
