//! CDI (Container Device Interface) 0.3.0 to 1.1.0: documents are read into specs, directories of
//! specs into a registry, requested names are resolved into edits, and the edits are applied to an
//! OCI runtime config.
//!
//! ```text
//! bytes ─ doc ─▶ Node ─ spec ─▶ Spec ─ registry ─▶ Registry ─ resolve ─▶ Resolution ─ edit ─▶ config.json
//! ```
//!
//! The hook's whole work:
//!
//! ```no_run
//! use divvy_cdi::{edit, file::Trust, host::ThisHost, oci::Config, registry, resolve};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let bytes = b"{}";
//! let config = Config::parse(bytes)?;
//! let dirs = registry::DEFAULT_DIRS.map(Into::into);
//! let names = ["nvidia.com/gpu=0".parse()?];
//! let resolution = resolve::lookup(&dirs, &names, &Trust::of_process())?;
//! let edited = edit::apply(&config, &resolution, &ThisHost, edit::Options::default())?;
//! # let _ = edited.bytes;
//! # Ok(())
//! # }
//! ```
//!
//! `edit` does no I/O of its own: it looks at the host through [`host::Host`]. What deviates from
//! the Go reference library is listed in `DEVIATIONS.md`.
#![forbid(unsafe_code)]

pub mod annotation;
pub mod doc;
pub mod edit;
pub mod errno;
pub mod file;
pub mod host;
pub mod name;
pub mod near;
pub mod oci;
pub mod problem;
pub mod registry;
pub mod resolve;
pub mod spec;
