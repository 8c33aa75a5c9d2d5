//! CDI (Container Device Interface) 0.3.0 to 1.1.0: documents are read into specs, directories of
//! specs into a registry, requested names are resolved into edits, and the edits are applied to an
//! OCI runtime config.
//!
//! ```text
//! bytes ─ doc ─▶ Node ─ spec ─▶ Spec ─ registry ─▶ Registry ─ resolve ─▶ Resolution ─ edit ─▶ config.json
//! ```
//!
//! `resolve` and `edit` do no I/O of their own: device nodes are looked at through
//! [`host::Host`]. What deviates from the Go reference library is listed in `DEVIATIONS.md`.
#![forbid(unsafe_code)]

pub mod annotation;
pub mod doc;
pub mod edit;
pub mod errno;
pub mod file;
pub mod host;
pub mod name;
mod near;
pub mod oci;
pub mod problem;
pub mod registry;
pub mod resolve;
pub mod spec;
