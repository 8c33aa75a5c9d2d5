//! A GPU error says what could not be looked at or changed, why, and what to do.

use std::{fmt, path::PathBuf, sync::Arc};

use divvy_cdi::file::FileError;

use super::{Fault, Placement};
use crate::{driver::DriverError, program::ProgramError};

/// Why the GPUs could not be looked at or changed.
#[derive(Debug, thiserror::Error)]
pub enum GpuError {
    /// The value of `--gpus` names no backend.
    #[error("{given:?} is no GPU backend: {}", Backend(given))]
    Backend {
        /// What was given.
        given: String,
    },
    /// They were there when a claim was prepared, and are not now.
    #[error("the GPUs {address} cannot be reached")]
    Missing {
        /// [`Gpus::address`].
        address: String,
        /// Why.
        #[source]
        source: Arc<GpuError>,
    },
    /// The node file does not say what it must.
    #[error("{}: {message}", path.display())]
    NodeFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        message: String,
    },
    /// The state that the simulated node keeps cannot be read back.
    #[error("{}: the simulated node's state is damaged: {message}", path.display())]
    State {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        message: String,
    },
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// The lock that orders changes could not be taken.
    #[error(transparent)]
    Lock(#[from] crate::lock::LockError),
    /// No GPU has this UUID.
    #[error("no GPU {gpu} on this node")]
    NoGpu {
        /// The UUID asked for.
        gpu: String,
    },
    /// The GPU gives no MIG partitions.
    #[error("GPU {gpu} has no MIG mode, or it is off")]
    MigOff {
        /// The GPU's UUID.
        gpu: String,
    },
    /// The product has no MIG mode.
    #[error("GPU {gpu} is a {product}, which has no MIG mode")]
    NoMig {
        /// The GPU's UUID.
        gpu: String,
        /// The product.
        product: String,
    },
    /// The product changes its MIG mode with a reset only.
    #[error(
        "GPU {gpu} is a {product}, which changes its MIG mode with a reset only: end what uses it, \
         then nvidia-smi -i {gpu} -mig {}, nvidia-smi -i {gpu} --gpu-reset; in a virtual machine, \
         restart it",
        u8::from(*on)
    )]
    MigReset {
        /// The GPU's UUID.
        gpu: String,
        /// The product.
        product: String,
        /// The mode that was asked for.
        on: bool,
    },
    /// Something uses the GPU, so its MIG mode stays.
    #[error("GPU {gpu}: its MIG mode stays as it is: {by}")]
    MigBusy {
        /// The GPU's UUID.
        gpu: String,
        /// What uses it.
        by: String,
    },
    /// The product has no such profile, or not there.
    #[error("GPU {gpu} has no place {placement} for profile {profile}")]
    NoPlacement {
        /// The GPU's UUID.
        gpu: String,
        /// The profile asked for.
        profile: String,
        /// The place asked for.
        placement: Placement,
    },
    /// Something else lies there. NVML says no more than INSUFFICIENT_RESOURCES.
    #[error("GPU {gpu}: no room for {profile} at {placement}: {by} is in the way")]
    Occupied {
        /// The GPU's UUID.
        gpu: String,
        /// The profile asked for.
        profile: String,
        /// The place asked for.
        placement: Placement,
        /// What is there.
        by: String,
    },
    /// The GPU has no partition with this UUID.
    #[error("GPU {gpu} has no partition {partition}")]
    NoPartition {
        /// The GPU's UUID.
        gpu: String,
        /// The partition's UUID.
        partition: String,
    },
    /// No driver is installed where drivers are.
    #[error(
        "no NVIDIA driver: below {}, libnvidia-ml.so.1 is in none of {}; --driver-root names another \
         place, and --gpus sim:FILE works without hardware",
        Paths(roots), folders.join(", ")
    )]
    NoDriver {
        /// Every root of a driver that was looked at.
        roots: Vec<PathBuf>,
        /// The folders that were looked at in each.
        folders: &'static [&'static str],
    },
    /// The driver's library cannot be loaded.
    #[error("{}: cannot be loaded", path.display())]
    Library {
        /// The library.
        path: PathBuf,
        /// The loader's answer.
        #[source]
        source: libloading::Error,
    },
    /// The driver as a whole does not answer.
    #[error("the driver does not answer {call}; the GPUs, or the machine, may have to be reset")]
    DriverSilent {
        /// The call that did not come back.
        call: &'static str,
    },
    /// A GPU does not answer as it should.
    #[error("{0}")]
    Fault(Fault),
    /// NVML refused.
    #[error("{of}: {why}{}", Advice(*code))]
    Nvml {
        /// What it was about.
        of: String,
        /// The call, and NVML's answer.
        why: String,
        /// NVML's code.
        code: u32,
    },
    /// A partition could neither be made nor taken back.
    #[error("GPU {gpu}: {profile} at {placement} is half made: it could not be undone ({left})")]
    HalfMade {
        /// The GPU's UUID.
        gpu: String,
        /// The profile.
        profile: String,
        /// The place.
        placement: Placement,
        /// Why not.
        left: String,
        /// Why it could not be made.
        #[source]
        source: Box<GpuError>,
    },
    /// The GPU, or its driver, has no time slice to set.
    #[error("GPU {gpu} cannot be time-sliced: {why}")]
    NoTimeSlice {
        /// The GPU's UUID.
        gpu: String,
        /// What nvidia-smi said.
        why: String,
    },
    /// A program of the driver is missing, or cannot be run.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The backend has no control daemon of MPS.
    #[error("{address} is a simulated node, which runs no MPS control daemon")]
    NoMps {
        /// [`super::Gpus::address`].
        address: String,
    },
    /// A program of the driver did not end in time.
    #[error("{}: did not end, and was killed; GPU {gpu} may have to be reset", path.display())]
    ProgramSilent {
        /// The program.
        path: PathBuf,
        /// UUID of the GPU that it was about.
        gpu: String,
    },
    /// A file of the driver does not say what it must.
    #[error("{}: {message}", path.display())]
    HostFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        message: String,
    },
    /// The kernel knows no such driver: its module is not loaded.
    #[error("{}: names no {name}: is its kernel module loaded?", path.display())]
    NoMajor {
        /// `/proc/devices`
        path: PathBuf,
        /// The driver.
        name: String,
    },
    /// A device node leads somewhere else than its name says.
    #[error(
        "{}: has the numbers {}:{}, and the driver's are {}:{}: it was left by an earlier load of \
         the driver; remove it",
        path.display(), is.0, is.1, should.0, should.1
    )]
    StaleNode {
        /// The node.
        path: PathBuf,
        /// Its numbers.
        is: (u32, u32),
        /// What they should be.
        should: (u32, u32),
    },
    /// The driver's files.
    #[error(transparent)]
    Driver(Box<DriverError>),
    /// The system starts no more threads.
    #[error("no thread for a GPU could be started")]
    Thread {
        /// The system's answer.
        #[source]
        source: std::io::Error,
    },
    /// A node that the container needs is not there, or is no device node.
    #[error("{} is no device node of this host", path.display())]
    NoNode {
        /// Where it should be.
        path: PathBuf,
        /// The system's answer.
        #[source]
        source: Option<std::io::Error>,
    },
}

/// What `--gpus` should have been.
struct Backend<'a>(&'a str);

/// Places that were looked at.
struct Paths<'a>(&'a [PathBuf]);

/// What to do about a code of NVML.
struct Advice(u32);

/// `NVML_ERROR_NO_PERMISSION`, `NVML_ERROR_IN_USE`
const NO_PERMISSION: u32 = 4;
const IN_USE: u32 = 19;

// === impl Backend ===

impl fmt::Display for Backend<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            "sim" | "sim:" => f.write_str("the file is missing behind sim:"),
            host if host.starts_with("nvml:") => f.write_str(
                "behind nvml: an absolute path is wanted, of the folder that stands for /",
            ),
            file if !file.contains(':') && file.contains(['.', '/']) => {
                write!(f, "did you mean sim:{file}, a simulated node?")
            }
            _ => f.write_str(
                "nvml are this machine's GPUs, and sim:FILE a simulated node that FILE describes",
            ),
        }
    }
}

// === impl Paths ===

impl fmt::Display for Paths<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<_> = self.0.iter().map(|path| path.display().to_string()).collect();
        f.write_str(&all.join(", "))
    }
}

// === impl Advice ===

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            NO_PERMISSION => "; only root may do that",
            IN_USE => "; a process uses it still: nvidia-smi shows which",
            _ => "",
        })
    }
}

// === impl GpuError ===

impl From<DriverError> for GpuError {
    fn from(error: DriverError) -> Self {
        Self::Driver(Box::new(error))
    }
}

impl GpuError {
    /// What was asked for may be there all the same, or come yet: no answer came in time, or what was
    /// half made could not be undone.
    pub fn leaves_open(&self) -> bool {
        use super::FaultKind::Silent;
        match self {
            Self::DriverSilent { .. } | Self::HalfMade { .. } => true,
            Self::Fault(Fault { kind, .. }) => matches!(kind, Silent { .. }),
            _ => false,
        }
    }

    /// Stable, for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Backend { .. } => "NO-GPUS",
            Self::NodeFile { .. } | Self::State { .. } => "GPUS-INVALID",
            Self::File(error) => error.code(),
            Self::Driver(error) => error.code(),
            Self::Missing { source, .. } => source.code(),
            Self::Lock(_) => "STATE-DIR",
            Self::NoGpu { .. }
            | Self::MigOff { .. }
            | Self::NoMig { .. }
            | Self::NoPlacement { .. }
            | Self::NoPartition { .. } => "NO-DEVICE",
            Self::Occupied { .. } => "OVERLAP",
            Self::NoNode { .. } | Self::NoMajor { .. } => "DEVICE-GONE",
            Self::StaleNode { .. } => "DEVICE-CHANGED",
            Self::NoDriver { .. } | Self::Library { .. } => "NO-DRIVER",
            Self::Program(error) => error.code(),
            Self::MigReset { .. } => "MIG-RESET",
            Self::Nvml { code: IN_USE, .. } | Self::MigBusy { .. } => "GPU-IN-USE",
            Self::DriverSilent { .. }
            | Self::Fault(_)
            | Self::Nvml { .. }
            | Self::HostFile { .. }
            | Self::ProgramSilent { .. } => "GPU-FAULT",
            Self::HalfMade { source, .. } => source.code(),
            Self::NoTimeSlice { .. } | Self::NoMps { .. } => "CONFIG-UNSUPPORTED",
            Self::Thread { .. } => "FAILED",
        }
    }
}
