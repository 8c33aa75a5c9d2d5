//! Decoding turns a document into a [`Spec`], or into every reason why it is none.

use std::path::Path;

use super::Spec;
use crate::problem::{Problem, Severity};

/// A spec, and what its author may not have meant.
#[derive(Debug, Clone)]
pub struct Parsed {
    /// The spec, valid.
    pub spec: Spec,
    /// All of severity [`Severity::Warning`].
    pub warnings: Vec<Problem>,
}

/// Reads the spec that `bytes`, the content of `file`, hold.
///
/// # Errors
/// Everything that is wrong, in the order of the file; code `SPEC-INVALID`, or `SPEC-VERSION` when
/// the spec declares a version newer than 1.1.0.
pub fn read(file: &Path, bytes: &[u8]) -> Result<Parsed, Vec<Problem>> {
    let error = match crate::doc::read(bytes) {
        Ok(_) => return Err(Vec::new()),
        Err(error) => error,
    };
    Err(vec![Problem {
        file: file.to_owned(),
        at: error.at,
        device: None,
        field: None,
        severity: Severity::Error,
        code: "SPEC-INVALID",
        message: error.message,
    }])
}
