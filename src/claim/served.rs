//! A served form is that of a version of resource.k8s.io which Kubernetes served before v1, or still
//! does: v1beta2, v1beta1, v1alpha3. Each is made v1 as it is read, so that there is one reader.

use std::borrow::Cow;

use divvy_cdi::doc::{Entry, Node, Value};

use super::tree;

/// What was changed of an object, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Note {
    /// Byte offset in the file.
    pub(crate) at: u32,
    /// `spec.devices.requests[0]`
    pub(crate) path: String,
    /// What it was, and what it is now.
    pub(crate) text: String,
}

/// The version that everything is read as.
pub(crate) const V1: &str = "resource.k8s.io/v1";

const FLAT: [&str; 2] = ["resource.k8s.io/v1beta1", "resource.k8s.io/v1alpha3"];
const SERVED: [&str; 3] = ["resource.k8s.io/v1beta2", FLAT[0], FLAT[1]];

/// An object as v1 has it, with what was changed; one that is of another form stays as it is.
pub(crate) fn upgrade<'a>(mut object: Node<'a>, notes: &mut Vec<Note>) -> Node<'a> {
    let Some(version) = tree::get(&object, "apiVersion").map(|node| (node.at, text(node))) else {
        return object;
    };
    let (at, version) = version;
    if !SERVED.contains(&version.as_str()) {
        return object;
    }
    let mut note = |at: u32, path: &str, text: String| {
        notes.push(Note { at, path: path.to_owned(), text });
    };
    note(at, "apiVersion", format!("{version} became {V1}, served since Kubernetes 1.34"));
    tree::put(&mut object, "apiVersion", tree::text(at, V1));
    if !FLAT.contains(&version.as_str()) {
        return object;
    }
    let kind = tree::text_at(&object, "kind").unwrap_or_default().to_owned();
    let spec = tree::get_mut(&mut object, "spec");
    match (kind.as_str(), spec) {
        ("ResourceClaim", Some(spec)) => claim(spec, "spec", &mut note),
        ("ResourceClaimTemplate", Some(spec)) => {
            if let Some(spec) = tree::get_mut(spec, "spec") {
                claim(spec, "spec.spec", &mut note);
            }
        }
        ("ResourceSlice", Some(spec)) => slice(spec, &mut note),
        _ => {}
    }
    object
}

fn text(node: &Node<'_>) -> String {
    match &node.value {
        Value::Str(text) => text.to_string(),
        _ => String::new(),
    }
}

/// Requests were flat: what now stands below `exactly` stood beside their names.
fn claim(spec: &mut Node<'_>, path: &str, note: &mut impl FnMut(u32, &str, String)) {
    let Some(devices) = tree::get_mut(spec, "devices") else { return };
    for (index, request) in tree::items_mut(devices, "requests").iter_mut().enumerate() {
        if ["exactly", "firstAvailable"].iter().any(|key| tree::get(request, key).is_some()) {
            continue;
        }
        let at = request.at;
        let Value::Map(entries) = &mut request.value else { continue };
        let (name, rest): (Vec<_>, Vec<_>) =
            std::mem::take(entries).into_iter().partition(|entry| entry.key == "name");
        let moved: Vec<String> = rest.iter().map(|entry| entry.key.to_string()).collect();
        *entries = name;
        if rest.is_empty() {
            continue;
        }
        let exactly = Node { at, value: Value::Map(rest) };
        entries.push(Entry { at, key: Cow::Borrowed("exactly"), node: exactly });
        let path = format!("{path}.devices.requests[{index}]");
        note(at, &path, format!("{} stand below exactly since v1beta2", moved.join(", ")));
    }
}

/// Devices had all but their name below `basic`, and in v1alpha3 capacities were bare quantities.
fn slice(spec: &mut Node<'_>, note: &mut impl FnMut(u32, &str, String)) {
    for (index, device) in tree::items_mut(spec, "devices").iter_mut().enumerate() {
        let Some(basic) = tree::take(device, "basic") else { continue };
        let path = format!("spec.devices[{index}]");
        note(basic.at, &path, "what stood below basic stands beside name since v1beta2".to_owned());
        if let (Value::Map(entries), Value::Map(inside)) = (&mut device.value, basic.value) {
            entries.extend(inside);
        }
        let Some(capacity) = tree::get_mut(device, "capacity") else { continue };
        let Value::Map(capacities) = &mut capacity.value else { continue };
        for entry in capacities {
            if matches!(entry.node.value, Value::Str(_) | Value::Number(_)) {
                let at = entry.node.at;
                let value = std::mem::replace(&mut entry.node, tree::list(at, []));
                entry.node = tree::map(at, [("value", value)]);
                let path = format!("{path}.capacity.{}", entry.key);
                note(at, &path, "the quantity stands below value since v1beta1".to_owned());
            }
        }
    }
}
