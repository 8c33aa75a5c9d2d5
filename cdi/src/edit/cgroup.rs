//! Device rules: `linux.resources.devices`, the later of two rules counts.

use std::borrow::Cow;

use serde::Deserialize;

use super::{
    draft::{Draft, Entries, Holder},
    index::Index,
};
use crate::{
    oci::{Slot, push_string},
    resolve::Origin,
};

/// A rule to add: allow this device.
#[derive(Debug, Clone)]
pub(super) struct Wanted<'a> {
    pub(super) origin: &'a Origin,
    /// `b` or `c`.
    pub(super) kind: &'static str,
    pub(super) major: i64,
    pub(super) minor: i64,
    /// Any of `r`, `w`, `m`; nothing means no access.
    pub(super) access: &'a str,
}

#[derive(Deserialize)]
struct OciRule<'a> {
    #[serde(default)]
    allow: bool,
    #[serde(rename = "type", borrow)]
    kind: Option<Cow<'a, str>>,
    major: Option<i64>,
    minor: Option<i64>,
    access: Option<Cow<'a, str>>,
}

/// The devices that are allowed, by [`key`], and the access of each.
#[derive(Default)]
struct Allowed {
    index: Index<'static>,
    access: Vec<u8>,
}

/// Appends the rules that are not in force already, after whatever is there.
pub(super) fn apply<'a>(draft: &mut Draft<'_, 'a>, rules: &[Wanted<'a>]) {
    if rules.is_empty() {
        return;
    }
    let linux = draft.config.layout().linux.there();
    let resources = linux.and_then(|linux| linux.resources.there());
    let slot = resources.map_or(&Slot::Absent, |resources| &resources.devices);
    let mut entries = Entries::of(draft.config, slot);
    let mut allowed = Allowed::of(&entries);
    for rule in rules {
        if !allowed.covers(rule) {
            allowed.add(key(rule.kind, Some(rule.major), Some(rule.minor)), rule.access);
            entries.push(json(rule), "", rule.origin);
        }
    }
    let place = (Holder::Resources, "devices", "/linux/resources/devices");
    draft.set_list(place, slot, &entries);
}

// === impl Allowed ===

impl Allowed {
    /// What the rules behind the last denial allow. What we cannot read may be a denial.
    fn of(entries: &Entries<'_>) -> Self {
        let mut allowed = Self::default();
        for entry in entries.list.iter().rev() {
            match serde_json::from_str(&entry.json) {
                Ok(OciRule { allow: true, kind, major, minor, access }) => {
                    let any = |number: Option<i64>| number.filter(|number| *number != -1);
                    let kind = kind.filter(|kind| !kind.is_empty()).unwrap_or("a".into());
                    allowed.add(key(&kind, any(major), any(minor)), &access.unwrap_or_default());
                }
                _ => break,
            }
        }
        allowed
    }

    fn add(&mut self, key: String, access: &str) {
        let number = self.index.number(key.into());
        match self.access.get_mut(number) {
            Some(there) => *there |= bits(access),
            None => self.access.push(bits(access)),
        }
    }

    fn covers(&self, rule: &Wanted<'_>) -> bool {
        let mut found = None;
        for kind in [rule.kind, "a"] {
            for major in [Some(rule.major), None] {
                for minor in [Some(rule.minor), None] {
                    let number = self.index.get(&key(kind, major, minor));
                    if let Some(bits) = number.and_then(|number| self.access.get(number)) {
                        found = Some(found.unwrap_or(0) | bits);
                    }
                }
            }
        }
        found.is_some_and(|found| found & bits(rule.access) == bits(rule.access))
    }
}

/// A type (`a` is any), major and minor (`None` is any).
fn key(kind: &str, major: Option<i64>, minor: Option<i64>) -> String {
    let mut key = kind.to_owned();
    for number in [major, minor] {
        key.push(' ');
        key.push_str(&number.map_or_else(|| "*".to_owned(), |number| number.to_string()));
    }
    key
}

fn bits(access: &str) -> u8 {
    let bit = |letter, bit| if access.contains(letter) { bit } else { 0 };
    bit('r', 1) | bit('w', 2) | bit('m', 4)
}

fn json(rule: &Wanted<'_>) -> String {
    let Wanted { kind, major, minor, access, .. } = rule;
    let mut out =
        format!("{{\"allow\":true,\"type\":\"{kind}\",\"major\":{major},\"minor\":{minor}");
    if !access.is_empty() {
        out.push_str(",\"access\":");
        push_string(&mut out, access);
    }
    out.push('}');
    out
}
