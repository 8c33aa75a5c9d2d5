//! Skimming reads a spec for a few of its devices. Of the others it looks only whether they are
//! valid, and only at those that are plain to see; a spec of a node's GPUs and MIG devices has
//! hundreds that a container does not ask for.

use super::{Decoder, Spec, Version, check};
use crate::{
    doc::{
        self,
        tape::{Item, Kind},
    },
    name,
    problem::Severity,
};

/// The spec that `bytes` hold, without some of the devices that nobody `wants`. None when it may be
/// invalid: [`super::read`] says, and says why.
pub(crate) fn skim(bytes: &[u8], wants: impl Fn(&str) -> bool) -> Option<Spec> {
    let document = doc::read_tape(bytes).ok()?;
    let top = document.top();
    let version = Version::parse(top.get("cdiVersion")?.text())?;
    let (mut names, mut passed) = (Vec::new(), Vec::new());
    for device in top.get("devices")?.items() {
        let name = device.get("name")?.text();
        names.push(name);
        passed.push(!wants(name) && is_plain(device, version));
    }
    names.sort_unstable();
    let is_unique = names.is_sorted_by(|one, next| one < next);
    let mut decoder = Decoder { passed, ..Decoder::default() };
    let spec = decoder.spec(top);
    let mut severities = decoder.found.iter().map(|found| found.severity);
    let is_good = is_unique
        && severities.all(|severity| severity == Severity::Warning)
        && check::check(&spec).iter().all(|broken| broken.severity == Severity::Warning);
    is_good.then_some(spec)
}

/// Whether a device is a name and device nodes, all valid in `version`.
fn is_plain(device: Item<'_>, version: Version) -> bool {
    let nodes = || {
        let [name, edits] = values(device, ["name", "containerEdits"])?;
        let has_old_name = !name.text().starts_with(|c: char| c.is_ascii_digit());
        let is_name = is_text(name) && name::check_device(name.text()).is_ok();
        let [nodes] = values(edits, ["deviceNodes"])?;
        (is_name && (has_old_name || version >= Version::V0_5_0)).then_some(nodes)
    };
    nodes().is_some_and(|nodes| {
        nodes.items().next().is_some() && nodes.items().all(|node| is_plain_node(node, version))
    })
}

/// The values of a mapping that has these keys, in this order, and no others.
fn values<'t, const N: usize>(item: Item<'t>, keys: [&str; N]) -> Option<[Item<'t>; N]> {
    let mut entries = item.entries();
    let mut values = [item; N];
    for (key, place) in keys.into_iter().zip(&mut values) {
        let (found, value) = entries.next()?;
        *place = (found.text() == key).then_some(value)?;
    }
    entries.next().is_none().then_some(values)
}

fn is_plain_node(node: Item<'_>, version: Version) -> bool {
    let mut seen = 0_u32;
    let mut once = |bit: u32| {
        let is_first = seen & 1 << bit == 0;
        seen |= 1 << bit;
        is_first
    };
    let is_plain = node.entries().all(|(key, value)| {
        let text = value.text();
        match key.text() {
            "path" => once(0) && is_text(value) && !text.is_empty(),
            "hostPath" => {
                once(1) && is_text(value) && !text.is_empty() && version >= Version::V0_5_0
            }
            "type" => once(2) && is_text(value) && matches!(text, "b" | "c" | "u" | "p"),
            "major" => once(3) && is_short_number(value),
            "minor" => once(4) && is_short_number(value),
            "fileMode" => once(5) && is_short_number(value),
            "permissions" => {
                once(6) && is_text(value) && text.bytes().all(|c| matches!(c, b'r' | b'w' | b'm'))
            }
            "uid" => once(7) && is_short_number(value),
            "gid" => once(8) && is_short_number(value),
            _ => false,
        }
    });
    is_plain && seen & 1 == 1
}

fn is_text(item: Item<'_>) -> bool {
    matches!(item.kind(), Kind::Plain | Kind::Quoted)
}

/// A decimal number that every field of a node can hold.
fn is_short_number(item: Item<'_>) -> bool {
    let digits = item.text().as_bytes();
    // A leading zero may mean octal: that is for the decoder.
    let is_decimal = digits == b"0" || digits.first() != Some(&b'0');
    item.kind() == Kind::Number
        && digits.len() < 10
        && is_decimal
        && digits.iter().all(u8::is_ascii_digit)
}

#[cfg(test)]
mod tests;
