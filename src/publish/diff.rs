//! A difference is what is to be written so that a pool's slices are what they should be.

use std::collections::BTreeMap;

use super::{Slice, object::Object};

/// What is to be written, in this order.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Writes {
    /// The pool's generation, which all slices have afterwards.
    pub(super) generation: i64,
    /// Names of slices that are none of the pool.
    pub(super) delete: Vec<String>,
    /// Places at which a slice is to be written, and the name of the one that is there.
    pub(super) write: Vec<(usize, Option<String>)>,
}

/// The difference between the slices of a pool that are there and those that should be.
///
/// The generation stays while no more than one slice changes: nobody then sees half of the change. Else
/// it rises, beyond `least` too, the highest that was seen of the pool: all slices get it, and the pool
/// counts for schedulers when it is whole again.
pub(super) fn diff<'a>(
    pool: &str,
    desired: &[Slice],
    there: impl Iterator<Item = &'a Object> + Clone,
    least: i64,
) -> Writes {
    let own = there.clone().filter(|object| object.pool == pool);
    let newest = own.clone().map(|object| object.generation).max().unwrap_or(0);
    let mut places: BTreeMap<usize, &Object> = BTreeMap::new();
    let mut delete = Vec::new();
    for object in there {
        let index = object.index().filter(|index| *index < desired.len());
        let current = object.pool == pool && object.generation == newest;
        match index.filter(|index| current && !places.contains_key(index)) {
            Some(index) => drop(places.insert(index, object)),
            None => delete.push(object.name.clone()),
        }
    }
    let count = i64::try_from(desired.len()).unwrap_or(i64::MAX);
    let is_right = |(index, slice): &(usize, &Slice)| {
        places.get(index).is_some_and(|object| object.holds(slice) && object.count == count)
    };
    let wrong: Vec<usize> =
        desired.iter().enumerate().filter(|one| !is_right(one)).map(|(index, _)| index).collect();
    let created = wrong.iter().any(|index| !places.contains_key(index));
    let stays = wrong.len() <= 1 && !created;
    let generation = if stays { newest } else { newest.max(least).saturating_add(1) };
    let place = |index: usize| (index, places.get(&index).map(|object| object.name.clone()));
    let write = match stays {
        true => wrong.into_iter().map(place).collect(),
        false => (0..desired.len()).map(place).collect(),
    };
    Writes { generation, delete, write }
}

// === impl Writes ===

impl Writes {
    /// True where everything is as it should be.
    pub(super) fn is_empty(&self) -> bool {
        self.delete.is_empty() && self.write.is_empty()
    }
}
