//! Trouble is what keeps slices from being published, and for how long it is let be.

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    time::Duration,
};

use super::{LimitError, ViewError};
use crate::api::ApiError;

/// Why slices are not as they should be.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    /// The API server.
    #[error("the node's slices cannot be published")]
    Api(#[source] ApiError),
    /// It has no ResourceSlices.
    #[error("the API server has no ResourceSlices of resource.k8s.io/v1")]
    NoSlices(#[source] ApiError),
    /// It does not let this be done.
    #[error("the API server does not let divvy-node publish slices")]
    Forbidden(#[source] ApiError),
    /// It ended the watch.
    #[error("the API server ended the watch of slices: {0}")]
    Watch(String),
    /// The node cannot be looked at.
    #[error(transparent)]
    View(#[from] ViewError),
    /// Looking at it panicked.
    #[error("looking at the node: {0}")]
    Panic(String),
    /// Kubernetes would not take them.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// The cluster has no such node.
    #[error("the cluster has no node {node:?}")]
    NoNode {
        /// Its name.
        node: String,
    },
    /// Somebody else gives the same GPUs.
    #[error("the GPUs of node {node} are given by {rival}")]
    Rival {
        /// The node.
        node: String,
        /// Who.
        rival: String,
    },
}

const SHORTEST: Duration = Duration::from_millis(200);
const LONGEST: Duration = Duration::from_secs(30);
/// How often an API server may refuse before it means it.
const STARTING: u32 = 5;
/// For what only people can change.
const SLOW: Duration = Duration::from_secs(20);

// === impl Trouble ===

impl Trouble {
    /// Why there is no list of slices: one is there, if empty, where there are slices at all.
    pub(super) fn of_list(error: ApiError) -> Self {
        match error.status() {
            Some(404) => Self::NoSlices(error),
            _ => error.into(),
        }
    }

    /// True where somebody else wrote the same slice meanwhile.
    pub(super) fn is_conflict(&self) -> bool {
        matches!(self, Self::Api(error) if error.status() == Some(409))
    }

    /// How long it is let be, after so many failures in a row.
    pub(super) fn pause(&self, failures: u32) -> Duration {
        match self {
            Self::Api(error) if error.is_refusal() => jittered(SLOW),
            // A server that has just started has not read its rules yet.
            Self::Forbidden(_) if failures <= STARTING => Self::pause_of(failures),
            Self::Forbidden(_) | Self::NoSlices(_) | Self::Limit(_) => jittered(SLOW),
            Self::Rival { .. } => jittered(SLOW / 4),
            _ => Self::pause_of(failures),
        }
    }

    /// Longer with each failure, and never the same for two nodes.
    pub(super) fn pause_of(failures: u32) -> Duration {
        let doubled = SHORTEST.saturating_mul(1 << failures.saturating_sub(1).min(10));
        jittered(doubled.min(LONGEST))
    }

    /// Stable, for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Api(error) => error.code(),
            Self::Watch(_) => "API-SERVER",
            Self::NoSlices(_) => "API-VERSION",
            Self::Forbidden(_) => "API-FORBIDDEN",
            Self::View(error) => error.code(),
            Self::Panic(_) => "FAILED",
            Self::Limit(error) => error.code(),
            Self::NoNode { .. } => "NO-NODE",
            Self::Rival { .. } => "OTHER-DRIVER",
        }
    }
}

impl From<ApiError> for Trouble {
    fn from(error: ApiError) -> Self {
        match error.status() {
            Some(401 | 403) => Self::Forbidden(error),
            _ => Self::Api(error),
        }
    }
}

/// From half of it to one and a half.
fn jittered(pause: Duration) -> Duration {
    let random = RandomState::new().build_hasher().finish() % 1000;
    let part = u32::try_from(random).unwrap_or_default() + 500;
    pause.saturating_mul(part) / 1000
}
