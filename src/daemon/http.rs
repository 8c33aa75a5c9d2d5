//! The door for whoever watches the daemon: `/healthz`, `/readyz` and `/metrics`.

use std::{convert::Infallible, net::SocketAddr, sync::Arc, time::Duration};

use http::{Request, Response, StatusCode, header};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::TcpListener,
    sync::{Semaphore, watch},
    time::Instant,
};

use crate::{admin::exit::Failure, plugin::Monitor, publish};

/// Answers.
#[derive(Clone)]
pub(super) struct Door {
    pub(super) monitor: Monitor,
    pub(super) published: watch::Receiver<publish::State>,
    /// When the last round ended.
    pub(super) round: watch::Receiver<Instant>,
    /// How long after it the next one has ended, if all is well.
    pub(super) overdue: Duration,
}

/// Whoever asks more at once waits.
const MAX_CONNECTIONS: usize = 16;

/// How long a request may take to come.
const REQUEST: Duration = Duration::from_secs(5);

// === impl Door ===

impl Door {
    /// Serves this address for as long as it is let.
    pub(super) async fn open(address: SocketAddr) -> Result<TcpListener, Failure> {
        let listener = TcpListener::bind(address).await;
        listener.map_err(|error| Failure::new("FAILED", format!("--http {address}: {error}")))
    }

    pub(super) async fn serve(self, listener: TcpListener) {
        let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        loop {
            let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
            let Ok((stream, _)) = listener.accept().await else {
                // Too many files are open, or the like: it passes.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            let door = self.clone();
            tokio::spawn(async move {
                let service = service_fn(move |request| door.clone().answer(request));
                let mut builder = http1::Builder::new();
                builder.timer(TokioTimer::new()).header_read_timeout(REQUEST);
                // One request a connection: nobody holds a place.
                builder.keep_alive(false);
                let _broken = builder.serve_connection(TokioIo::new(stream), service).await;
                drop(place);
            });
        }
    }

    async fn answer(self, request: Request<Incoming>) -> Result<Response<String>, Infallible> {
        let (ok, wait) = (StatusCode::OK, StatusCode::SERVICE_UNAVAILABLE);
        let (status, text) = match request.uri().path() {
            "/healthz" if self.round.borrow().elapsed() > self.overdue => {
                (wait, "no round has ended for too long\n".to_owned())
            }
            "/healthz" => (ok, "ok\n".to_owned()),
            "/readyz" => match self.lacks() {
                None => (ok, "ok\n".to_owned()),
                Some(lacks) => (wait, format!("{lacks}\n")),
            },
            "/metrics" => (ok, self.monitor.metrics().await),
            _ => (StatusCode::NOT_FOUND, "/healthz, /readyz and /metrics are here\n".to_owned()),
        };
        let mut response = Response::new(text);
        *response.status_mut() = status;
        let kind = header::HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        Ok(response)
    }

    /// What is not there yet for a pod to get its devices.
    fn lacks(&self) -> Option<String> {
        if !self.monitor.is_registered() {
            return Some("the kubelet has not registered the driver yet".to_owned());
        }
        let published = self.published.borrow();
        let why = published.trouble.as_deref().unwrap_or("the API server was not told of them yet");
        published
            .generation
            .is_none()
            .then(|| format!("the node's devices are not published: {why}"))
    }
}
