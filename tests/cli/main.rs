//! The command line as a person or a program meets it: the real binaries, on a simulated node, in
//! a folder of their own.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "what clippy.toml allows in tests, and here also in what they share"
)]

mod allocate;
mod crash;
mod daemon;
mod declared;
mod devices;
mod hostile;
mod inject;
mod install;
mod lint;
mod migrate;
mod prepare;
mod race;
mod support;
mod unprepare;
mod usage;
