//! A webhook is asked by the API server before it stores a claim, a template of claims or a device class. Configuration that
//! a node would refuse is refused there already, by the node's own decoder.

use std::{io, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use divvy_cdi::{
    file::{self, FileError, Trust},
    problem::chain,
};
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    time::timeout,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        self, ServerConfig,
        crypto::ring,
        pki_types::{self, CertificateDer, PrivateKeyDer, pem::PemObject},
    },
};

use crate::{admin::tell, claim, visitors::Visitors};

/// Who the webhook is to the API server: files in PEM, which may be renewed while it serves.
#[derive(Debug, Clone)]
pub struct Identity {
    /// The certificate, and those that lead to one that the API server knows.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

/// A webhook at an address.
pub struct Webhook {
    listener: TcpListener,
    identity: Identity,
    /// Of the files as they were when they were last of use.
    acceptor: TlsAcceptor,
    /// What was said last of the files as they are.
    told: Option<String>,
}

/// Why it cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    /// Certificate or key cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// One of them is no PEM.
    #[error("{}: not the PEM that is wanted here", path.display())]
    Pem {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        #[source]
        source: pki_types::pem::Error,
    },
    /// They are not one another's, or nothing that TLS can use.
    #[error("{}: TLS cannot use it with this key", certificate.display())]
    Tls {
        /// The certificate.
        certificate: PathBuf,
        /// What is wrong.
        #[source]
        source: rustls::Error,
    },
    /// The address.
    #[error("--listen {address}")]
    Listen {
        /// It.
        address: SocketAddr,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
}

/// How many ask at once, and how many of one address: API servers are few, and each asks for many.
const MAX_VISITORS: usize = 32;
const MAX_OF_ONE: usize = 24;
/// What a certificate or a key may have.
const MAX_PEM: usize = 1 << 20;
/// As large as the API server takes an object; and that, the one before it, and what is around them.
const MAX_OBJECT: usize = 3 << 20;
const MAX_BODY: usize = 7 << 20;
/// How long a request may take to come, and an answer to go: the API server waits ten seconds.
const REQUEST: Duration = Duration::from_secs(10);

// === impl Identity ===

impl Identity {
    fn acceptor(&self) -> Result<TlsAcceptor, WebhookError> {
        let read = |path: &PathBuf| file::read(path, MAX_PEM, &Trust::of_process());
        let pem = |path: &PathBuf, source| WebhookError::Pem { path: path.clone(), source };
        let (certificate, key) = (read(&self.certificate)?, read(&self.key)?);
        let chain: Vec<_> = CertificateDer::pem_slice_iter(&certificate)
            .collect::<Result<_, _>>()
            .map_err(|source| pem(&self.certificate, source))?;
        let key = PrivateKeyDer::from_pem_slice(&key).map_err(|source| pem(&self.key, source))?;
        let provider = Arc::new(ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|config| config.with_no_client_auth().with_single_cert(chain, key));
        match config {
            Ok(config) => Ok(TlsAcceptor::from(Arc::new(config))),
            Err(source) => Err(WebhookError::Tls { certificate: self.certificate.clone(), source }),
        }
    }
}

// === impl Webhook ===

impl Webhook {
    /// Has the address, and a certificate.
    ///
    /// # Errors
    /// [`WebhookError`] where one of them is not to be had.
    pub async fn open(address: SocketAddr, identity: Identity) -> Result<Self, WebhookError> {
        let acceptor = identity.acceptor()?;
        let listener = TcpListener::bind(address).await;
        let listener = listener.map_err(|source| WebhookError::Listen { address, source })?;
        Ok(Self { listener, identity, acceptor, told: None })
    }

    /// The address that it has.
    ///
    /// # Errors
    /// The system's.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until it is to end; whoever has asked by then has an answer.
    pub async fn serve(mut self, mut ending: watch::Receiver<bool>) {
        let mut visitors = Visitors::new(MAX_VISITORS, MAX_OF_ONE);
        loop {
            let come = tokio::select! {
                // Nobody who could end it is there any more: it is to end as well.
                _ended = ending.wait_for(|ending| *ending) => break,
                come = self.listener.accept() => come,
            };
            let Ok((stream, from)) = come else {
                // Too many files are open, or the like: it passes.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            self.renew();
            let visit = timeout(REQUEST, converse(self.acceptor.clone(), stream));
            let visit = async {
                let _late = visit.await;
            };
            visitors.enter(from.ip(), visit).await;
        }
        drop(self.listener);
        visitors.end(REQUEST).await;
    }

    /// Takes the files as they are now. Whoever renews them does so one after the other, and the old ones are of use
    /// until then.
    fn renew(&mut self) {
        let trouble = match self.identity.acceptor() {
            Ok(acceptor) => {
                self.acceptor = acceptor;
                None
            }
            Err(error) => Some(chain(&error)),
        };
        if let Some(why) = trouble.as_ref().filter(|_| self.told != trouble) {
            tell(&format!("going on as before: {why}\n"));
        }
        self.told = trouble;
    }
}

impl std::fmt::Debug for Webhook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Webhook").field(&self.identity).finish()
    }
}

/// One request of a connection.
async fn converse(acceptor: TlsAcceptor, stream: TcpStream) {
    let Ok(stream) = acceptor.accept(stream).await else { return };
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(REQUEST).keep_alive(false);
    let _broken = builder.serve_connection(TokioIo::new(stream), service_fn(answer)).await;
}

async fn answer(request: Request<Incoming>) -> Result<Response<String>, std::convert::Infallible> {
    let text = |status: StatusCode, text: &str| (status, "text/plain", format!("{text}\n"));
    let (status, kind, body) = match (request.method(), request.uri().path()) {
        (&Method::GET, "/healthz") => text(StatusCode::OK, "ok"),
        (&Method::POST, "/review") => match Limited::new(request, MAX_BODY).collect().await {
            Err(_) => text(StatusCode::PAYLOAD_TOO_LARGE, "no whole request of at most 7 MiB"),
            Ok(body) => match reviewed(&body.to_bytes()) {
                Ok(review) => (StatusCode::OK, "application/json", review.to_string()),
                Err(why) => text(StatusCode::BAD_REQUEST, &why),
            },
        },
        _ => text(StatusCode::NOT_FOUND, "POST /review and GET /healthz are here"),
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
    Ok(response)
}

/// An AdmissionReview (admission.k8s.io/v1), as far as it is looked at. Anybody may send one: nothing is made of what is
/// in an object before it is read as one.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Review<'a> {
    api_version: String,
    kind: String,
    #[serde(borrow)]
    request: Asked<'a>,
}

/// What is asked.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Asked<'a> {
    uid: String,
    #[serde(borrow)]
    object: Option<&'a RawValue>,
    #[serde(borrow)]
    old_object: Option<&'a RawValue>,
}

/// What configuration is in.
#[derive(Deserialize)]
struct Spec<'a> {
    #[serde(borrow)]
    spec: Option<&'a RawValue>,
}

/// The answer to an AdmissionReview.
fn reviewed(bytes: &[u8]) -> Result<Value, String> {
    let review: Review<'_> = serde_json::from_slice(bytes)
        .map_err(|error| format!("no AdmissionReview in JSON: {error}"))?;
    if review.api_version != "admission.k8s.io/v1" || review.kind != "AdmissionReview" {
        return Err("an AdmissionReview of admission.k8s.io/v1 is wanted".to_owned());
    }
    let Asked { uid, object, old_object } = review.request;
    if object.is_some_and(|object| object.get().len() > MAX_OBJECT) {
        return Err("an object of at most 3 MiB is wanted".to_owned());
    }
    // What is stored already stays as it is: its finalizers go, and it can be deleted. The API server writes both.
    let spec = |object: Option<&'_ RawValue>| {
        let spec = serde_json::from_str::<Spec<'_>>(object?.get()).ok()?.spec?;
        Some(spec.get().to_owned())
    };
    let wrong = match object {
        Some(new) if spec(old_object).is_none_or(|old| spec(object) != Some(old)) => {
            claim::review(new.get().as_bytes())
        }
        _ => Vec::new(),
    };
    let lines: Vec<_> =
        wrong.iter().map(|error| format!("{}: {}", error.code(), chain(error))).collect();
    let response = match lines.is_empty() {
        true => json!({"uid": uid, "allowed": true}),
        false => json!({"uid": uid, "allowed": false, "status":
            {"code": 422, "reason": "Invalid", "message": lines.join("; ")}}),
    };
    Ok(
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}),
    )
}

#[cfg(test)]
mod tests;
