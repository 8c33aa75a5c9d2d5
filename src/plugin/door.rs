//! The door is where the kubelet's calls come in: connections on the sockets, re-framed, and each call to the
//! service that it names.

use std::{convert::Infallible, pin::pin, time::Duration};

use http::{Request, Response};
use hyper::{body::Incoming, server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{io, net::UnixStream, sync::watch, task::JoinSet};
use tonic::{Status, body::Body, codegen::Service};

use super::{
    dra::Dra,
    health::Health,
    proto::{
        dra_v1::dra_plugin_server::DraPluginServer,
        dra_v1beta1::dra_plugin_server::DraPluginServer as DraPluginServerBeta,
        health_v1::dra_resource_health_server::DraResourceHealthServer,
        health_v1alpha1::dra_resource_health_server::DraResourceHealthServer as DraResourceHealthServerAlpha,
        registration::registration_server::RegistrationServer,
    },
    reframe::{ReframeError, reframe},
    registration::Registrar,
    socket::Socket,
};
use crate::admin::tell;

/// Every service, by the path of its calls. All are served on both sockets: only root may connect.
#[derive(Debug, Clone)]
pub(super) struct Services {
    pub(super) registrar: Registrar,
    pub(super) dra: Dra,
    pub(super) health: Health,
}

/// How many connections a socket has at once: the kubelet makes two or three.
const MAX_CONNECTIONS: usize = 64;
const MAX_CALLS: u32 = 256;

/// What may be on the way in one connection.
const BUFFER: usize = 64 << 10;

/// How long calls and connections may take to end, once we do.
const GRACE: Duration = Duration::from_secs(10);

/// Serves a socket until `ending` is true, and then, with the socket gone, until the calls that are running are
/// answered.
pub(super) async fn serve(socket: Socket, services: Services, mut ending: watch::Receiver<bool>) {
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            _ended = ending.wait_for(|ending| *ending) => break,
            Some(_closed) = connections.join_next() => continue,
            accepted = socket.listener.accept(), if connections.len() < MAX_CONNECTIONS => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                connections.spawn(connection(stream, services.clone(), ending.clone()));
            }
            // Too many files are open, or the like: it passes.
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
    drop(socket);
    let all = async { while connections.join_next().await.is_some() {} };
    // Whoever does not read its answers is left.
    let _late = tokio::time::timeout(GRACE, all).await;
}

async fn connection(stream: UnixStream, services: Services, ending: watch::Receiver<bool>) {
    let (from, mut to) = stream.into_split();
    let (ours, theirs) = io::duplex(BUFFER);
    let (mut answers, calls) = io::split(theirs);
    let inbound = async {
        match reframe(from, calls).await {
            // What is still to be answered is.
            Ok(()) => std::future::pending().await,
            Err(error) => error,
        }
    };
    let outbound = async {
        // A peer that is gone needs no answers.
        let _gone = io::copy(&mut answers, &mut to).await;
    };
    tokio::select! {
        ((), ()) = async { tokio::join!(http(ours, services, ending), outbound) } => {}
        error = inbound => if let ReframeError::Malformed(_) = error {
            tell(&format!("a connection of the kubelet's was ended: {error}\n"));
        }
    }
}

/// One connection's HTTP, until it ends.
async fn http(stream: io::DuplexStream, services: Services, mut ending: watch::Receiver<bool>) {
    let service = service_fn(move |request| services.clone().call(request));
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder.max_concurrent_streams(MAX_CALLS);
    let mut serving = pin!(builder.serve_connection(TokioIo::new(stream), service));
    tokio::select! {
        // What breaks a connection is the peer's to say.
        _broken = serving.as_mut() => return,
        _ended = ending.wait_for(|ending| *ending) => serving.as_mut().graceful_shutdown(),
    }
    let _broken = serving.await;
}

// === impl Services ===

impl Services {
    async fn call(self, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
        let service = request.uri().path().split('/').nth(1).unwrap_or_default();
        match service {
            "pluginregistration.Registration" => {
                RegistrationServer::new(self.registrar).call(request).await
            }
            "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin" => {
                DraPluginServer::new(self.dra).call(request).await
            }
            "k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin" => {
                DraPluginServerBeta::new(self.dra).call(request).await
            }
            "v1.DRAResourceHealth" => DraResourceHealthServer::new(self.health).call(request).await,
            "v1alpha1.DRAResourceHealth" => {
                DraResourceHealthServerAlpha::new(self.health).call(request).await
            }
            unknown => {
                Ok(Status::unimplemented(format!("no service {unknown:?} here")).into_http())
            }
        }
    }
}
