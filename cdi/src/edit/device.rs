//! Device nodes: looked at on the host for each edit, made by the runtime, allowed in the cgroup.

use std::{borrow::Cow, io, path::Path};

use serde::Deserialize;

use super::{
    EditError, EditErrorKind, Options, Place, What, cgroup,
    draft::{Draft, Entries, Holder},
    index::Index,
    mount,
    userns::Users,
};
use crate::{
    errno,
    host::{Host, Node, NodeKind},
    oci::{Slot, push_string},
    resolve::{Origin, Resolution},
    spec::{DeviceNode, DeviceType},
};

/// A node as the container gets it.
struct Wanted<'a> {
    spec: &'a DeviceNode,
    origin: &'a Origin,
    kind: &'static str,
    major: i64,
    minor: i64,
    mode: Option<u32>,
    uid: Option<u32>,
    gid: Option<u32>,
}

/// A device as the config has it.
#[derive(Deserialize)]
struct OciDevice<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(default)]
    major: i64,
    #[serde(default)]
    minor: i64,
    #[serde(rename = "fileMode")]
    mode: Option<u32>,
    uid: Option<u32>,
    gid: Option<u32>,
}

/// A host whose nodes are looked at once an edit: claims of one driver repeat the same ones.
struct LookedAt<'h, 'a> {
    host: &'h dyn Host,
    index: Index<'a>,
    nodes: Vec<Option<Node>>,
}

/// Applies the device nodes of `resolution`. Where the runtime cannot make nodes, the mounts that
/// stand for them are returned.
pub(super) fn apply<'a>(
    draft: &mut Draft<'_, 'a>,
    resolution: &'a Resolution,
    host: &dyn Host,
    options: Options,
) -> Result<Vec<mount::Wanted<'a>>, EditError> {
    let mut nodes = Vec::new();
    let mut rules = Vec::new();
    let users = Users::of(draft.config, options.rootless);
    let mut looked_at = LookedAt { host, index: Index::default(), nodes: Vec::new() };
    for part in &resolution.parts {
        for spec in &part.edits.device_nodes {
            let (node, on_host) = look(draft, spec, &part.origin, &mut looked_at)?;
            if let Some(users) = &users {
                users.check(spec, on_host, &part.origin)?;
            }
            if let "b" | "c" = node.kind {
                let access = access(spec);
                let Wanted { origin, kind, major, minor, .. } = node;
                rules.push(cgroup::Wanted { origin, kind, major, minor, access });
            }
            nodes.push(node);
        }
    }
    let binds = if users.is_some() { nodes.iter().map(bind).collect() } else { Vec::new() };
    put(draft, &nodes, users.is_some());
    cgroup::apply(draft, &rules);
    Ok(binds)
}

/// What `spec` is on this host, with the node that stands there.
fn look<'a>(
    draft: &Draft<'_, 'a>,
    spec: &'a DeviceNode,
    origin: &'a Origin,
    host: &mut LookedAt<'_, 'a>,
) -> Result<(Wanted<'a>, Option<Node>), EditError> {
    let path = Path::new(spec.host_path());
    let fail = |kind| Err(EditError::new(origin, kind));
    let gone = |found: String| EditErrorKind::DeviceGone { path: path.to_owned(), found };
    let range = 0..=i64::from(u32::MAX);
    if !range.contains(&spec.major) || !range.contains(&spec.minor) {
        let (major, minor) = (spec.major, spec.minor);
        return fail(EditErrorKind::DeviceNumber { path: path.to_owned(), major, minor });
    }
    let on_host = match host.node(spec.host_path()) {
        Ok(Some(node)) => Some(node),
        Ok(None) => return fail(gone("not a device node".to_owned())),
        // A spec that says type and numbers needs no node on the host, as in Go.
        Err(error) if is_missing(&error) && spec_is_whole(spec) => None,
        Err(error) => return fail(gone(errno::words(&error))),
    };
    if let Some(node) = on_host
        && !matches(spec, node)
    {
        let path = path.to_owned();
        let host = format!("{} {}:{}", node.kind.as_str(), node.major, node.minor);
        return fail(EditErrorKind::DeviceChanged { path, spec: spec_text(spec), host });
    }
    let process = draft.config.layout().process.there();
    let user = process.and_then(|process| process.user.there());
    let own = |id: Option<u32>| id.filter(|id| *id != 0);
    let numbers = match (spec.kind, on_host) {
        // A FIFO has none; what the spec says is passed on, as in Go.
        (Some(DeviceType::Fifo), _) | (_, None) => (spec.major, spec.minor),
        (_, Some(node)) => (node.major.into(), node.minor.into()),
    };
    let wanted = Wanted {
        spec,
        origin,
        kind: spec.kind.map_or(on_host.map_or("", |node| node.kind.as_str()), DeviceType::as_str),
        major: numbers.0,
        minor: numbers.1,
        mode: spec.file_mode.or(on_host.map(|node| node.mode)),
        uid: spec.uid.or(own(user.map(|user| user.uid))),
        gid: spec.gid.or(own(user.map(|user| user.gid))),
    };
    Ok((wanted, on_host))
}

/// Type and numbers are all there.
fn spec_is_whole(spec: &DeviceNode) -> bool {
    spec.kind.is_some_and(|kind| kind == DeviceType::Fifo || spec.major != 0)
}

fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// True when `node` is what the spec says, as far as the spec says something.
fn matches(spec: &DeviceNode, node: Node) -> bool {
    let kind = match spec.kind {
        None => true,
        Some(DeviceType::Block) => node.kind == NodeKind::Block,
        Some(DeviceType::Char) => node.kind == NodeKind::Char,
        // No node shows itself as unbuffered: only numbers can say that it is meant.
        Some(DeviceType::Unbuffered) => node.kind == NodeKind::Char && spec.major != 0,
        Some(DeviceType::Fifo) => return node.kind == NodeKind::Fifo,
    };
    let minor_said = spec.major != 0 || spec.minor != 0;
    kind && (spec.major == 0 || spec.major == i64::from(node.major))
        && (!minor_said || spec.minor == i64::from(node.minor))
}

fn spec_text(spec: &DeviceNode) -> String {
    let mut text = spec.kind.map_or("any type", DeviceType::as_str).to_owned();
    match (spec.major, spec.minor) {
        (0, 0) => {}
        (0, minor) => text.push_str(&format!(" with minor {minor}")),
        (major, minor) => text.push_str(&format!(" {major}:{minor}")),
    }
    text
}

/// The cgroup's access: `none` is none.
fn access(spec: &DeviceNode) -> &str {
    match spec.permissions.as_deref() {
        None | Some("") => "rwm",
        Some("none") => "",
        Some(letters) => letters,
    }
}

/// Puts `nodes` into `linux.devices`; where they are mounted instead, takes them out of it.
fn put<'a>(draft: &mut Draft<'_, 'a>, nodes: &[Wanted<'a>], mounted: bool) {
    if nodes.is_empty() {
        return;
    }
    // The last one for a path counts, at its own place.
    let mut known = Index::default();
    let mut places: Vec<(usize, Vec<usize>)> = Vec::new();
    for (wanted, node) in nodes.iter().enumerate() {
        match places.get_mut(known.number(node.spec.path.as_str().into())) {
            Some((earlier, _)) => *earlier = wanted,
            None => places.push((wanted, Vec::new())),
        }
    }
    let linux = draft.config.layout().linux.there();
    let slot = linux.map_or(&Slot::Absent, |linux| &linux.devices);
    let mut entries = Entries::of(draft.config, slot);
    for (index, entry) in entries.list.iter().enumerate() {
        let number = known.get(&entry.key);
        if let Some((_, there)) = number.and_then(|number| places.get_mut(number)) {
            there.push(index);
        }
    }
    for (index, node) in nodes.iter().enumerate() {
        let path = node.spec.path.as_str();
        let place = known.get(path).and_then(|number| places.get(number));
        let Some((_, there)) = place.filter(|(last, _)| *last == index) else { continue };
        let first = there.first().and_then(|first| entries.list.get(*first));
        if mounted {
            for &index in there {
                draft.note(What::Removed, node.origin, Place::Item("/linux/devices", index));
            }
        } else if first.is_some_and(|first| node.is(&first.json)) {
            continue;
        } else {
            let what = if first.is_some() { What::Replaced } else { What::Added };
            entries.push_as(what, node.json(), path, node.origin);
        }
        for &index in there {
            if let Some(entry) = entries.list.get_mut(index) {
                entry.gone = true;
            }
        }
    }
    entries.remove_gone();
    draft.set_list((Holder::Linux, "devices", "/linux/devices"), slot, &entries);
}

/// The mount that stands for a node. No `nodev`: it is one.
fn bind<'a>(node: &Wanted<'a>) -> mount::Wanted<'a> {
    mount::Wanted {
        origin: node.origin,
        destination: &node.spec.path,
        source: node.spec.host_path(),
        kind: Some("bind"),
        options: vec!["bind", "nosuid", "noexec"],
    }
}

// === impl LookedAt ===

impl<'a> LookedAt<'_, 'a> {
    /// [`Host::node`].
    fn node(&mut self, path: &'a str) -> io::Result<Option<Node>> {
        if let Some(node) = self.index.get(path).and_then(|number| self.nodes.get(number)) {
            return Ok(*node);
        }
        let node = self.host.node(Path::new(path))?;
        self.index.number(path.into());
        self.nodes.push(node);
        Ok(node)
    }
}

// === impl Wanted ===

impl Wanted<'_> {
    /// True when `there` is this node already. What comes from the host or the process and not
    /// from the spec may be missing: older engines leave it out.
    fn is(&self, there: &str) -> bool {
        let same = |asked: bool, there: Option<u32>, wanted| {
            there == wanted || (!asked && there.is_none())
        };
        serde_json::from_str(there).is_ok_and(|there: OciDevice<'_>| {
            there.kind == self.kind
                && (there.major, there.minor) == (self.major, self.minor)
                && same(self.spec.file_mode.is_some(), there.mode, self.mode)
                && same(self.spec.uid.is_some(), there.uid, self.uid)
                && same(self.spec.gid.is_some(), there.gid, self.gid)
        })
    }

    fn json(&self) -> String {
        let mut out = "{\"path\":".to_owned();
        push_string(&mut out, &self.spec.path);
        let Self { kind, major, minor, .. } = self;
        out.push_str(&format!(",\"type\":\"{kind}\",\"major\":{major},\"minor\":{minor}"));
        for (key, value) in [("fileMode", self.mode), ("uid", self.uid), ("gid", self.gid)] {
            if let Some(value) = value {
                out.push_str(&format!(",\"{key}\":{value}"));
            }
        }
        out.push('}');
        out
    }
}
