//! An index: numbers given to names, in the order in which they come.
//!
//! What an edit knows of a name stands in a list at its number. One map serves all edits: each
//! further type of map would be as much code again in a binary that is read at every start.

use std::{borrow::Cow, collections::BTreeMap};

/// Names and their numbers, from 0. Their lengths tell most of them apart sooner than their
/// letters, of which paths have many in common.
#[derive(Debug, Default)]
pub(super) struct Index<'a>(BTreeMap<(usize, Cow<'a, str>), usize>);

// === impl Index ===

impl<'a> Index<'a> {
    /// The number of `name`, the next one if it is new.
    pub(super) fn number(&mut self, name: Cow<'a, str>) -> usize {
        let next = self.0.len();
        *self.0.entry((name.len(), name)).or_insert(next)
    }

    /// True when `name` has no number yet; it has one then.
    pub(super) fn is_new(&mut self, name: Cow<'a, str>) -> bool {
        let next = self.0.len();
        self.number(name) == next
    }

    pub(super) fn get(&self, name: &str) -> Option<usize> {
        self.0.get(&(name.len(), name.into())).copied()
    }
}
