//! A draft: the changes to a config that were decided, and the text that they make of it.

use std::borrow::Cow;

use super::{Change, Edited, Place, What};
use crate::{
    oci::{Config, List, Object, Slot, Span, push_string},
    resolve::Origin,
};

/// Blanks longer than this are no indentation and are not repeated.
const MAX_INDENT: usize = 64;

/// The objects of a config that get new members, each in front of the one that holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Holder {
    User,
    Process,
    Hooks,
    Resources,
    NetDevices,
    Linux,
    Root,
}

/// An element of a list in the making.
#[derive(Debug)]
pub(super) struct Entry<'a> {
    /// Its JSON.
    pub(super) json: Cow<'a, str>,
    /// The string that it is known by, decoded.
    pub(super) key: Cow<'a, str>,
    /// To be taken out.
    pub(super) gone: bool,
    /// On whose behalf it is new.
    pub(super) change: Option<(What, &'a Origin)>,
}

/// A list in the making.
#[derive(Debug)]
pub(super) struct Entries<'a> {
    pub(super) list: Vec<Entry<'a>>,
    pub(super) changed: bool,
}

#[derive(Debug)]
struct Patch {
    span: Span,
    text: String,
}

#[derive(Debug)]
pub(super) struct Draft<'c, 'a> {
    pub(super) config: &'c Config<'a>,
    patches: Vec<Patch>,
    changes: Vec<Change<'a>>,
    members: [Vec<(Cow<'a, str>, String)>; 7],
}

// === impl Draft ===

impl<'c, 'a> Draft<'c, 'a> {
    pub(super) fn new(config: &'c Config<'a>) -> Self {
        Self { config, patches: Vec::new(), changes: Vec::new(), members: Default::default() }
    }

    /// Notes a change outside of lists.
    pub(super) fn note(&mut self, what: What, origin: &'a Origin, place: Place<'a>) {
        self.changes.push(Change { what, origin, place });
    }

    /// Puts `text` in the place of what is at `span`.
    pub(super) fn replace(&mut self, span: Span, text: String) {
        // In the order of the text; of two at one place the first stays first.
        let at = self.patches.partition_point(|patch| patch.span.start <= span.start);
        self.patches.insert(at, Patch { span, text });
    }

    /// Gives `holder` the member `key`, which it has not.
    pub(super) fn add_member(&mut self, holder: Holder, key: Cow<'a, str>, value: String) {
        if let Some(members) = self.members.get_mut(holder as usize) {
            members.push((key, value));
        }
    }

    /// Gives `holder` the value `text` for `key`, wherever that stands now.
    pub(super) fn set(
        &mut self,
        holder: Holder,
        key: &'static str,
        old: Option<Span>,
        text: String,
    ) {
        match old {
            Some(span) => self.replace(span, text),
            None => self.add_member(holder, key.into(), text),
        }
    }

    /// Gives `holder` the list `entries` for `key`, where that was `old`. `pointer` is the
    /// list's place.
    pub(super) fn set_list(
        &mut self,
        (holder, key, pointer): (Holder, &'static str, &'static str),
        old: &Slot<List>,
        entries: &Entries<'a>,
    ) {
        if !entries.changed {
            return;
        }
        for (index, entry) in entries.list.iter().enumerate() {
            if let Some((what, origin)) = entry.change {
                self.note(what, origin, Place::Item(pointer, index));
            }
        }
        let text = list_text(self.config, old.there(), &entries.list);
        let span = match old {
            Slot::Absent => None,
            Slot::Null(span) => Some(*span),
            Slot::There(list) => Some(list.span),
        };
        self.set(holder, key, span, text);
    }

    /// Appends `added` to the list that `holder` has for `key`, where that was `old`. A long list
    /// is not written again for it.
    pub(super) fn append(
        &mut self,
        (holder, key, pointer): (Holder, &'static str, &'static str),
        old: &Slot<List>,
        added: Vec<(String, &'a Origin)>,
    ) {
        let there =
            old.there().and_then(|list| Some((list, list.items.first()?, list.items.last()?)));
        let Some((list, first, last)) = there else {
            let mut entries = Entries::of(self.config, old);
            for (json, origin) in added {
                entries.push(json, "", origin);
            }
            return self.set_list((holder, key, pointer), old, &entries);
        };
        let before = indent(self.config, list.span.start + 1, first.span.start);
        let mut text = String::new();
        for (index, (json, origin)) in (list.items.len()..).zip(added) {
            self.note(What::Added, origin, Place::Item(pointer, index));
            text.push(',');
            text.push_str(before);
            text.push_str(&json);
        }
        if !text.is_empty() {
            let end = last.span.end;
            self.replace(Span { start: end, end }, text);
        }
    }

    /// The new text.
    pub(super) fn finish(mut self) -> Edited<'a> {
        if self.patches.is_empty() && self.members.iter().all(Vec::is_empty) {
            let bytes = Cow::Borrowed(self.config.text().as_bytes());
            return Edited { bytes, changes: Vec::new() };
        }
        self.close_all();
        let text = self.config.text();
        let added: usize = self.patches.iter().map(|patch| patch.text.len()).sum();
        let mut out = String::with_capacity(text.len() + added);
        let mut done = 0;
        for patch in &self.patches {
            out.push_str(text.get(done..patch.span.start).unwrap_or_default());
            out.push_str(&patch.text);
            done = patch.span.end;
        }
        out.push_str(text.get(done..).unwrap_or_default());
        Edited { bytes: Cow::Owned(out.into_bytes()), changes: self.changes }
    }

    /// Turns new members into patches, inner objects first: one that was not there becomes a new
    /// member of the next.
    fn close_all(&mut self) {
        let layout = self.config.layout();
        let process = layout.process.map(|process| process.object);
        let user = child(&layout.process, |process| process.user.map(|user| user.object));
        let linux = layout.linux.map(|linux| linux.object);
        let resources = child(&layout.linux, |linux| linux.resources.map(|r| r.object));
        let net = child(&layout.linux, |linux| linux.net_devices.map(|net| net.object));
        let hooks = layout.hooks.map(|hooks| hooks.object);

        self.close(Holder::User, user, "\"uid\":0,\"gid\":0", Some((Holder::Process, "user")));
        // What Go's zero values write: both are required.
        let has_user = self.members_of(Holder::Process).iter().any(|(key, _)| *key == "user");
        let defaults =
            if has_user { "\"cwd\":\"\"" } else { "\"user\":{\"uid\":0,\"gid\":0},\"cwd\":\"\"" };
        self.close(Holder::Process, process, defaults, Some((Holder::Root, "process")));
        self.close(Holder::Hooks, hooks, "", Some((Holder::Root, "hooks")));
        self.close(Holder::Resources, resources, "", Some((Holder::Linux, "resources")));
        self.close(Holder::NetDevices, net, "", Some((Holder::Linux, "netDevices")));
        self.close(Holder::Linux, linux, "", Some((Holder::Root, "linux")));
        self.close(Holder::Root, Slot::There(layout.root), "", None);
    }

    /// Writes the new members of one object. `defaults` are the members that it gets when it is
    /// new itself, then as the member `within` of another.
    fn close(
        &mut self,
        holder: Holder,
        place: Slot<Object>,
        defaults: &str,
        within: Option<(Holder, &'static str)>,
    ) {
        let members = self.members.get_mut(holder as usize).map(std::mem::take).unwrap_or_default();
        if members.is_empty() {
            return;
        }
        let separator = match place {
            Slot::There(object) => {
                format!(",{}", indent(self.config, object.open, object.first))
            }
            Slot::Absent | Slot::Null(_) => ",".to_owned(),
        };
        let mut text = String::new();
        if let Slot::Absent | Slot::Null(_) = place {
            text.push_str(defaults);
        }
        let follows = matches!(place, Slot::There(object) if !object.is_empty());
        for (key, value) in members {
            if follows || !text.is_empty() {
                text.push_str(&separator);
            }
            push_string(&mut text, &key);
            text.push(':');
            text.push_str(&value);
        }
        match (place, within) {
            (Slot::There(Object { last, .. }), _) => {
                self.replace(Span { start: last, end: last }, text);
            }
            (Slot::Null(span), _) => self.replace(span, format!("{{{text}}}")),
            (Slot::Absent, Some((holder, key))) => {
                self.add_member(holder, key.into(), format!("{{{text}}}"));
            }
            (Slot::Absent, None) => {}
        }
    }

    fn members_of(&self, holder: Holder) -> &[(Cow<'a, str>, String)] {
        self.members.get(holder as usize).map_or(&[], Vec::as_slice)
    }
}

// === impl Entries ===

impl<'a> Entries<'a> {
    /// The list as it is.
    pub(super) fn of(config: &Config<'a>, list: &Slot<List>) -> Self {
        let items = list.there().map_or(&[][..], |list| &list.items);
        let entry = |item: &crate::oci::Item| Entry {
            json: Cow::Borrowed(config.raw(item.span)),
            key: item.key.map(|key| config.string(key)).unwrap_or_default(),
            gone: false,
            change: None,
        };
        Self { list: items.iter().map(entry).collect(), changed: false }
    }

    /// Appends a new element.
    pub(super) fn push(&mut self, json: String, key: &'a str, origin: &'a Origin) {
        self.push_as(What::Added, json, key, origin);
    }

    /// Takes out the elements that are marked.
    pub(super) fn remove_gone(&mut self) {
        let before = self.list.len();
        self.list.retain(|entry| !entry.gone);
        self.changed |= self.list.len() < before;
    }

    /// Appends a new element that stands for one that was there.
    pub(super) fn push_as(&mut self, what: What, json: String, key: &'a str, origin: &'a Origin) {
        let change = Some((what, origin));
        let (json, key) = (Cow::Owned(json), Cow::Borrowed(key));
        self.list.push(Entry { json, key, gone: false, change });
        self.changed = true;
    }
}

/// A member of an object that may itself not be there.
fn child<T, U>(slot: &Slot<T>, of: impl FnOnce(&T) -> Slot<U>) -> Slot<U> {
    slot.there().map_or(Slot::Absent, of)
}

/// `entries` as a list that is laid out as `old` was.
fn list_text(config: &Config<'_>, old: Option<&List>, entries: &[Entry<'_>]) -> String {
    let outer = old.and_then(|list| Some((list, list.items.first()?, list.items.last()?)));
    let (before, after) = outer.map_or(("", ""), |(list, first, last)| {
        let before = indent(config, list.span.start + 1, first.span.start);
        (before, indent(config, last.span.end, list.span.end - 1))
    });
    let size: usize = entries.iter().map(|entry| entry.json.len() + 1 + before.len()).sum();
    let mut out = String::with_capacity(size + after.len() + 2);
    out.push('[');
    for (index, entry) in entries.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        out.push_str(before);
        out.push_str(&entry.json);
    }
    if !entries.is_empty() {
        out.push_str(after);
    }
    out.push(']');
    out
}

/// The blanks between two places.
fn indent<'a>(config: &Config<'a>, start: usize, end: usize) -> &'a str {
    let blanks = config.raw(Span { start, end });
    if blanks.len() > MAX_INDENT { "" } else { blanks }
}

/// Appends `strings` as a JSON list.
pub(super) fn push_list<'a>(out: &mut String, strings: impl Iterator<Item = &'a str>) {
    out.push('[');
    for (index, string) in strings.enumerate() {
        if index > 0 {
            out.push(',');
        }
        push_string(out, string);
    }
    out.push(']');
}
