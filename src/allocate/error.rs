//! Why a claim is not allocated, with what was looked at.

use super::{MAX_RESULTS, cel::CelError};

/// Why no devices were chosen.
#[derive(Debug, thiserror::Error)]
pub enum AllocateError {
    /// A selector is no expression that can be evaluated.
    #[error("{place}: {}", Expression(expression))]
    Selector {
        /// Where it is written.
        place: String,
        /// The expression.
        expression: String,
        /// Why.
        source: CelError,
    },
    /// A selector gives no answer for a device. In Kubernetes too that ends the allocation: it is
    /// not as if the device did not fit.
    #[error("{place}: {}: device {device}", Expression(expression))]
    Evaluation {
        /// Where it is written.
        place: String,
        /// The expression.
        expression: String,
        /// The device.
        device: String,
        /// Why.
        source: CelError,
    },
    /// The class is neither ours nor in the file.
    #[error(
        "claim {claim}: request {request}: DeviceClass {class:?} is not in the file; known without \
         being there {known}"
    )]
    NoClass {
        /// The claim.
        claim: String,
        /// The request.
        request: String,
        /// The class.
        class: String,
        /// `are …`
        known: String,
    },
    /// A field needs what this allocator has not.
    #[error(
        "claim {claim}: {field} cannot be honoured on this node yet: allocate the claim otherwise \
         (status.allocation), or leave it out"
    )]
    Unsupported {
        /// The claim.
        claim: String,
        /// The field.
        field: String,
    },
    /// Nothing that fits is free.
    #[error("claim {claim}: node {node} cannot give it what it asks for: {reasons}")]
    NoDevice {
        /// The claim.
        claim: String,
        /// The node.
        node: String,
        /// What was asked for, and what keeps each group of devices from being it.
        reasons: String,
    },
    /// It asks for more than any claim is given.
    #[error(
        "claim {claim}: with request {request} it asks for {wanted} devices; one claim may have at \
         most {MAX_RESULTS}, as in Kubernetes"
    )]
    TooMany {
        /// The claim.
        claim: String,
        /// The request that is too much.
        request: String,
        /// How many it asks for, up to this request.
        wanted: usize,
    },
    /// There are too many ways to choose.
    #[error(
        "claim {claim}: no choice was found after {tries} tries: ask for fewer devices, or select \
         them more narrowly"
    )]
    TooMuch {
        /// The claim.
        claim: String,
        /// How many choices were tried.
        tries: u32,
    },
    /// There is nothing in it.
    #[error("claim {claim}: it requests nothing")]
    Empty {
        /// The claim.
        claim: String,
    },
    /// The evaluation itself failed.
    #[error("claim {claim}: its selectors cannot be evaluated: {why}")]
    Broken {
        /// The claim.
        claim: String,
        /// Why.
        why: String,
    },
}

/// An expression, on one line and not without end.
pub(super) struct Expression<'a>(pub(super) &'a str);

/// More than most expressions have.
const MAX_SHOWN: usize = 100;

// === impl AllocateError ===

impl AllocateError {
    /// Stable, for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Selector { .. } | Self::Evaluation { .. } | Self::Broken { .. } => {
                "SELECTOR-INVALID"
            }
            Self::Unsupported { .. } => "CLAIM-UNSUPPORTED",
            Self::NoClass { .. } | Self::Empty { .. } | Self::TooMany { .. } => "CLAIM-INVALID",
            Self::NoDevice { .. } | Self::TooMuch { .. } => "NO-DEVICE",
        }
    }
}

// === impl Expression ===

impl std::fmt::Display for Expression<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let line = self.0.split_whitespace().collect::<Vec<_>>().join(" ");
        let mut shown: String = line.chars().take(MAX_SHOWN).collect();
        if shown.len() < line.len() {
            shown.push('…');
        }
        write!(f, "`{shown}`")
    }
}
