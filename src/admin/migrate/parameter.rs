//! A parameter of an old manifest, as the selector that says the same.

use divvy_cdi::doc::{Node, Value};

use crate::{claim::tree, publish::normalized, quantity::Quantity};

/// What a parameter became.
pub(super) struct Selected {
    /// The expression.
    pub(super) expression: String,
    /// What it rests on, for people.
    pub(super) why: String,
}

/// Attributes that drivers of NVIDIA's GPUs publish, by what articles call them, without dashes.
const KNOWN: [(&str, &str, Kind); 12] = [
    ("memory", "memory", Kind::Capacity),
    ("gpumemory", "memory", Kind::Capacity),
    ("driverversion", "driverVersion", Kind::Version),
    ("computecapability", "cudaComputeCapability", Kind::Version),
    ("cudacomputecapability", "cudaComputeCapability", Kind::Version),
    ("cudaversion", "cudaDriverVersion", Kind::Version),
    ("architecture", "architecture", Kind::Text),
    ("productname", "productName", Kind::Text),
    ("model", "productName", Kind::Text),
    ("brand", "brand", Kind::Text),
    ("profile", "profile", Kind::Text),
    ("uuid", "uuid", Kind::Text),
];

/// How a value is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Capacity,
    Version,
    Text,
}

/// The name and kind by which a driver publishes what an old manifest calls so; and whether that is
/// known, or a guess by the value.
pub(super) fn known(name: &str, value: &str) -> (String, Kind, bool) {
    let bare: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
    let bare = bare.to_ascii_lowercase();
    if let Some((_, name, kind)) = KNOWN.iter().find(|(known, ..)| *known == bare) {
        return ((*name).to_owned(), *kind, true);
    }
    let amount = value.parse::<Quantity>().is_ok() && value.ends_with(|c: char| c.is_alphabetic());
    let version = value.split('.').count() > 2 && normalized(value).is_some();
    let kind = match (amount, version) {
        (true, _) => Kind::Capacity,
        (_, true) => Kind::Version,
        _ => Kind::Text,
    };
    (identifier(name), kind, false)
}

/// `compute-capability` → `computeCapability`: a name as attributes have it.
pub(super) fn identifier(name: &str) -> String {
    let mut made = String::new();
    for part in name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|part| !part.is_empty()) {
        let mut letters = part.chars();
        let first =
            letters.next().map(|c| if made.is_empty() { c } else { c.to_ascii_uppercase() });
        made.extend(first);
        made.push_str(letters.as_str());
    }
    match made.starts_with(|c: char| c.is_ascii_digit()) {
        true => format!("_{made}"),
        false => made,
    }
}

/// The selector that says of devices of a driver what a parameter said.
pub(super) fn selector(name: &str, value: &str, driver: &str) -> Selected {
    let (id, kind, sure) = known(name, value);
    let quoted = quoted(value);
    let (expression, said) = match (kind, normalized(value)) {
        (Kind::Capacity, _) if value.parse::<Quantity>().is_ok() => (
            format!("device.capacity[\"{driver}\"].{id}.compareTo(quantity({quoted})) >= 0"),
            "at least this capacity",
        ),
        (Kind::Version, Some(version)) => (
            format!("device.attributes[\"{driver}\"].{id}.compareTo(semver(\"{version}\")) >= 0"),
            "at least this version, and versions are strictly semantic",
        ),
        _ => (format!("device.attributes[\"{driver}\"].{id} == {quoted}"), "this attribute"),
    };
    let guess = match sure {
        true => String::new(),
        false => format!("; whether {driver} publishes {id}, its ResourceSlices say"),
    };
    Selected { expression, why: format!("{said}, as a selector{guess}") }
}

/// A text in quotes, as CEL reads it.
pub(super) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// The selectors of a ResourceClaimParameters of 1.30, with their places.
pub(super) fn selectors(object: &Node<'_>, driver: Option<&str>) -> Vec<(String, u32)> {
    let mut found = Vec::new();
    let requests = items(object, "driverRequests");
    for request in requests {
        let own = tree::text_at(request, "driverName").unwrap_or(super::NVIDIA);
        for named in items(request, "requests") {
            let selector =
                tree::get(named, "namedResources").and_then(|n| tree::get(n, "selector"));
            if let Some(Node { at, value: Value::Str(text) }) = selector {
                found.push((rewritten(text, driver.unwrap_or(own)), *at));
            }
        }
    }
    found
}

/// `attributes.quantity["memory"]` of 1.30, as it is now: types no longer stand in the path.
fn rewritten(expression: &str, driver: &str) -> String {
    let mut text = expression.to_owned();
    for kind in ["quantity", "string", "bool", "int", "version", "stringslice", "intslice"] {
        let map = if kind == "quantity" { "capacity" } else { "attributes" };
        let old = format!("attributes.{kind}[");
        let mut done = String::new();
        while let Some((before, after)) = text.split_once(&old) {
            let (name, rest) = after.split_once(']').unwrap_or((after, ""));
            let id = identifier(name.trim_matches(['"', '\'']));
            done.push_str(&format!("{before}device.{map}[\"{driver}\"].{id}"));
            text = rest.to_owned();
        }
        text = done + &text;
    }
    text
}

fn items<'n, 'a>(node: &'n Node<'a>, key: &str) -> &'n [Node<'a>] {
    match tree::get(node, key).map(|node| &node.value) {
        Some(Value::Seq(items)) => items,
        _ => &[],
    }
}
