mod config;
mod device;
mod early;
mod mount;
mod random;
mod userns;

use std::{collections::BTreeMap, io, path::Path};

use serde_json::{Value, json};

use super::{Change, EditError, Options, apply};
use crate::{
    host::{Entry, Host, Node, NodeKind},
    name::QualifiedName,
    oci::Config,
    resolve::{Resolution, from_spec},
};

/// A host of paths: device nodes, and files by their mode.
#[derive(Default)]
struct FakeHost {
    nodes: BTreeMap<&'static str, Option<Node>>,
    files: BTreeMap<&'static str, u32>,
}

impl Host for FakeHost {
    fn node(&self, path: &Path) -> io::Result<Option<Node>> {
        let found = self.nodes.get(path.to_str().unwrap());
        found.copied().ok_or_else(|| rustix::io::Errno::NOENT.into())
    }

    fn entry(&self, path: &Path) -> io::Result<Entry> {
        let found = self.files.get(path.to_str().unwrap());
        let mode = found.copied().ok_or(rustix::io::Errno::NOENT)?;
        Ok(Entry { regular: mode & 0o40000 == 0, mode: mode & 0o7777 })
    }
}

/// A host with `/dev/x`, c 1:3, mode 0666, and whatever else.
fn host(more: &[(&'static str, Option<Node>)]) -> FakeHost {
    let mut nodes = BTreeMap::from([("/dev/x", Some(node('c', 1, 3, 0o666)))]);
    nodes.extend(more.iter().copied());
    FakeHost { nodes, files: BTreeMap::new() }
}

fn node(kind: char, major: u32, minor: u32, mode: u32) -> Node {
    let kind = match kind {
        'b' => NodeKind::Block,
        'p' => NodeKind::Fifo,
        _ => NodeKind::Char,
    };
    Node { kind, major, minor, mode, uid: 0, gid: 0 }
}

/// The edits of device `d`, and those of its file.
fn resolution(device: &str, global: &str) -> Resolution {
    let text = format!(
        "cdiVersion: 1.1.0\nkind: v.com/c\ncontainerEdits: {global}\ndevices:\n- name: d\n  \
         containerEdits: {device}\n"
    );
    let name = QualifiedName::parse("v.com/c=d").unwrap();
    from_spec(Path::new("/etc/cdi/v.yaml"), text.as_bytes(), &[name]).unwrap()
}

const UNCHECKED: Options = Options { rootless: false, check_paths: false };

/// What `edits` make of `config`: valid OCI, and the same bytes when it is done again.
fn edit_with(
    config: &str,
    edits: &str,
    host: &dyn Host,
    options: Options,
) -> Result<String, EditError> {
    let resolution = resolution(edits, "{}");
    let parsed = Config::parse(config.as_bytes()).unwrap();
    let edited = apply(&parsed, &resolution, host, options)?;
    let text = String::from_utf8(edited.bytes.to_vec()).unwrap();
    assert_eq!(edited.changes.is_empty(), text == config, "{:?}", edited.changes);
    is_oci(&text);
    let twice = Config::parse(text.as_bytes()).unwrap();
    let again = apply(&twice, &resolution, host, options)?;
    assert_eq!(std::str::from_utf8(&again.bytes).unwrap(), text, "{:?}", again.changes);
    assert!(matches!(again.bytes, std::borrow::Cow::Borrowed(_)));
    Ok(text)
}

fn is_oci(text: &str) {
    serde_json::from_str::<oci_spec::runtime::Spec>(text)
        .unwrap_or_else(|error| panic!("{error}: {text}"));
}

/// The edited config as a value, and the pointers of the changes in it.
fn edit(config: &Value, edits: &str) -> Value {
    let text = edit_with(&config.to_string(), edits, &host(&[]), UNCHECKED).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn refusal(config: &Value, edits: &str, host: &FakeHost) -> String {
    let line = edit_with(&config.to_string(), edits, host, UNCHECKED).unwrap_err().to_string();
    assert!(line.ends_with(|letter: char| letter.is_lowercase()) && !line.contains('\n'), "{line}");
    line
}

fn changes(config: &Value, resolution: &Resolution) -> Vec<String> {
    let text = config.to_string();
    let parsed = Config::parse(text.as_bytes()).unwrap();
    let edited = apply(&parsed, resolution, &host(&[]), UNCHECKED).unwrap();
    let after: Value = serde_json::from_slice(&edited.bytes).unwrap();
    for change in edited.changes.iter().filter(|change| change.what != super::What::Removed) {
        let there = after.pointer(&change.pointer());
        assert!(there.is_some(), "{change}: {after}");
    }
    edited.changes.iter().map(Change::to_string).collect()
}

fn minimal() -> Value {
    json!({
        "ociVersion": "1.2.0",
        "process": {"user": {"uid": 0, "gid": 0}, "cwd": "/", "args": ["sh"], "env": ["PATH=/bin"]},
        "root": {"path": "rootfs"},
    })
}
