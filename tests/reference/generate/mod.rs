//! Random but repeatable questions: the same seed gives the same documents, directories, requests
//! and configs on every machine.

pub(crate) mod config;
pub(crate) mod name;
pub(crate) mod render;
pub(crate) mod spec;
pub(crate) mod tree;

use fastrand::Rng;

/// One of `choices`.
pub(crate) fn pick<T: Copy>(rng: &mut Rng, choices: &[T]) -> T {
    choices[rng.usize(..choices.len())]
}

/// True once in `times`.
pub(crate) fn once_in(rng: &mut Rng, times: usize) -> bool {
    rng.usize(..times) == 0
}

/// So many of what `make` gives.
pub(crate) fn some<T>(rng: &mut Rng, most: usize, mut make: impl FnMut(&mut Rng) -> T) -> Vec<T> {
    (0..rng.usize(..=most)).map(|_| make(rng)).collect()
}
