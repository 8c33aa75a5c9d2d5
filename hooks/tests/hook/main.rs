//! The real binary, called as each engine calls it, in front of a low-level runtime that only
//! records how it was called.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking; clippy.toml exempts only functions marked as tests"
)]

mod container;
mod hostile;
mod passthrough;
mod precreate;
mod shim;
mod support;
mod trust;
mod verify;
