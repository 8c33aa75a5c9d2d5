//! The API server, as the node side talks to it: without a client rate limit, and with a limit in
//! time for every answer.

mod error;
mod slices;

use std::{path::Path, time::Duration};

use http::Request;
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};

pub use error::ApiError;
pub use slices::WATCH_SECONDS;

/// The API server. Clones share its connections.
#[derive(Clone)]
pub struct Api {
    client: Client,
    server: String,
}

/// How long one answer may take. The kubelet waits 45 s for all of a prepare.
const ANSWER: Duration = Duration::from_secs(5);

// === impl Api ===

impl Api {
    /// The API server that a kubeconfig file names in its current context; without one that of the
    /// pod which this process is in. Nothing is sent yet.
    ///
    /// # Errors
    /// [`ApiError::Kubeconfig`] and [`ApiError::Pod`] when the file, or the pod's service account, does
    /// not say how.
    pub async fn new(kubeconfig: Option<&Path>) -> Result<Self, ApiError> {
        let config = config(kubeconfig).await?;
        let server = config.cluster_url.to_string();
        let client = Client::try_from(config).map_err(|source| ApiError::Client {
            server: server.clone(),
            source: Box::new(source),
        })?;
        Ok(Self { client, server })
    }

    /// The client below, for watches.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// The object at `path` (`/apis/…/namespaces/…/…`) as JSON text; none where there is no such object.
    ///
    /// # Errors
    /// [`ApiError::Request`] where the server refuses, [`ApiError::Silent`] where it does not answer
    /// within 5 s.
    pub async fn get(&self, path: &str) -> Result<Option<String>, ApiError> {
        let asked = || format!("GET {path}");
        let request = Request::get(path).body(Vec::new());
        let request = request.map_err(|source| ApiError::Path { path: path.to_owned(), source })?;
        let answer = tokio::time::timeout(ANSWER, self.client.request_text(request)).await;
        match answer {
            Ok(Ok(text)) => Ok(Some(text)),
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => Ok(None),
            Ok(Err(error)) => Err(self.failed(&asked(), error)),
            Err(_) => Err(ApiError::Silent { server: self.server.clone(), asked: asked() }),
        }
    }

    fn failed(&self, asked: &str, error: kube::Error) -> ApiError {
        let (server, asked) = (self.server.clone(), asked.to_owned());
        match error {
            kube::Error::Api(said) => {
                let (status, message) = (said.code, said.message);
                ApiError::Refused { server, asked, status, message }
            }
            error => ApiError::Request { server, asked, source: Box::new(error) },
        }
    }
}

impl std::fmt::Debug for Api {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Api").field(&self.server).finish()
    }
}

async fn config(kubeconfig: Option<&Path>) -> Result<Config, ApiError> {
    let Some(path) = kubeconfig else {
        return Config::incluster().map_err(|source| ApiError::Pod { source });
    };
    let unusable = |source| ApiError::Kubeconfig { path: path.to_owned(), source };
    let file = Kubeconfig::read_from(path).map_err(unusable)?;
    let options = KubeConfigOptions::default();
    Config::from_custom_kubeconfig(file, &options).await.map_err(unusable)
}
