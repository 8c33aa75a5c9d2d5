//! Why a record is not read or not written.

use std::path::PathBuf;

use divvy_cdi::{file::FileError, problem::quoted};

/// Why a record is not read or not written.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The file or its directory: unreadable, not regular, too large, not trusted.
    #[error(transparent)]
    File(#[from] FileError),
    /// Not a record.
    #[error("record {} is no valid record: {why}; prepare the claim again", .path.display())]
    Invalid {
        /// The record.
        path: PathBuf,
        /// What is wrong, with line and column where there is one.
        why: String,
    },
    /// Written by a newer divvy.
    #[error(
        "record {} has version {found}, and this divvy reads version {}: install the same divvy \
         for the hook and the node side",
        .path.display(),
        super::VERSION
    )]
    Version {
        /// The record.
        path: PathBuf,
        /// Its version.
        found: u32,
    },
    /// The record is about another object than its place says.
    #[error("record {} has {what} {}, but stands in the place of {}; prepare the claim again", .path.display(), quoted(.found), quoted(.wanted))]
    Misplaced {
        /// The record.
        path: PathBuf,
        /// `uid`, `namespace`, `name` or `origin`.
        what: &'static str,
        /// What the record says.
        found: String,
        /// What its place says.
        wanted: String,
    },
    /// A UID, namespace or name that cannot be part of a path.
    #[error(
        "{what} {} cannot name a record: 1 to 253 letters, digits, '-', '_' and '.', the first a letter or digit",
        quoted(.value)
    )]
    Name {
        /// `claim UID`, `pod UID`, `namespace` or `name`.
        what: &'static str,
        /// As given.
        value: String,
    },
}

// === impl RecordError ===

impl RecordError {
    /// Stable, for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::File(file) => file.code(),
            Self::Invalid { .. } | Self::Misplaced { .. } | Self::Name { .. } => "RECORD-INVALID",
            Self::Version { .. } => "RECORD-VERSION",
        }
    }
}
