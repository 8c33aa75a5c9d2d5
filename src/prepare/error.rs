//! Why a claim was not prepared or not ended, and what could not be undone.

use divvy_cdi::{file::FileError, spec::WriteError};
use divvy_hook::record::RecordError;

use crate::{
    allocate::AllocateError, declared::DeclaredError, emit::HookError, gpu::GpuError,
    journal::JournalError, mps::MpsError, plan::PlanError,
};

/// Why a claim is not prepared, or not ended.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// The journal.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The GPUs cannot be looked at.
    #[error(transparent)]
    Gpu(#[from] GpuError),
    /// A directory that is to be written to cannot be used.
    #[error(transparent)]
    Directory(#[from] FileError),
    /// No devices could be chosen.
    #[error(transparent)]
    Allocate(#[from] AllocateError),
    /// It cannot be prepared as it is allocated.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// It belongs to pods: what is prepared by hand can be named by every container.
    #[error(
        "claim {claim} is reserved for {kind} {name} (status.reservedFor): a pod's claim is prepared \
         for its pods alone, by the kubelet; leave reservedFor out to prepare one like it by hand"
    )]
    Reserved {
        /// The claim.
        claim: String,
        /// The kind of its first consumer.
        kind: String,
        /// That one's name.
        name: String,
    },
    /// It is prepared, but as something else.
    #[error("claim {claim} is prepared already, and {differs}")]
    Changed {
        /// The claim.
        claim: String,
        /// What is not as it was.
        differs: &'static str,
    },
    /// Another claim has its name.
    #[error("claim {claim} is prepared already with another UID, {uid}")]
    NameTaken {
        /// The claim.
        claim: String,
        /// The other's UID.
        uid: String,
    },
    /// Another driver has a claim of its name.
    #[error(
        "claim {claim} is prepared already, on devices of driver {driver}: by hand a claim is one \
         driver's"
    )]
    OtherDriver {
        /// The claim.
        claim: String,
        /// The driver.
        driver: String,
    },
    /// A change of the machine failed; what was done before it is undone, but for `left`.
    #[error("claim {claim}: {doing} failed")]
    Step {
        /// The claim.
        claim: String,
        /// What failed.
        doing: String,
        /// Why.
        #[source]
        source: Box<StepError>,
        /// What could not be undone.
        left: Vec<Undone>,
    },
    /// Its GPUs cannot be reached; all else of it is ended.
    #[error(
        "claim {claim}: no container gets it any more, but its GPUs still hold what it was given"
    )]
    GpusMissing {
        /// The claim.
        claim: String,
        /// Why.
        #[source]
        source: Box<StepError>,
    },
    /// Ending it left something.
    #[error("claim {claim} could not be ended")]
    Left {
        /// The claim.
        claim: String,
        /// What could not be undone.
        left: Vec<Undone>,
    },
}

/// Why one change failed.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// A GPU.
    #[error(transparent)]
    Gpu(#[from] GpuError),
    /// The claim's spec.
    #[error(transparent)]
    Spec(#[from] WriteError),
    /// The claim's spec cannot be read back, or its directory cannot be made.
    #[error(transparent)]
    File(#[from] FileError),
    /// The hook of the claim's spec.
    #[error(transparent)]
    Hook(#[from] HookError),
    /// The claim's record.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The journal.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A control daemon of MPS.
    #[error(transparent)]
    Mps(MpsError),
    /// A declared device.
    #[error(transparent)]
    Declared(#[from] DeclaredError),
}

/// A change that could not be undone. Shown on a line of its own, after what it follows from.
#[derive(Debug, thiserror::Error)]
#[error("claim {claim}: {doing} failed")]
pub struct Undone {
    /// The claim.
    pub claim: String,
    /// What was tried.
    pub doing: String,
    /// Why it failed.
    #[source]
    pub error: StepError,
}

// === impl PrepareError ===

impl PrepareError {
    /// What could not be undone.
    pub fn left(&self) -> &[Undone] {
        match self {
            Self::Step { left, .. } | Self::Left { left, .. } => left,
            _ => &[],
        }
    }

    /// Stable, for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Journal(error) => error.code(),
            Self::Gpu(error) => error.code(),
            Self::Directory(error) => error.code(),
            Self::Allocate(error) => error.code(),
            Self::Plan(error) => error.code(),
            Self::Reserved { .. } => "CLAIM-UNSUPPORTED",
            Self::Changed { .. } | Self::NameTaken { .. } | Self::OtherDriver { .. } => {
                "CLAIM-PREPARED"
            }
            Self::Step { source, .. } => source.code(),
            Self::GpusMissing { .. } => "GPUS-MISSING",
            Self::Left { left, .. } => left.first().map_or("UNPREPARE", |left| left.error.code()),
        }
    }
}

// === impl StepError ===

impl StepError {
    /// [`GpuError::leaves_open`]
    pub(super) fn leaves_open(&self) -> bool {
        matches!(self, Self::Gpu(error) if error.leaves_open())
    }

    /// Stable, for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Gpu(error) => error.code(),
            Self::Spec(WriteError::File(error)) | Self::File(error) => error.code(),
            Self::Spec(_) => "SPEC-INVALID",
            Self::Hook(error) => error.code(),
            Self::Record(error) => error.code(),
            Self::Journal(error) => error.code(),
            Self::Mps(error) => error.code(),
            Self::Declared(error) => error.code(),
        }
    }
}

impl From<MpsError> for StepError {
    fn from(error: MpsError) -> Self {
        match error {
            MpsError::Gpu(error) => Self::Gpu(error),
            error => Self::Mps(error),
        }
    }
}
