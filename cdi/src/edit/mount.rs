//! Mounts: one per destination, and all of them in the order of their depth once one is new.

use std::borrow::Cow;

use serde::{Deserialize, de::IgnoredAny};

use super::{
    What,
    draft::{Draft, Entries, Entry, Holder, push_list},
    index::Index,
};
use crate::{
    oci::{Config, Slot, Span, push_string},
    resolve::{Origin, Resolution},
    spec::Mount,
};

/// A mount to make.
pub(super) struct Wanted<'a> {
    pub(super) origin: &'a Origin,
    pub(super) destination: &'a str,
    pub(super) source: &'a str,
    pub(super) kind: Option<&'a str>,
    pub(super) options: Vec<&'a str>,
}

/// A mount as the config has it. One with more members than these is another mount.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OciMount<'a> {
    #[serde(borrow)]
    destination: Cow<'a, str>,
    source: Option<Cow<'a, str>>,
    #[serde(rename = "type")]
    kind: Option<Cow<'a, str>>,
    options: Option<Vec<Cow<'a, str>>>,
}

/// Where the mount for a destination is asked for, and where it stands in the config.
#[derive(Default)]
struct Place {
    wanted: usize,
    first: Option<usize>,
    last: Option<usize>,
}

/// Applies the mounts of `resolution`, after those by which `binds` brings device nodes in.
pub(super) fn apply<'a>(
    draft: &mut Draft<'_, 'a>,
    resolution: &'a Resolution,
    binds: Vec<Wanted<'a>>,
) {
    let inside = draft.config.has_user_namespace();
    let id_mapped = is_id_mapped(draft.config);
    let of_parts = resolution.parts.iter().flat_map(|part| {
        part.edits.mounts.iter().map(|mount| wanted(mount, &part.origin, inside, id_mapped))
    });
    // The last one for a destination counts, at its own place.
    let all: Vec<Wanted<'a>> = binds.into_iter().chain(of_parts).collect();
    let mut known = Index::default();
    let mut places: Vec<Place> = Vec::new();
    for (wanted, mount) in all.iter().enumerate() {
        let place = Place { wanted, ..Place::default() };
        match places.get_mut(known.number(mount.destination.into())) {
            Some(earlier) => *earlier = place,
            None => places.push(place),
        }
    }
    if all.is_empty() {
        return;
    }
    let slot = &draft.config.layout().mounts;
    let mut entries = Entries::of(draft.config, slot);
    for (index, entry) in entries.list.iter().enumerate() {
        let number = known.get(&entry.key);
        if let Some(place) = number.and_then(|number| places.get_mut(number)) {
            place.first.get_or_insert(index);
            place.last = Some(index);
        }
    }
    for (index, mount) in all.iter().enumerate() {
        let number = known.get(mount.destination);
        let place = number.and_then(|number| places.get(number));
        let Some(place) = place.filter(|place| place.wanted == index) else { continue };
        let there = place.last.and_then(|last| entries.list.get(last));
        if there.is_some_and(|entry| is(&entry.json, mount)) {
            continue;
        }
        let what = if place.first.is_some() { What::Replaced } else { What::Added };
        if let Some(first) = place.first.and_then(|first| entries.list.get_mut(first)) {
            first.gone = true;
        }
        entries.push_as(what, json(mount), mount.destination, mount.origin);
    }
    entries.remove_gone();
    if entries.changed {
        sort(draft, &mut entries);
    }
    draft.set_list((Holder::Root, "mounts", "/mounts"), slot, &entries);
}

/// Sorts by depth, as Go does: a mount never hides one that was made below it before.
fn sort<'a>(draft: &mut Draft<'_, 'a>, entries: &mut Entries<'a>) {
    let first_new = entries.list.iter().find_map(|entry| entry.change);
    let old_order = |entries: &Entries<'_>| -> Vec<usize> {
        let old = entries.list.iter().filter(|entry| entry.change.is_none());
        old.map(|entry| entry.json.as_ptr() as usize).collect()
    };
    let before = old_order(entries);
    let depths = entries.list.iter().map(|entry| depth(&entry.key));
    let mut order: Vec<(usize, usize)> = depths.zip(0..).collect();
    order.sort_unstable();
    let mut list: Vec<Option<Entry<'a>>> =
        std::mem::take(&mut entries.list).into_iter().map(Some).collect();
    let taken = order.into_iter().filter_map(|(_, index)| list.get_mut(index)?.take());
    entries.list = taken.collect();
    if let Some((_, origin)) = first_new
        && before != old_order(entries)
    {
        draft.note(What::Reordered, origin, super::Place::Value("/mounts"));
    }
}

fn wanted<'a>(mount: &'a Mount, origin: &'a Origin, inside: bool, id_mapped: bool) -> Wanted<'a> {
    let mut kind = mount.kind.as_deref();
    let mut options: Vec<&str> = mount.options.iter().map(String::as_str).collect();
    // crun 1.28 dies of a bind mount without a type in a user namespace: "read status from sync
    // socket". Elsewhere it takes one, as runc does everywhere.
    if inside && options.iter().any(|option| matches!(*option, "bind" | "rbind")) {
        kind = kind.or(Some("bind"));
    }
    if id_mapped {
        options.extend(id_mapping(kind, &options));
    }
    Wanted { origin, destination: &mount.container_path, source: &mount.host_path, kind, options }
}

/// True with a user namespace and both its mappings: runc refuses an id-mapped mount without one
/// of them, as in a namespace that is joined.
fn is_id_mapped(config: &Config<'_>) -> bool {
    let some = |slot: &Slot<Span>| {
        let list =
            slot.there().map(|span| serde_json::from_str::<Vec<IgnoredAny>>(config.raw(*span)));
        list.is_some_and(|list| list.is_ok_and(|list| !list.is_empty()))
    };
    let linux = config.layout().linux.there().filter(|linux| linux.user_namespace);
    linux.is_some_and(|linux| some(&linux.uid_mappings) && some(&linux.gid_mappings))
}

/// The option by which a bind mount's owners are those of the user namespace.
fn id_mapping(kind: Option<&str>, options: &[&str]) -> Option<&'static str> {
    if options.iter().any(|option| matches!(*option, "idmap" | "ridmap")) {
        return None;
    }
    let by_options = options.iter().rev().find_map(|option| match *option {
        "bind" => Some("idmap"),
        "rbind" => Some("ridmap"),
        _ => None,
    });
    by_options.or((kind == Some("bind")).then_some("idmap"))
}

/// The number of slashes in the cleaned path, as Go counts them: `/` has one, as `/x` has.
fn depth(destination: &str) -> usize {
    let rooted = destination.starts_with('/');
    let mut parts: Vec<&str> = Vec::new();
    for part in destination.split('/').filter(|part| !part.is_empty() && *part != ".") {
        match (part, parts.last()) {
            ("..", None) if rooted => {}
            ("..", Some(&last)) if last != ".." => {
                parts.pop();
            }
            _ => parts.push(part),
        }
    }
    if rooted { parts.len().max(1) } else { parts.len().saturating_sub(1) }
}

fn is(there: &str, wanted: &Wanted<'_>) -> bool {
    serde_json::from_str(there).is_ok_and(|there: OciMount<'_>| {
        let kind = there.kind.filter(|kind| !kind.is_empty());
        there.destination == wanted.destination
            && there.source.unwrap_or_default() == wanted.source
            && kind.as_deref() == wanted.kind
            && there.options.unwrap_or_default() == wanted.options
    })
}

fn json(mount: &Wanted<'_>) -> String {
    let mut out = "{\"destination\":".to_owned();
    push_string(&mut out, mount.destination);
    if let Some(kind) = mount.kind {
        out.push_str(",\"type\":");
        push_string(&mut out, kind);
    }
    out.push_str(",\"source\":");
    push_string(&mut out, mount.source);
    if !mount.options.is_empty() {
        out.push_str(",\"options\":");
        push_list(&mut out, mount.options.iter().copied());
    }
    out.push('}');
    out
}
