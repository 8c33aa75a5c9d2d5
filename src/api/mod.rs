//! The API server, as the node side talks to it: without a client rate limit, and with a limit in
//! time for every answer.

mod error;
mod reports;
mod rule;
mod slices;

use std::{path::Path, time::Duration};

use http::{Method, Request, header::CONTENT_TYPE};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::Value;

pub use error::ApiError;
use rule::Rule;
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

    /// A ResourceClaim as JSON text; none where there is no such claim.
    ///
    /// # Errors
    /// [`ApiError::Request`] where the connection fails, [`ApiError::Refused`] and
    /// [`ApiError::Denied`] where the server refuses, [`ApiError::Silent`] where it does not answer
    /// within 5 s.
    pub async fn claim(&self, namespace: &str, name: &str) -> Result<Option<String>, ApiError> {
        let path = format!("/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/{name}");
        match self.get(path).await {
            Err(ApiError::Absent { .. }) => Ok(None),
            answer => answer.map(Some),
        }
    }

    /// Whether the server says of itself that it is ready: it has read its rules, then.
    pub async fn is_ready(&self) -> bool {
        self.get("/readyz".to_owned()).await.is_ok()
    }

    async fn get(&self, path: String) -> Result<String, ApiError> {
        let asked = format!("GET {path}");
        let request = Request::get(&path).body(Vec::new());
        let request = request.map_err(|source| ApiError::Path { path, source })?;
        let answer = tokio::time::timeout(ANSWER, self.client.request_text(request)).await;
        self.answered(&asked, answer)
    }

    async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<(&'static str, &Value)>,
    ) -> Result<Value, ApiError> {
        let asked = format!("{method} {path}");
        let (kind, bytes) = match body {
            Some((kind, body)) => (kind, body.to_string().into_bytes()),
            None => (reports::JSON, Vec::new()),
        };
        let request = Request::builder().method(method).uri(path).header(CONTENT_TYPE, kind);
        let request = request.body(bytes);
        let request = request.map_err(|source| ApiError::Path { path: path.to_owned(), source })?;
        let answer = tokio::time::timeout(ANSWER, self.client.request(request)).await;
        self.answered(&asked, answer)
    }

    fn answered<T>(
        &self,
        asked: &str,
        answer: Result<Result<T, kube::Error>, tokio::time::error::Elapsed>,
    ) -> Result<T, ApiError> {
        match answer {
            Ok(answer) => answer.map_err(|error| self.failed(asked, error)),
            Err(_) => {
                Err(ApiError::Silent { server: self.server.clone(), asked: asked.to_owned() })
            }
        }
    }

    fn failed(&self, asked: &str, error: kube::Error) -> ApiError {
        let (server, rule, asked) = (self.server.clone(), Rule::of(asked), asked.to_owned());
        let said = match error {
            kube::Error::Api(said) => said,
            error => return ApiError::Request { server, asked, source: Box::new(error) },
        };
        if rule.as_ref().is_some_and(|rule| rule.is_absent(&said)) {
            return ApiError::Absent { server, asked };
        }
        let (status, message) = (said.code, said.message);
        let lacks = match (status, rule) {
            (403, Some(rule)) => format!("divvy-node needs a role with {rule}"),
            (401, _) => "it does not take the token or certificate of divvy-node".to_owned(),
            _ => return ApiError::Refused { server, asked, status, message },
        };
        ApiError::Denied { server, asked, status, message, lacks }
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
