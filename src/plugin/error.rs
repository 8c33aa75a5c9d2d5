//! Why the plugin cannot serve, or a claim cannot be prepared for the kubelet.

use std::{io, path::PathBuf};

use divvy_cdi::file::FileError;
use tokio::task::JoinError;

use crate::{api::ApiError, claim::ClaimError, prepare::PrepareError};

/// Why the kubelet is not served, or gets no devices.
#[derive(Debug, thiserror::Error)]
pub enum PluginError {
    /// A socket cannot be made.
    #[error("{}: no socket can be made there", path.display())]
    Socket {
        /// Where.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// Somebody else has it.
    #[error(
        "{}: another divvy-node serves it; one on a node at a time, or each named by its --pod-uid",
        path.display()
    )]
    Served {
        /// The socket.
        path: PathBuf,
    },
    /// Linux has no sockets with such a path.
    #[error(
        "{}: the path of a socket may have {most} bytes, and this has {length}; --kubelet-dir names a \
         shorter one", path.display()
    )]
    LongPath {
        /// The path.
        path: PathBuf,
        /// Its length.
        length: usize,
        /// What it may be.
        most: usize,
    },
    /// A directory of a socket.
    #[error(transparent)]
    Directory(#[from] FileError),
    /// The kubelet does not register the plugin.
    #[error("the kubelet refused to register the driver, and asks again: {error}")]
    Refused {
        /// What it said.
        error: String,
    },
    /// The kubelet named what is no claim.
    #[error("{namespace:?}, {name:?}, {uid:?}: no namespace, name and UID of a claim")]
    Reference {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// Its UID.
        uid: String,
    },
    /// The API server.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// What the API server has of the claim.
    #[error(transparent)]
    Claim(#[from] ClaimError),
    /// The API server has no such claim.
    #[error("claim {claim} with UID {uid}: the API server has none of this name")]
    Gone {
        /// The claim.
        claim: String,
        /// Its UID.
        uid: String,
    },
    /// It has another of its name.
    #[error("claim {claim} with UID {uid} was replaced: the one of this name has UID {found}")]
    Replaced {
        /// The claim.
        claim: String,
        /// Its UID.
        uid: String,
        /// The other's.
        found: String,
    },
    /// It is not allocated, or nobody may use it.
    #[error("claim {claim} {lacks}: nothing is prepared for it")]
    Unallocated {
        /// The claim.
        claim: String,
        /// What it is not.
        lacks: &'static str,
    },
    /// The kubelet ended it meanwhile.
    #[error("claim {claim} was unprepared while it was being prepared")]
    Unprepared {
        /// The claim.
        claim: String,
    },
    /// An earlier call is still at it.
    #[error(
        "claim {claim} is still being {doing} since an earlier call, for all the time that could be \
         waited; nothing was done, and the kubelet tries again"
    )]
    InHand {
        /// The claim.
        claim: String,
        /// Prepared or ended.
        doing: &'static str,
    },
    /// It could not be prepared or ended.
    #[error(transparent)]
    Prepare(#[from] PrepareError),
    /// A defect of ours.
    #[error("claim {claim}: divvy-node has a defect: {panic}")]
    Panicked {
        /// The claim.
        claim: String,
        /// What it said.
        panic: String,
    },
}

// === impl PluginError ===

impl PluginError {
    /// Stable, for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Socket { .. } | Self::LongPath { .. } => "PLUGIN-SOCKET",
            Self::Served { .. } => "PLUGIN-SERVED",
            Self::Directory(error) => error.code(),
            Self::Refused { .. } => "PLUGIN-REFUSED",
            Self::Reference { .. } => "CLAIM-INVALID",
            Self::Api(error) => error.code(),
            Self::Claim(error) => error.code(),
            Self::Gone { .. } | Self::Replaced { .. } => "CLAIM-GONE",
            Self::Unallocated { .. } => "CLAIM-NOT-ALLOCATED",
            Self::Unprepared { .. } => "CLAIM-INTERRUPTED",
            Self::InHand { .. } => "LOCK-HELD",
            Self::Prepare(error) => error.code(),
            Self::Panicked { .. } => "FAILED",
        }
    }

    /// What a task that ended by itself says.
    pub(super) fn panicked(claim: String, error: JoinError) -> Self {
        let panic = match error.try_into_panic() {
            Ok(panic) => match panic.downcast::<String>() {
                Ok(text) => *text,
                Err(panic) => {
                    panic.downcast_ref::<&str>().copied().unwrap_or("it panicked").to_owned()
                }
            },
            Err(_) => "its task was ended".to_owned(),
        };
        Self::Panicked { claim, panic }
    }

    /// For the kubelet, which shows it in an event of the pod: one line.
    pub fn line(&self) -> String {
        let mut line = format!("divvy: {}: {}", self.code(), divvy_cdi::problem::chain(self));
        if let Self::Prepare(error) = self {
            for left in error.left() {
                line.push_str(&format!("; {}", divvy_cdi::problem::chain(left)));
            }
        }
        line.replace('\n', "\\n")
    }
}
