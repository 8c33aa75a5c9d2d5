//! The rules that a spec must keep (the Go reference's `validate`), and those that CDI's text asks
//! for without anybody enforcing them: the latter are warnings.

use std::{collections::BTreeMap, fmt};

use memchr::memchr;

use super::{
    ContainerEdits, Device, DeviceNode, Hook, HookName, IntelRdt, Mount, NetDevice, Spec,
    path::{Step, place},
    version,
};
use crate::{
    name,
    problem::{Severity, quoted},
};

/// The most bytes that all keys and values of one `annotations` may have together (Kubernetes).
const MAX_ANNOTATIONS: usize = 256 << 10;

/// The most problems of one severity that are kept of a spec; a large file can have millions.
pub(super) const MAX_FOUND: usize = 100;

/// A rule that a spec breaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The device, when it has a name.
    pub device: Option<String>,
    /// The field, from the device that is named, else from the top.
    pub field: String,
    /// An error, or a warning.
    pub severity: Severity,
    /// What is wrong.
    pub message: String,
    /// The field from the top, for finding it in the document.
    pub(super) path: Vec<Step>,
}

/// What is wrong with a spec made in memory; at most about 100 things.
pub fn check(spec: &Spec) -> Vec<Violation> {
    let mut walk = Walk { spec, path: Vec::new(), found: Vec::new(), kept: Kept::default() };
    walk.spec();
    walk.found
}

struct Walk<'a> {
    spec: &'a Spec,
    path: Vec<Step>,
    found: Vec<Violation>,
    kept: Kept,
}

/// How many problems of each severity are kept already.
#[derive(Default)]
pub(super) struct Kept {
    errors: usize,
    warnings: usize,
}

pub(super) const EMPTY: &str = "must not be empty";

// === impl Kept ===

impl Kept {
    /// Counts one more, and says whether it is too many.
    pub(super) fn full(&mut self, severity: Severity) -> bool {
        let count = match severity {
            Severity::Warning => &mut self.warnings,
            Severity::Error => &mut self.errors,
        };
        *count += 1;
        *count > MAX_FOUND + 1
    }
}

// === impl Walk ===

impl Walk<'_> {
    fn at(&mut self, step: Step, look: impl FnOnce(&mut Self)) {
        self.path.push(step);
        look(self);
        self.path.pop();
    }

    fn field(&mut self, name: &'static str, look: impl FnOnce(&mut Self)) {
        self.at(Step::Field(name), look);
    }

    fn each<T>(&mut self, name: &'static str, list: &[T], mut look: impl FnMut(&mut Self, &T)) {
        self.field(name, |walk| {
            for (index, item) in list.iter().enumerate() {
                walk.at(Step::Index(index), |walk| look(walk, item));
            }
        });
    }

    fn add(&mut self, severity: Severity, message: String) {
        if self.kept.full(severity) {
            return;
        }
        let path = self.path.clone();
        let (device, field) =
            place(&path, |index| self.spec.devices.get(index).map(|device| device.name.as_str()));
        self.found.push(Violation { device, field, severity, message, path });
    }

    fn error(&mut self, message: impl Into<String>) {
        self.add(Severity::Error, message.into());
    }

    fn warn(&mut self, message: impl Into<String>) {
        self.add(Severity::Warning, message.into());
    }

    fn spec(&mut self) {
        let spec = self.spec;
        let (needs, feature) = version::needed(spec);
        if spec.version < needs {
            self.field("cdiVersion", |walk| {
                walk.error(format!("declares {}, but {feature} needs {needs}", spec.version));
            });
        }
        self.field("kind", |walk| match name::check_kind(&spec.kind) {
            Err(_) if spec.kind.is_empty() => walk.error(EMPTY),
            Err(error) => walk.error(error.to_string()),
            Ok(()) => {}
        });
        self.annotations(&spec.annotations);
        self.field("devices", |walk| {
            if spec.devices.is_empty() {
                walk.error("at least one device must be there");
            }
        });
        self.each("devices", &spec.devices, Self::device);
        self.device_names();
        self.field("containerEdits", |walk| walk.edits(&spec.container_edits));
    }

    fn device_names(&mut self) {
        let devices = &self.spec.devices;
        let mut seen = BTreeMap::new();
        for (index, device) in devices.iter().enumerate() {
            if device.name.is_empty() {
                continue;
            }
            if let Some(first) = seen.insert(device.name.as_str(), index) {
                self.path = vec![Step::Field("devices"), Step::Index(index), Step::Field("name")];
                self.error(format!("the name is taken by devices[{first}] of the same file"));
                self.path.clear();
            }
        }
    }

    fn device(&mut self, device: &Device) {
        self.field("name", |walk| match name::check_device(&device.name) {
            Err(_) if device.name.is_empty() => walk.error(EMPTY),
            Err(error) => walk.error(error.to_string()),
            Ok(()) if device.name.len() > 63 => walk.warn("longer than 63 characters"),
            Ok(()) => {}
        });
        self.annotations(&device.annotations);
        self.field("containerEdits", |walk| {
            if device.container_edits.is_empty() {
                walk.error("a device without edits; the edits of the whole spec do not count");
            }
            walk.edits(&device.container_edits);
        });
    }

    /// Warnings only: the Go library means to check these, never does, and nothing reads them.
    fn annotations(&mut self, annotations: &BTreeMap<String, String>) {
        if annotations.is_empty() {
            return;
        }
        self.field("annotations", |walk| {
            let total: usize = annotations.iter().map(|(key, value)| key.len() + value.len()).sum();
            if total > MAX_ANNOTATIONS {
                walk.warn(format!("keys and values have {total} bytes, at most {MAX_ANNOTATIONS}"));
            }
            for key in annotations.keys() {
                if let Some(why) = annotation_flaw(key) {
                    walk.at(Step::Key(key.clone()), |walk| walk.warn(why));
                }
            }
        });
    }

    fn edits(&mut self, edits: &ContainerEdits) {
        self.each("env", &edits.env, |walk, pair| walk.pair(pair));
        self.each("deviceNodes", &edits.device_nodes, Self::device_node);
        self.each("netDevices", &edits.net_devices, Self::net_device);
        self.unique_net_devices(&edits.net_devices);
        self.each("hooks", &edits.hooks, Self::hook);
        self.each("mounts", &edits.mounts, Self::mount);
        if let Some(rdt) = &edits.intel_rdt {
            self.field("intelRdt", |walk| walk.intel_rdt(rdt));
        }
        self.each("additionalGids", &edits.additional_gids, |walk, gid| {
            if *gid == 0 {
                walk.warn("group 0 is skipped");
            }
        });
    }

    fn pair(&mut self, pair: &str) {
        if pair.find('=').is_none_or(|at| at == 0) {
            self.error(format!("{} is not KEY=value", quoted(pair)));
        }
        self.no_nul(pair);
    }

    fn no_nul(&mut self, text: &str) {
        if memchr(0, text.as_bytes()).is_some() {
            self.warn("holds a NUL byte, at which the system ends a text");
        }
    }

    fn path(&mut self, name: &'static str, path: &str) {
        if path.starts_with('/') && memchr(0, path.as_bytes()).is_none() {
            return;
        }
        self.field(name, |walk| {
            if path.is_empty() {
                walk.error(EMPTY);
            } else if !path.starts_with('/') {
                walk.warn(format!("{} is not absolute", quoted(path)));
            }
            walk.no_nul(path);
        });
    }

    fn device_node(&mut self, node: &DeviceNode) {
        self.path("path", &node.path);
        if let Some(host_path) = node.host_path.as_deref().filter(|path| !path.is_empty()) {
            self.path("hostPath", host_path);
        }
        for (name, number) in [("major", node.major), ("minor", node.minor)] {
            // Go's only looks for negative ones; the kernel's numbers have 32 bits.
            if u32::try_from(number).is_err() {
                self.field(name, |walk| walk.error(format!("{number} is no device number")));
            }
        }
        if let Some(permissions) = &node.permissions
            && permissions != "none"
            && !permissions.bytes().all(|c| matches!(c, b'r' | b'w' | b'm'))
        {
            self.field("permissions", |walk| {
                let shown = quoted(permissions);
                walk.error(format!("{shown}: only r, w and m are allowed, or \"none\""));
            });
        }
        if let Some(mode) = node.file_mode.filter(|mode| *mode > 0o7777) {
            let message = format!("{mode} is {mode:o} in octal, more than permission bits (7777)");
            self.field("fileMode", |walk| walk.warn(message));
        }
    }

    fn net_device(&mut self, device: &NetDevice) {
        let names = [("hostInterfaceName", &device.host_interface_name), ("name", &device.name)];
        for (field, name) in names {
            self.field(field, |walk| {
                if name.is_empty() {
                    walk.error(EMPTY);
                } else if name.len() > 15 || name.contains(['/', ' ', '\0']) {
                    walk.warn(format!("{} is no name that Linux allows", quoted(name)));
                }
            });
        }
    }

    fn unique_net_devices(&mut self, devices: &[NetDevice]) {
        if devices.len() < 2 {
            return;
        }
        type Get = fn(&NetDevice) -> &str;
        let fields: [(&'static str, Get); 2] = [
            ("hostInterfaceName", |device| &device.host_interface_name),
            ("name", |device| &device.name),
        ];
        for (field, get) in fields {
            let mut seen = BTreeMap::new();
            self.each("netDevices", devices, |walk, device| {
                let (name, index) = (get(device), walk.path.last().cloned());
                if let Some(Some(Step::Index(first))) = seen.insert(name.to_owned(), index)
                    && !name.is_empty()
                {
                    walk.field(field, |walk| {
                        walk.error(format!("{} is taken by netDevices[{first}]", quoted(name)));
                    });
                }
            });
        }
    }

    fn hook(&mut self, hook: &Hook) {
        if hook.hook_name == HookName::Prestart {
            self.field("hookName", |walk| {
                walk.warn("prestart is deprecated: use createRuntime");
            });
        }
        self.path("path", &hook.path);
        self.each("env", &hook.env, |walk, pair| walk.pair(pair));
        if let Some(timeout) = hook.timeout.filter(|timeout| *timeout <= 0) {
            self.field("timeout", |walk| walk.warn(format!("{timeout} is not above 0")));
        }
    }

    fn mount(&mut self, mount: &Mount) {
        self.path("hostPath", &mount.host_path);
        self.path("containerPath", &mount.container_path);
        if mount.kind.as_deref().unwrap_or_default().is_empty() && !mount.is_bind() {
            self.warn("a mount without type needs the option bind or rbind: runc refuses it else");
        }
    }

    fn intel_rdt(&mut self, rdt: &IntelRdt) {
        let clos_id = rdt.clos_id.as_deref().unwrap_or_default();
        let bad = clos_id.len() >= 4096
            || matches!(clos_id, "." | "..")
            || (clos_id != "/" && clos_id.contains(['/', '\n']));
        if bad {
            self.field("closID", |walk| {
                walk.error(format!(
                    "{} is no name of a directory of resctrl, nor \"/\"",
                    quoted(clos_id)
                ));
            });
        }
    }
}

/// The rule that an annotation's key breaks: `[prefix/]name` as Kubernetes has it.
fn annotation_flaw(key: &str) -> Option<String> {
    let lower = key.to_lowercase();
    let (prefix, name) = match lower.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, lower.as_str()),
    };
    let ends = |text: &str| {
        let ends = [text.bytes().next(), text.bytes().last()];
        ends.into_iter().all(|end| end.is_some_and(|c| c.is_ascii_alphanumeric()))
    };
    let within = |text: &str, more: &[u8]| {
        text.bytes().all(|c| c.is_ascii_alphanumeric() || more.contains(&c))
    };
    let shown = quoted(key);
    if let Some(prefix) = prefix
        && (prefix.len() > 253
            || !prefix.split('.').all(|label| ends(label) && within(label, b"-")))
    {
        return Some(format!("{shown}: the part before / must be a DNS name, at most 253 bytes"));
    }
    if name.len() > 63 {
        return Some(format!("{shown}: the name is longer than 63 bytes"));
    }
    if !ends(name) || !within(name, b"-_.") {
        return Some(format!(
            "{shown}: the name must begin and end with a letter or digit, with - _ . between"
        ));
    }
    None
}

// === impl Violation ===

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(device) = &self.device {
            write!(f, "device {}: ", quoted(device))?;
        }
        write!(f, "{}: {}", self.field, self.message)
    }
}
