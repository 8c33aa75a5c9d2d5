//! Users inside: who a container's process is to the host's device nodes, in a user namespace.

use serde::Deserialize;

use super::{EditError, EditErrorKind};
use crate::{
    host::Node,
    oci::{Config, Slot, Span},
    resolve::Origin,
    spec::DeviceNode,
};

/// What an id shows as that a namespace does not map (`/proc/sys/kernel/overflowuid`).
const OVERFLOW: u32 = 65534;

/// crun's annotation by which a process keeps the groups of who started it.
const KEEP_GROUPS: &str = "run.oci.keep_original_groups";

/// The owners and groups that are somebody's inside.
#[derive(Debug)]
pub(super) struct Users {
    /// Host ids that are mapped; none: we are in a namespace ourselves, and see them mapped.
    uids: Option<Vec<Mapping>>,
    gids: Option<Vec<Mapping>>,
    keeps_groups: bool,
}

#[derive(Debug, Deserialize)]
struct Mapping {
    #[serde(rename = "hostID")]
    host: u32,
    size: u32,
}

// === impl Users ===

impl Users {
    /// None when the runtime makes device nodes.
    pub(super) fn of(config: &Config<'_>, rootless: bool) -> Option<Self> {
        let linux = config.layout().linux.there();
        let linux = linux.filter(|linux| linux.user_namespace);
        if linux.is_none() && !rootless {
            return None;
        }
        let mappings = |slot: Option<&Slot<Span>>| {
            if rootless {
                return None;
            }
            let span = slot.and_then(Slot::there);
            let list = span.and_then(|span| serde_json::from_str(config.raw(*span)).ok());
            Some(list.unwrap_or_default())
        };
        Some(Self {
            uids: mappings(linux.map(|linux| &linux.uid_mappings)),
            gids: mappings(linux.map(|linux| &linux.gid_mappings)),
            keeps_groups: config.annotation(KEEP_GROUPS).is_some_and(|value| value == "1"),
        })
    }

    /// Refuses a node that nobody inside could open, before the container finds out.
    pub(super) fn check(
        &self,
        spec: &DeviceNode,
        node: Option<Node>,
        origin: &Origin,
    ) -> Result<(), EditError> {
        let path = std::path::Path::new(spec.host_path()).to_owned();
        let Some(node) = node else {
            let found = "nothing is there, and without a node no user namespace can have one";
            let kind = EditErrorKind::DeviceGone { path, found: found.to_owned() };
            return Err(EditError::new(origin, kind));
        };
        let asked = match spec.permissions.as_deref() {
            None | Some("") => 0o6,
            Some("none") => 0,
            Some(letters) => {
                let bit = |letter, bit| if letters.contains(letter) { bit } else { 0 };
                bit('r', 0o4) | bit('w', 0o2)
            }
        };
        let owner = is_mapped(self.uids.as_deref(), node.uid);
        let group = self.keeps_groups || is_mapped(self.gids.as_deref(), node.gid);
        let mut granted = node.mode;
        granted |= if owner { node.mode >> 6 } else { 0 };
        granted |= if group { node.mode >> 3 } else { 0 };
        if granted & asked == asked {
            return Ok(());
        }
        let access = match asked {
            0o4 => "read",
            0o2 => "write",
            _ => "read and write",
        };
        let Node { mode, uid, gid, .. } = node;
        let kind = EditErrorKind::UsernsMode { path, mode, uid, gid, access };
        Err(EditError::new(origin, kind))
    }
}

fn is_mapped(mappings: Option<&[Mapping]>, id: u32) -> bool {
    match mappings {
        None => id != OVERFLOW,
        Some(list) => {
            list.iter().any(|map| id.checked_sub(map.host).is_some_and(|above| above < map.size))
        }
    }
}
