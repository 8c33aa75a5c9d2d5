//! A spec: one CDI document, its kind, its devices and their edits (CDI SPEC.md, 0.3.0 to 1.1.0).
//!
//! The types mirror the document field by field. Serialising them gives a document again, with
//! unset fields left out.

mod check;
mod decode;
mod path;
mod version;
mod write;

use std::collections::BTreeMap;

use serde::Serialize;

pub use check::{Violation, check};
pub(crate) use decode::skim;
pub use decode::{Parsed, read};
pub use version::Version;
pub use write::{WriteError, keep, remove, write};

/// One CDI document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Spec {
    /// The version that the document declares.
    #[serde(rename = "cdiVersion")]
    pub version: Version,
    /// `vendor/class`, valid by [`crate::name`].
    pub kind: String,
    /// Free for users; keys follow the Kubernetes rule. Since 0.6.0.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// At least one, each name once.
    pub devices: Vec<Device>,
    /// Applied once when any device of this document is requested.
    #[serde(skip_serializing_if = "ContainerEdits::is_empty")]
    pub container_edits: ContainerEdits,
}

/// A device that can be requested as `kind=name`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Device {
    /// The part after `=`.
    pub name: String,
    /// As in [`Spec::annotations`].
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Never empty in a valid spec.
    pub container_edits: ContainerEdits,
}

/// What is done to a container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerEdits {
    /// `KEY=value`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
    /// Device nodes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub device_nodes: Vec<DeviceNode>,
    /// Network interfaces moved into the container. Since 1.1.0.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub net_devices: Vec<NetDevice>,
    /// OCI hooks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hooks: Vec<Hook>,
    /// Mounts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<Mount>,
    /// Intel RDT, replaces the container's whole setting. Since 0.7.0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub intel_rdt: Option<IntelRdt>,
    /// Groups added to the process; 0 is skipped. Since 0.7.0.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub additional_gids: Vec<u32>,
}

/// A device node. `path` is in the container, `host_path` on the host (`path` when unset).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceNode {
    /// Path in the container, not empty.
    pub path: String,
    /// Path on the host. Since 0.5.0; never `Some("")`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_path: Option<String>,
    /// `b`, `c`, `u` or `p`; never `Some` of anything else in a valid spec.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<DeviceType>,
    /// Major number; 0 is unset.
    #[serde(skip_serializing_if = "is_zero")]
    pub major: i64,
    /// Minor number; 0 is unset where major is.
    #[serde(skip_serializing_if = "is_zero")]
    pub minor: i64,
    /// Permission bits, from the host node when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_mode: Option<u32>,
    /// Cgroup access: any of `r`, `w`, `m`, or `none`; `rwm` when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permissions: Option<String>,
    /// Owner in the container; the process's when unset and that is not 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// Group in the container; the process's when unset and that is not 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gid: Option<u32>,
}

/// The `type` of a device node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum DeviceType {
    /// Block.
    #[serde(rename = "b")]
    Block,
    /// Character.
    #[serde(rename = "c")]
    Char,
    /// Unbuffered character.
    #[serde(rename = "u")]
    Unbuffered,
    /// FIFO.
    #[serde(rename = "p")]
    Fifo,
}

/// A network interface of the host that gets a name in the container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NetDevice {
    /// Interface on the host, not empty.
    pub host_interface_name: String,
    /// Name in the container, not empty.
    pub name: String,
}

/// An OCI hook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Hook {
    /// When it runs.
    pub hook_name: HookName,
    /// The program, not empty.
    pub path: String,
    /// Its arguments, the first being its own name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Its environment, `KEY=value`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
    /// Seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<i64>,
}

/// The hook lists of the OCI runtime spec.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum HookName {
    /// Deprecated by OCI, kept by CDI.
    Prestart,
    /// In the runtime's namespaces.
    CreateRuntime,
    /// In the container's namespaces, before `pivot_root`.
    CreateContainer,
    /// In the container, before the process.
    StartContainer,
    /// After the process started.
    Poststart,
    /// After the container was deleted.
    Poststop,
}

/// A mount, given to the runtime as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Mount {
    /// Source on the host, not empty.
    pub host_path: String,
    /// Destination in the container, not empty.
    pub container_path: String,
    /// Mount options.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
    /// Filesystem type. Since 0.4.0; never `Some("")`.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
}

/// Intel RDT settings.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct IntelRdt {
    /// `closID`.
    #[serde(rename = "closID", skip_serializing_if = "Option::is_none")]
    pub clos_id: Option<String>,
    /// `l3CacheSchema`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub l3_cache_schema: Option<String>,
    /// `memBwSchema`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mem_bw_schema: Option<String>,
    /// `schemata`; `Some` of an empty list counts as set. Since 1.1.0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schemata: Option<Vec<String>>,
    /// `enableMonitoring`. `true` needs 1.1.0.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub enable_monitoring: bool,
}

// === impl ContainerEdits ===

impl ContainerEdits {
    /// True when there is nothing to do: the rule by which a device without edits is refused.
    pub fn is_empty(&self) -> bool {
        self.env.is_empty()
            && self.device_nodes.is_empty()
            && self.net_devices.is_empty()
            && self.hooks.is_empty()
            && self.mounts.is_empty()
            && self.intel_rdt.is_none()
            && self.additional_gids.is_empty()
    }
}

// === impl Mount ===

impl Mount {
    /// Whether the source is a path of the host, as runc and crun tell it.
    pub fn is_bind(&self) -> bool {
        self.kind.as_deref() == Some("bind")
            || self.options.iter().any(|option| option == "bind" || option == "rbind")
    }
}

// === impl DeviceNode ===

impl DeviceNode {
    /// The path on the host: `hostPath`, or `path` when that is unset.
    pub fn host_path(&self) -> &str {
        self.host_path.as_deref().unwrap_or(&self.path)
    }
}

// === impl DeviceType ===

impl DeviceType {
    /// The letter of the document.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Block => "b",
            Self::Char => "c",
            Self::Unbuffered => "u",
            Self::Fifo => "p",
        }
    }
}

// === impl HookName ===

impl HookName {
    /// All, in the order of a container's life.
    pub const ALL: [Self; 6] = [
        Self::Prestart,
        Self::CreateRuntime,
        Self::CreateContainer,
        Self::StartContainer,
        Self::Poststart,
        Self::Poststop,
    ];

    /// The name in the document, and of the list in the OCI config.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Prestart => "prestart",
            Self::CreateRuntime => "createRuntime",
            Self::CreateContainer => "createContainer",
            Self::StartContainer => "startContainer",
            Self::Poststart => "poststart",
            Self::Poststop => "poststop",
        }
    }
}

fn is_zero(number: &i64) -> bool {
    *number == 0
}
