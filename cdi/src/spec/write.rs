//! Writing puts a valid spec into a CDI directory, whole or not at all.

use std::path::{Path, PathBuf};

use super::{Spec, Version, check, check::Violation};
use crate::{
    file::{self, Durability, FileError, MAX_SPEC_BYTES, Trust},
    problem::{Severity, quoted},
};

/// Everybody may read specs: a rootless engine reads them as its user.
const MODE: u32 = 0o644;

/// Why a spec was not written or not removed. Nothing has changed then.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The name is none for a spec's file.
    #[error("{} is no name for a spec file: {why}", quoted(.name))]
    Name {
        /// As given.
        name: String,
        /// The rule it breaks.
        why: &'static str,
    },
    /// No reader would take the spec.
    #[error("the spec for {} is invalid: {}", .path.display(), joined(.violations))]
    Invalid {
        /// Where it was to go.
        path: PathBuf,
        /// Every reason; never empty.
        violations: Vec<Violation>,
    },
    /// It has more bytes than a reader takes.
    #[error("the spec for {} has {size} bytes, more than the limit of {MAX_SPEC_BYTES}", .path.display())]
    TooLarge {
        /// Where it was to go.
        path: PathBuf,
        /// Its size, bytes.
        size: usize,
    },
    /// It cannot be told in JSON, which no spec is known to be.
    #[error("the spec for {} cannot be written as JSON", .path.display())]
    Json {
        /// Where it was to go.
        path: PathBuf,
        /// What serde_json says.
        #[source]
        source: serde_json::Error,
    },
    /// The file could not be written or removed.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Writes `spec` to `dir/name` and returns that path: mode 0644, synced, in one step for readers.
/// What it declares is lowered (or raised) to [`Version::required_by`].
///
/// `name` ends in `.json` or `.yaml`, without which no reader looks at the file. The content is
/// compact JSON and a line feed in both cases: JSON is YAML.
///
/// # Errors
/// When the name is none, the spec breaks a rule, or the system refuses.
pub fn write(dir: &Path, name: &str, spec: &Spec) -> Result<PathBuf, WriteError> {
    let (path, bytes) = encode(dir, name, spec)?;
    file::replace(&path, &bytes, MODE, Durability::Durable)?;
    Ok(path)
}

/// [`write`], unless the file has just these bytes already. The bytes, and whether they were written.
///
/// # Errors
/// As [`write`].
pub fn keep(dir: &Path, name: &str, spec: &Spec) -> Result<(Vec<u8>, bool), WriteError> {
    let (path, bytes) = encode(dir, name, spec)?;
    let there = file::read(&path, MAX_SPEC_BYTES, &Trust::of_process());
    let same = there.is_ok_and(|there| there == bytes);
    if !same {
        file::replace(&path, &bytes, MODE, Durability::Durable)?;
    }
    Ok((bytes, !same))
}

fn encode(dir: &Path, name: &str, spec: &Spec) -> Result<(PathBuf, Vec<u8>), WriteError> {
    let path = path(dir, name)?;
    let spec = Spec { version: Version::required_by(spec), ..spec.clone() };
    let mut violations = check(&spec);
    violations.retain(|violation| violation.severity == Severity::Error);
    if !violations.is_empty() {
        return Err(WriteError::Invalid { path, violations });
    }
    let mut bytes = match serde_json::to_vec(&spec) {
        Ok(bytes) => bytes,
        Err(source) => return Err(WriteError::Json { path, source }),
    };
    bytes.push(b'\n');
    if bytes.len() > MAX_SPEC_BYTES {
        return Err(WriteError::TooLarge { path, size: bytes.len() });
    }
    Ok((path, bytes))
}

/// Removes the spec `dir/name`; false when there was none.
///
/// # Errors
/// When the name is none, or the system refuses.
pub fn remove(dir: &Path, name: &str) -> Result<bool, WriteError> {
    Ok(file::remove(&path(dir, name)?, Durability::Durable)?)
}

fn path(dir: &Path, name: &str) -> Result<PathBuf, WriteError> {
    let stem = name.strip_suffix(".json").or_else(|| name.strip_suffix(".yaml"));
    let why = match stem {
        None => "it must end in .json or .yaml",
        Some("") => "something must stand before the extension",
        Some(_) if name.starts_with('.') => "it must not start with a dot",
        Some(_) if name.contains(|c: char| c == '/' || c.is_control()) => {
            "slashes and control characters are not allowed"
        }
        Some(_) if name.len() > 255 => "at most 255 bytes are allowed",
        Some(_) => return Ok(dir.join(name)),
    };
    Err(WriteError::Name { name: name.to_owned(), why })
}

fn joined(violations: &[Violation]) -> String {
    violations.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests;
