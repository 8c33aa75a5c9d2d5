//! The deviations of `cdi/DEVIATIONS.md` as predicates: what may differ, and only that. Most of
//! them ask again without what is judged differently, and then both must agree.

pub(crate) mod case;
pub(crate) mod document;
