//! Editing: the result is JSON, keeps what no edit touches, and a second edit changes nothing.
//!
//! The input is a spec, a NUL, and a config. All devices of the spec are asked for.
#![no_main]

use std::{io, path::Path};

use divvy_cdi::{
    edit::{self, Options},
    host::{Entry, Host, Node, NodeKind},
    name::QualifiedName,
    oci::Config,
    resolve, spec,
};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

/// A host on which each path below `/dev` is a node, and nothing else is there.
struct Devices;

// === impl Devices ===

impl Host for Devices {
    fn node(&self, path: &Path) -> io::Result<Option<Node>> {
        if !path.starts_with("/dev") {
            return Err(io::ErrorKind::NotFound.into());
        }
        let (kind, major, minor) = (NodeKind::Char, 1, 3);
        Ok(Some(Node { kind, major, minor, mode: 0o666, uid: 0, gid: 0 }))
    }

    fn entry(&self, _: &Path) -> io::Result<Entry> {
        Ok(Entry { regular: true, mode: 0o755 })
    }
}

fuzz_target!(|bytes: &[u8]| {
    let Some(middle) = bytes.iter().position(|&byte| byte == 0) else { return };
    let (spec_bytes, config) = (&bytes[..middle], &bytes[middle + 1..]);
    let Ok(config) = Config::parse(config) else { return };
    // A lone surrogate is JSON, and Go's readers take it, but serde_json does not.
    let Ok(before) = serde_json::from_str::<Value>(config.text()) else {
        assert!(config.text().contains("\\u"));
        return;
    };
    let file = Path::new("x.yaml");
    let Ok(parsed) = spec::read(file, spec_bytes) else { return };
    let names = parsed.spec.devices.iter().map(|device| {
        QualifiedName::parse(&format!("{}={}", parsed.spec.kind, device.name)).expect("valid")
    });
    let names: Vec<_> = names.collect();
    let resolution = resolve::from_spec(file, spec_bytes, &names).expect("devices of the file");
    for rootless in [false, true] {
        let options = Options { rootless, ..Options::default() };
        let Ok(edited) = edit::apply(&config, &resolution, &Devices, options) else { continue };
        let after: Value = serde_json::from_slice(&edited.bytes).expect("the result is JSON");
        for (key, value) in before.as_object().expect("an object") {
            if !["process", "mounts", "linux", "hooks"].contains(&key.as_str()) {
                assert_eq!(after.get(key), Some(value), "{key}");
            }
        }
        assert_eq!(edited.changes.is_empty(), *edited.bytes == *config.text().as_bytes());
        let config = Config::parse(&edited.bytes).expect("the result is a config");
        let again = edit::apply(&config, &resolution, &Devices, options).expect("twice");
        assert_eq!(again.bytes, edited.bytes);
        assert!(again.changes.is_empty());
    }
});
