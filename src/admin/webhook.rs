//! `divvy webhook`: says what is wrong with a claim's configuration before the API server stores it.

use std::{net::SocketAddr, path::PathBuf};

use tokio::{
    runtime,
    signal::unix::{SignalKind, signal},
    sync::watch,
    task::JoinError,
};

use super::{Failure, tell};
use crate::webhook::{Identity, Webhook as Served, WebhookError};

/// Serve a cluster's validating webhook, until a signal ends it.
///
/// POST /review takes an AdmissionReview of a ResourceClaim, a ResourceClaimTemplate or a DeviceClass, and refuses
/// configuration for gpu.divvy.dev that divvy-node would refuse. GET /healthz says that it serves.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  divvy webhook --tls-cert /tls/tls.crt --tls-key /tls/tls.key")]
pub(super) struct Webhook {
    /// Where to serve
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "0.0.0.0:8443")]
    listen: SocketAddr,
    /// The certificate, in PEM; what is renewed while it serves counts from then on
    #[arg(long, value_name = "FILE")]
    tls_cert: PathBuf,
    /// Its key, in PEM
    #[arg(long, value_name = "FILE")]
    tls_key: PathBuf,
}

// === impl Webhook ===

impl Webhook {
    pub(super) fn serve(self) -> Result<(), Failure> {
        let failed =
            |what: &str, error: std::io::Error| Failure::new("FAILED", format!("{what}: {error}"));
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| failed("threads", error))?;
        runtime.block_on(async {
            let mut terminate =
                signal(SignalKind::terminate()).map_err(|error| failed("taking signals", error))?;
            let mut interrupt =
                signal(SignalKind::interrupt()).map_err(|error| failed("taking signals", error))?;
            let identity = Identity { certificate: self.tls_cert, key: self.tls_key };
            let webhook = Served::open(self.listen, identity).await;
            let webhook = webhook.map_err(|error| Failure::of(error.code(), &error))?;
            let address = webhook.address().map_err(|error| failed("--listen", error))?;
            tell(&format!("reviewing configuration at https://{address}/review\n"));
            let (end, ending) = watch::channel(false);
            let mut served = tokio::spawn(webhook.serve(ending));
            let defect = |panic: JoinError| Failure::new("FAILED", panic.to_string());
            tokio::select! {
                done = &mut served => return done.map_err(defect),
                _signal = terminate.recv() => {}
                _signal = interrupt.recv() => {}
            }
            end.send_replace(true);
            served.await.map_err(defect)
        })
    }
}

// === impl WebhookError ===

impl WebhookError {
    fn code(&self) -> &'static str {
        match self {
            Self::File(error) => error.code(),
            Self::Pem { .. } | Self::Tls { .. } => "CERTIFICATE-INVALID",
            Self::Listen { .. } => "FAILED",
        }
    }
}
