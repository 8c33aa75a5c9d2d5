//! Environment: a variable that is there is replaced in its place, another one is appended.

use std::borrow::Cow;

use super::{
    What,
    draft::{Draft, Entries, Holder},
    index::Index,
};
use crate::{
    oci::{Slot, decode, push_string},
    resolve::{Origin, Resolution},
};

/// A variable to set.
struct Variable<'a> {
    text: &'a str,
    origin: &'a Origin,
    /// Its place in the list that is there. Of a variable that is there twice the last one
    /// counts, as in Go.
    place: Option<usize>,
}

pub(super) fn apply<'a>(draft: &mut Draft<'_, 'a>, resolution: &'a Resolution) {
    let mut variables: Vec<Variable<'a>> = Vec::new();
    let mut known = Index::default();
    for part in &resolution.parts {
        for text in &part.edits.env {
            let variable = Variable { text, origin: &part.origin, place: None };
            let index = known.number(key(text).into());
            match variables.get_mut(index) {
                Some(earlier) => *earlier = variable,
                None => variables.push(variable),
            }
        }
    }
    if variables.is_empty() {
        return;
    }
    let slot = draft.config.layout().process.there().map_or(&Slot::Absent, |p| &p.env);
    let mut entries = Entries::of(draft.config, slot);
    for (place, text) in draft.config.env().enumerate() {
        let index = known.get(key(&text));
        if let Some(variable) = index.and_then(|index| variables.get_mut(index)) {
            variable.place = Some(place);
        }
    }
    for Variable { text, origin, place } in variables {
        let mut json = String::with_capacity(text.len() + 2);
        push_string(&mut json, text);
        match place.and_then(|place| entries.list.get_mut(place)) {
            None => entries.push(json, "", origin),
            Some(entry) if decode(&entry.json) == text => {}
            Some(entry) => {
                entry.json = Cow::Owned(json);
                entry.change = Some((What::Replaced, origin));
                entries.changed = true;
            }
        }
    }
    draft.set_list((Holder::Process, "env", "/process/env"), slot, &entries);
}

/// The name of a variable. An entry without `=` is all name, as in Go.
fn key(text: &str) -> &str {
    text.split_once('=').map_or(text, |(key, _)| key)
}
