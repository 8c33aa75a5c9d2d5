//! Environment: a variable that is there is replaced in its place, another one is appended.

use super::{
    Place, What,
    draft::{Draft, Holder},
    index::Index,
};
use crate::{
    oci::{Slot, push_string},
    resolve::{Origin, Resolution},
};

const POINTER: &str = "/process/env";

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
    let config = draft.config;
    let slot = config.layout().process.there().map_or(&Slot::Absent, |p| &p.env);
    for (place, text) in config.env().enumerate() {
        let index = known.get(key(&text));
        if let Some(variable) = index.and_then(|index| variables.get_mut(index)) {
            variable.place = Some(place);
        }
    }
    let there = slot.there().map_or(&[][..], |list| &list.items);
    let mut added = Vec::new();
    for Variable { text, origin, place } in variables {
        let mut json = String::with_capacity(text.len() + 2);
        push_string(&mut json, text);
        match place.and_then(|place| Some((place, there.get(place)?.span))) {
            None => added.push((json, origin)),
            Some((_, span)) if config.string(span) == text => {}
            Some((place, span)) => {
                draft.replace(span, json);
                draft.note(What::Replaced, origin, Place::Item(POINTER, place));
            }
        }
    }
    draft.append((Holder::Process, "env", POINTER), slot, added);
}

/// The name of a variable. An entry without `=` is all name, as in Go.
fn key(text: &str) -> &str {
    memchr::memchr(b'=', text.as_bytes()).and_then(|end| text.get(..end)).unwrap_or(text)
}
