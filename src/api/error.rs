//! Why the API server could not be asked, or what it answered.

use std::path::PathBuf;

/// Why there is no answer of the API server, or no good one.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// A kubeconfig file does not say how to reach it.
    #[error("{}: not usable as kubeconfig", path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// Why.
        source: kube::config::KubeconfigError,
    },
    /// No kubeconfig was named, and this is no pod.
    #[error("no --kubeconfig, and no service account of a pod here")]
    Pod {
        /// Why.
        source: kube::config::InClusterError,
    },
    /// Its certificates or credentials cannot be used.
    #[error("the API server {server} cannot be reached as configured")]
    Client {
        /// Its address.
        server: String,
        /// Why.
        source: Box<kube::Error>,
    },
    /// A name makes no path of the API.
    #[error("{path:?} is no path of the API")]
    Path {
        /// The path.
        path: String,
        /// Why.
        source: http::Error,
    },
    /// It refused.
    #[error("{asked}: the API server {server} refuses it with status {status}: {message}")]
    Refused {
        /// Its address.
        server: String,
        /// What it was asked.
        asked: String,
        /// The status of its answer.
        status: u16,
        /// What it said.
        message: String,
    },
    /// It does not let us.
    #[error("{asked}: the API server {server} refuses it with status {status}: {message}; {lacks}")]
    Denied {
        /// Its address.
        server: String,
        /// What it was asked.
        asked: String,
        /// The status of its answer.
        status: u16,
        /// What it said.
        message: String,
        /// What it needs to do so.
        lacks: String,
    },
    /// It has no such object.
    #[error("{asked}: the API server {server} has none of that name")]
    Absent {
        /// Its address.
        server: String,
        /// What it was asked.
        asked: String,
    },
    /// The connection failed, or what came is no answer.
    #[error("{asked} of the API server {server} failed")]
    Request {
        /// Its address.
        server: String,
        /// What it was asked.
        asked: String,
        /// Why.
        source: Box<kube::Error>,
    },
    /// It did not answer in time.
    #[error("{asked}: the API server {server} does not answer")]
    Silent {
        /// Its address.
        server: String,
        /// What it was asked.
        asked: String,
    },
}

// === impl ApiError ===

impl ApiError {
    /// Stable, for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Kubeconfig { .. } | Self::Pod { .. } | Self::Client { .. } => "API-CONFIG",
            Self::Path { .. } => "CLAIM-INVALID",
            Self::Denied { .. } => "API-FORBIDDEN",
            Self::Refused { .. }
            | Self::Absent { .. }
            | Self::Request { .. }
            | Self::Silent { .. } => "API-SERVER",
        }
    }

    /// The status with which the server refused, where it did.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Refused { status, .. } | Self::Denied { status, .. } => Some(*status),
            Self::Absent { .. } => Some(404),
            _ => None,
        }
    }

    /// True where the server would refuse the same each time: it takes no such object.
    pub fn is_refusal(&self) -> bool {
        matches!(self.status(), Some(400 | 422))
    }

    /// What divvy-node needs to be let, where it is not.
    pub fn lacks(&self) -> Option<&str> {
        match self {
            Self::Denied { lacks, .. } => Some(lacks),
            _ => None,
        }
    }

    /// True where it does not let us. A server that has just started refuses whom it does not know
    /// yet (401, and 403 before it has read its rules: seen with 1.37).
    pub fn is_denial(&self) -> bool {
        self.lacks().is_some()
    }

    /// True for what may be otherwise in a moment: no connection, no answer, or an error of the
    /// server's own (5xx, 429), or of a proxy before it that finds nothing there.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Silent { .. } => true,
            Self::Refused { status, .. } => *status >= 500 || matches!(status, 404 | 429),
            Self::Request { source, .. } => {
                matches!(source.as_ref(), kube::Error::HyperError(_) | kube::Error::Service(_))
            }
            _ => false,
        }
    }
}
