//! Why a file declares nothing, or a device that it declares cannot be given.

use divvy_cdi::{file::FileError, problem::Problem};

/// Why declared devices cannot be used.
#[derive(Debug, Clone, thiserror::Error)]
pub enum DeclaredError {
    /// The file cannot be read, or is not to be trusted.
    #[error(transparent)]
    File(#[from] std::sync::Arc<FileError>),
    /// Something in it is wrong.
    #[error("{}", lines(problems))]
    Invalid {
        /// Everything that was found, at least one.
        problems: Vec<Problem>,
    },
    /// The driver of a file that was read before is another by now.
    #[error("{file}: the driver is {found} now and was {driver}: another driver takes a restart")]
    Driver {
        /// The file.
        file: String,
        /// As it was.
        driver: String,
        /// As it is.
        found: String,
    },
    /// What a container is to get is not on the host.
    #[error("{device}: {what} {path} {why}")]
    Gone {
        /// The device.
        device: String,
        /// `device node`, `mount source`.
        what: &'static str,
        /// Its path on the host.
        path: String,
        /// What is there instead.
        why: &'static str,
    },
    /// A claim has it, and the file declares it no more.
    #[error("{device}: no such device of driver {driver} is declared any more (--devices)")]
    Undeclared {
        /// The device.
        device: String,
        /// Its driver.
        driver: String,
    },
}

fn lines(problems: &[Problem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

// === impl DeclaredError ===

impl DeclaredError {
    /// Stable, for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::File(error) => error.code(),
            Self::Invalid { .. } | Self::Driver { .. } => "DEVICES-INVALID",
            Self::Gone { .. } => "DEVICE-GONE",
            Self::Undeclared { .. } => "NO-DEVICE",
        }
    }
}
