//! A fake NVML is a `libnvidia-ml.so.1` without GPUs: the C calls that divvy makes, on GPUs that a
//! folder describes. It is stateful, as hostile as the hardware, and scripted from a file while it
//! runs. The folder stands for `/` of a host, and has what belongs to such a driver.
//!
//! ```text
//! HOST/.fake-nvml/state.json    the GPUs and what was made on them, changed under a lock
//! HOST/.fake-nvml/script.json   which calls are slow, hang or fail, and how often (Rule)
//! HOST/.fake-nvml/calls         every call, a line each, if the file is there
//! HOST/.fake-nvml/timeslice/…   a GPU's time slice: what the fake nvidia-smi sets
//! HOST/usr/lib/…, HOST/usr/bin/nvidia-smi      the driver's files, as a Layout has them
//! HOST/usr/bin/nvidia-cuda-mps-control, where it was asked for: mps.rs
//! HOST/proc, HOST/sys, HOST/dev
//! ```
//!
//! The library finds its host by its own path, so many can be open at once.

mod abi;
mod elf;
mod host;
mod layout;
#[path = "../../../src/gpu/model/mod.rs"]
pub mod model;
pub mod mps;
mod script;
mod state;
mod store;
mod tree;

pub use elf::library;
pub use host::FakeHost;
pub use layout::Layout;
pub use script::Rule;
pub use state::{Compute, Event, Gpu, Health, Instance, State};
