//! A driver error says what a driver lacks, where that was looked for, and what to do.

use std::path::PathBuf;

/// Why a driver cannot be given to containers.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// What computing needs is not there, or not in the version that is loaded.
    #[error(
        "the driver {version} is not complete: {} not below {} in {}{}; install all that it has for \
         computing, in this version",
        list(missing), root.display(), folders.join(", "), other(there)
    )]
    Incomplete {
        /// The version that is loaded.
        version: String,
        /// The driver root.
        root: PathBuf,
        /// Names of files.
        missing: Vec<String>,
        /// The folders that were looked in, below the root.
        folders: Vec<String>,
        /// One of them in another version.
        there: Option<String>,
    },
}

fn list(missing: &[String]) -> String {
    let verb = if missing.len() == 1 { "is" } else { "are" };
    format!("{} {verb}", missing.join(", "))
}

fn other(there: &Option<String>) -> String {
    there.as_ref().map(|name| format!(", where {name} is of another version")).unwrap_or_default()
}

// === impl DriverError ===

impl DriverError {
    /// Stable, for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Incomplete { .. } => "DRIVER-INCOMPLETE",
        }
    }
}
