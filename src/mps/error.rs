//! An error of MPS names the control daemon and its devices, and has the last line of its log.

use std::{fmt, path::PathBuf};

use divvy_cdi::file::FileError;

use crate::{gpu::GpuError, program::ProgramError};

/// Which control daemon, what it serves, and what it said last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct About {
    /// Its name.
    pub daemon: String,
    /// UUIDs of its devices.
    pub devices: Vec<String>,
    /// Its log.
    pub log: PathBuf,
    /// The last line of that, if there is one.
    pub last_line: Option<String>,
}

/// Why a control daemon is not as it should be.
#[derive(Debug, thiserror::Error)]
pub enum MpsError {
    /// There is no control program, or the compute mode of a GPU cannot be set.
    #[error(transparent)]
    Gpu(#[from] GpuError),
    /// Its directories.
    #[error(transparent)]
    File(#[from] FileError),
    /// It cannot be set apart from this process.
    #[error("{about}: it gets no mount namespace and /dev/shm of its own{about:#}")]
    Apart {
        /// Which.
        about: Box<About>,
        /// The system's answer.
        #[source]
        source: std::io::Error,
    },
    /// The control program cannot be run, or does not end.
    #[error("{about}: not ready{about:#}")]
    Program {
        /// Which.
        about: Box<About>,
        /// Why.
        #[source]
        source: ProgramError,
    },
    /// It did not start.
    #[error("{about}: did not start: {why}{about:#}")]
    Start {
        /// Which.
        about: Box<About>,
        /// What it said, or did.
        why: String,
    },
    /// It runs and does not answer.
    #[error(
        "{about}: process {pid} runs, and {why}; what uses it goes on, so it is left alone: end its \
         clients, then unprepare and prepare the claim{about:#}"
    )]
    Silent {
        /// Which.
        about: Box<About>,
        /// Its process.
        pid: u32,
        /// What it does not do.
        why: String,
    },
    /// Whether it runs cannot be told.
    #[error(
        "{about}: its socket cannot be used, so it may run and have clients, and is left \
         alone{about:#}"
    )]
    Unreached {
        /// Which.
        about: Box<About>,
        /// The system's answer.
        #[source]
        source: std::io::Error,
    },
    /// It does not take a setting.
    #[error("{about}: {setting} was set, and {answer} is what it says{about:#}")]
    Setting {
        /// Which.
        about: Box<About>,
        /// The setting, and its value.
        setting: String,
        /// What it answers when asked for it.
        answer: String,
    },
    /// It does not end.
    #[error(
        "{about}: process {pid} was killed, and does not end; a GPU may have to be reset{about:#}"
    )]
    Stop {
        /// Which.
        about: Box<About>,
        /// Its process.
        pid: u32,
    },
    /// Its cgroup cannot be removed.
    #[error("{about}: its cgroup cannot be removed{about:#}")]
    Cgroup {
        /// Which.
        about: Box<About>,
        /// The system's answer.
        #[source]
        source: std::io::Error,
    },
}

// === impl About ===

/// `MPS daemon …, of GPU-…`; the alternate form is the log's last line, behind a semicolon.
impl fmt::Display for About {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (f.alternate(), &self.last_line) {
            (false, _) => {
                write!(f, "MPS control daemon {} of {}", self.daemon, self.devices.join(", "))
            }
            (true, Some(line)) => write!(f, "; {} ends with {line:?}", self.log.display()),
            (true, None) => write!(f, "; {} says nothing", self.log.display()),
        }
    }
}

// === impl MpsError ===

impl MpsError {
    /// Stable, for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Gpu(error) => error.code(),
            Self::File(error) => error.code(),
            Self::Apart { .. } | Self::Program { .. } | Self::Start { .. } => "MPS-START",
            Self::Silent { .. } | Self::Unreached { .. } => "MPS-SILENT",
            Self::Setting { .. } => "MPS-SETTING",
            Self::Stop { .. } | Self::Cgroup { .. } => "MPS-STOP",
        }
    }
}
