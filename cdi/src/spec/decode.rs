//! Decoding turns a document into a [`Spec`], or into every reason why it is none.
//!
//! What the document's shape gets wrong is found here, field by field; what its values get wrong
//! is found by [`super::check`] afterwards, and both are put back at their place in the file.

mod shape;
mod skim;

use std::{collections::BTreeMap, mem, path::Path};

use super::{
    ContainerEdits, Device, DeviceNode, DeviceType, Hook, HookName, IntelRdt, Mount, NetDevice,
    Spec, Version,
    check::{self, EMPTY, Kept, Violation},
    path::{Step, place},
};
use crate::{
    doc::{
        self,
        tape::{Item, Kind},
    },
    problem::{Problem, Severity, quoted},
};

pub(crate) use skim::skim;

/// A spec, and what its author may not have meant.
#[derive(Debug, Clone)]
pub struct Parsed {
    /// The spec, valid.
    pub spec: Spec,
    /// All of severity [`Severity::Warning`], in the order of the file.
    pub warnings: Vec<Problem>,
}

/// Reads the spec that `bytes`, the content of `file`, hold. `file` is for messages only.
///
/// # Errors
/// Everything that is wrong, in the order of the file, of code `SPEC-INVALID`; or `SPEC-VERSION`
/// when the spec declares a version newer than 1.1.0. At most about 100 are
/// listed.
pub fn read(file: &Path, bytes: &[u8]) -> Result<Parsed, Vec<Problem>> {
    let problem = |at, severity, message| Problem {
        file: file.to_owned(),
        at,
        device: None,
        field: None,
        severity,
        code: "SPEC-INVALID",
        message,
    };
    let document = doc::read_tape(bytes)
        .map_err(|error| vec![problem(error.at, Severity::Error, error.message)])?;
    let top = document.top();
    let mut decoder = Decoder::default();
    let spec = decoder.spec(top);
    let Decoder { mut found, newer, .. } = decoder;
    // What has the wrong shape already is not checked for its value too.
    let is_known = |violation: &Violation, found: &[Found]| {
        found.iter().any(|known| {
            known.severity == Severity::Error
                && (violation.path == known.path
                    || (known.covers && violation.path.starts_with(&known.path)))
        })
    };
    for violation in check::check(&spec) {
        if is_known(&violation, &found) {
            continue;
        }
        let Violation { severity, mut message, path, .. } = violation;
        let (at, is_there) = locate(top, &path);
        if message == EMPTY && !is_there {
            "is missing".clone_into(&mut message);
        }
        found.push(Found { at, path, severity, covers: false, message });
    }
    let failed = found.iter().any(|found| found.severity == Severity::Error);
    if failed {
        found.retain(|found| found.severity == Severity::Error);
    }
    found.sort_by_key(|found| found.at);
    let more = found.len() > check::MAX_FOUND;
    found.truncate(check::MAX_FOUND);
    let name = |index: usize| spec.devices.get(index).map(|device| device.name.as_str());
    let shown = |found: Found| {
        let (device, field) = place(&found.path, name);
        let code = if newer { "SPEC-VERSION" } else { "SPEC-INVALID" };
        let field = (!field.is_empty()).then_some(field);
        let at = Some(doc::position(bytes, found.at));
        Problem { device, field, code, ..problem(at, found.severity, found.message) }
    };
    let mut problems: Vec<_> = found.into_iter().map(shown).collect();
    if more {
        let severity = if failed { Severity::Error } else { Severity::Warning };
        problems.push(problem(None, severity, "and more like these".to_owned()));
    }
    if failed { Err(problems) } else { Ok(Parsed { spec, warnings: problems }) }
}

/// The place of a field, and whether it is there at all; of a missing one, the place of what it is
/// missing from.
fn locate(top: Item<'_>, path: &[Step]) -> (u32, bool) {
    let mut node = top;
    for step in path {
        let next = match step {
            Step::Field(name) => node.get(name),
            Step::Key(key) => node.get(key),
            Step::Index(index) => node.items().nth(*index),
        };
        match next {
            Some(next) => node = next,
            None => return (node.at(), false),
        }
    }
    (node.at(), true)
}

struct Found {
    at: u32,
    path: Vec<Step>,
    severity: Severity,
    /// Nothing is to be said about what is inside.
    covers: bool,
    message: String,
}

#[derive(Default)]
struct Decoder {
    path: Vec<Step>,
    found: Vec<Found>,
    kept: Kept,
    /// The document declares a version that is not known here, so its fields are not either.
    newer: bool,
    /// The devices, by index, that are left out.
    passed: Vec<bool>,
}

const SPEC: &[&str] = &["cdiVersion", "kind", "annotations", "devices", "containerEdits"];
const DEVICE: &[&str] = &["name", "annotations", "containerEdits"];
const EDITS: &[&str] =
    &["env", "deviceNodes", "netDevices", "hooks", "mounts", "intelRdt", "additionalGids"];
const DEVICE_NODE: &[&str] =
    &["path", "hostPath", "type", "major", "minor", "fileMode", "permissions", "uid", "gid"];
const NET_DEVICE: &[&str] = &["hostInterfaceName", "name"];
const HOOK: &[&str] = &["hookName", "path", "args", "env", "timeout"];
const MOUNT: &[&str] = &["hostPath", "containerPath", "options", "type"];
const RDT: &[&str] = &["closID", "l3CacheSchema", "memBwSchema", "schemata", "enableMonitoring"];

// === impl Decoder ===

impl Decoder {
    fn spec(&mut self, node: Item<'_>) -> Spec {
        let mut spec = Spec {
            version: Version::V1_1_0,
            kind: String::new(),
            annotations: BTreeMap::new(),
            devices: Vec::new(),
            container_edits: ContainerEdits::default(),
        };
        if node.kind() == Kind::Null {
            self.report(node.at(), Severity::Error, true, "no spec: the file is empty".to_owned());
            return spec;
        }
        let declared = node.get("cdiVersion").map(Item::text);
        self.newer = declared.is_some_and(is_newer);
        if node.kind() == Kind::Map && node.get("cdiVersion").is_none() {
            self.field("cdiVersion", |decoder| decoder.error(node.at(), "is missing".to_owned()));
        }
        self.object(node, SPEC, |decoder, field, node| match field {
            "cdiVersion" => spec.version = decoder.version(node),
            "kind" => spec.kind = decoder.text(node),
            "annotations" => spec.annotations = decoder.annotations(node),
            "devices" => spec.devices = decoder.devices(node),
            _ => spec.container_edits = decoder.edits(node),
        });
        spec
    }

    fn version(&mut self, node: Item<'_>) -> Version {
        let text = self.text(node);
        if let Some(version) = Version::parse(&text) {
            return version;
        }
        let (oldest, newest) = (Version::V0_3_0, Version::V1_1_0);
        let shown = quoted(&text);
        let message = if is_newer(&text) {
            format!("declares CDI {shown}, newer than {newest}, the newest that is known here")
        } else if matches!(text.strip_prefix('v').unwrap_or(&text), "0.1.0" | "0.2.0") {
            format!("declares CDI {shown}, older than {oldest}, the oldest that still counts")
        } else {
            let known = Version::ALL.map(Version::as_str).join(", ");
            format!("{shown} is no version of CDI: {known}")
        };
        self.error(node.at(), message);
        newest
    }

    fn devices(&mut self, node: Item<'_>) -> Vec<Device> {
        let passed = mem::take(&mut self.passed);
        let is_read = |index: usize| !passed.get(index).is_some_and(|passed| *passed);
        self.elements(node, is_read, Self::device)
    }

    fn device(&mut self, node: Item<'_>) -> Device {
        let (name, container_edits) = (String::new(), ContainerEdits::default());
        let mut device = Device { name, annotations: BTreeMap::new(), container_edits };
        self.object(node, DEVICE, |decoder, field, node| match field {
            "name" => device.name = decoder.text(node),
            "annotations" => device.annotations = decoder.annotations(node),
            _ => device.container_edits = decoder.edits(node),
        });
        device
    }

    fn annotations(&mut self, node: Item<'_>) -> BTreeMap<String, String> {
        let mut annotations = BTreeMap::new();
        if !matches!(node.kind(), Kind::Map | Kind::Null) {
            self.mismatch(node, "an object");
        }
        for (key, node) in node.entries() {
            self.path.push(Step::Key(key.text().to_owned()));
            let text = self.text(node);
            if annotations.insert(key.text().to_owned(), text).is_some() {
                self.twice(key);
            }
            self.path.pop();
        }
        annotations
    }

    fn edits(&mut self, node: Item<'_>) -> ContainerEdits {
        let mut edits = ContainerEdits::default();
        self.object(node, EDITS, |decoder, field, node| match field {
            "env" => edits.env = decoder.list(node, Self::text),
            "deviceNodes" => edits.device_nodes = decoder.list(node, Self::device_node),
            "netDevices" => edits.net_devices = decoder.list(node, Self::net_device),
            "hooks" => edits.hooks = decoder.list(node, Self::hook),
            "mounts" => edits.mounts = decoder.list(node, Self::mount),
            "intelRdt" => {
                edits.intel_rdt = (node.kind() != Kind::Null).then(|| decoder.intel_rdt(node));
            }
            _ => {
                let gid = |decoder: &mut Self, node: Item<'_>| decoder.number(node);
                let gids = decoder.list(node, gid);
                edits.additional_gids = gids.into_iter().map(Option::unwrap_or_default).collect();
            }
        });
        edits
    }

    fn device_node(&mut self, node: Item<'_>) -> DeviceNode {
        let mut device = DeviceNode::default();
        self.object(node, DEVICE_NODE, |decoder, field, node| match field {
            "path" => device.path = decoder.text(node),
            "hostPath" => device.host_path = decoder.optional(node),
            "type" => device.kind = decoder.device_type(node),
            "major" => device.major = decoder.number(node).unwrap_or_default(),
            "minor" => device.minor = decoder.number(node).unwrap_or_default(),
            "fileMode" => device.file_mode = decoder.number(node),
            "permissions" => device.permissions = decoder.optional(node),
            "uid" => device.uid = decoder.number(node),
            _ => device.gid = decoder.number(node),
        });
        device
    }

    fn device_type(&mut self, node: Item<'_>) -> Option<DeviceType> {
        match &*self.text(node) {
            "" => None,
            "b" => Some(DeviceType::Block),
            "c" => Some(DeviceType::Char),
            "u" => Some(DeviceType::Unbuffered),
            "p" => Some(DeviceType::Fifo),
            other => {
                let message = format!("{} is no device type: b, c, u or p", quoted(other));
                self.error(node.at(), message);
                None
            }
        }
    }

    fn net_device(&mut self, node: Item<'_>) -> NetDevice {
        let mut device = NetDevice { host_interface_name: String::new(), name: String::new() };
        self.object(node, NET_DEVICE, |decoder, field, node| match field {
            "hostInterfaceName" => device.host_interface_name = decoder.text(node),
            _ => device.name = decoder.text(node),
        });
        device
    }

    fn hook(&mut self, node: Item<'_>) -> Hook {
        let mut hook = Hook {
            hook_name: HookName::CreateRuntime,
            path: String::new(),
            args: Vec::new(),
            env: Vec::new(),
            timeout: None,
        };
        if node.kind() == Kind::Map && node.get("hookName").is_none() {
            self.field("hookName", |decoder| decoder.error(node.at(), "is missing".to_owned()));
        }
        self.object(node, HOOK, |decoder, field, node| match field {
            "hookName" => hook.hook_name = decoder.hook_name(node),
            "path" => hook.path = decoder.text(node),
            "args" => hook.args = decoder.list(node, Self::text),
            "env" => hook.env = decoder.list(node, Self::text),
            _ => hook.timeout = decoder.number(node),
        });
        hook
    }

    fn hook_name(&mut self, node: Item<'_>) -> HookName {
        let text = self.text(node);
        if let Some(name) = HookName::ALL.into_iter().find(|name| name.as_str() == text) {
            return name;
        }
        let known = HookName::ALL.map(HookName::as_str).join(", ");
        self.error(node.at(), format!("{} is no hook: {known}", quoted(&text)));
        HookName::CreateRuntime
    }

    fn mount(&mut self, node: Item<'_>) -> Mount {
        let (host_path, container_path) = (String::new(), String::new());
        let mut mount = Mount { host_path, container_path, options: Vec::new(), kind: None };
        self.object(node, MOUNT, |decoder, field, node| match field {
            "hostPath" => mount.host_path = decoder.text(node),
            "containerPath" => mount.container_path = decoder.text(node),
            "options" => mount.options = decoder.list(node, Self::text),
            _ => mount.kind = decoder.optional(node),
        });
        mount
    }

    fn intel_rdt(&mut self, node: Item<'_>) -> IntelRdt {
        let mut rdt = IntelRdt::default();
        self.object(node, RDT, |decoder, field, node| match field {
            "closID" => rdt.clos_id = decoder.optional(node),
            "l3CacheSchema" => rdt.l3_cache_schema = decoder.optional(node),
            "memBwSchema" => rdt.mem_bw_schema = decoder.optional(node),
            "schemata" => {
                let schemata = decoder.list(node, Self::text);
                rdt.schemata = (node.kind() != Kind::Null).then_some(schemata);
            }
            _ => rdt.enable_monitoring = decoder.truth(node),
        });
        rdt
    }
}

/// True for a well-formed version above the newest known.
fn is_newer(text: &str) -> bool {
    let text = text.strip_prefix('v').unwrap_or(text);
    let numbers: Vec<u32> = text.split('.').filter_map(|part| part.parse().ok()).collect();
    text.split('.').count() == 3 && matches!(*numbers, [a, b, c] if (a, b, c) > (1, 1, 0))
}

#[cfg(test)]
mod tests;
