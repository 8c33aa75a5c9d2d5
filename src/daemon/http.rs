//! The door for whoever watches the daemon: `/healthz`, `/readyz` and `/metrics`. Anybody may knock, so
//! nobody can hold it shut for others: the kubelet's probes above all.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6},
    str::FromStr,
    sync::Arc,
    time::Duration,
};

use http::{Method, Request, Response, StatusCode, header};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with, sockopt};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Mutex, watch},
    time::{Instant, timeout},
};

use crate::{
    admin::exit::Failure,
    claim::DRIVER,
    plugin::Monitor,
    publish::{self, Effect},
    visitors::Visitors,
};

/// Where the door is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// At every address that the host has, of either family.
    Everywhere(u16),
    /// At one.
    At(SocketAddr),
}

/// Answers.
#[derive(Clone)]
pub(super) struct Door {
    /// Each driver of the node.
    pub(super) watched: Vec<Watched>,
    /// When the last round ended.
    pub(super) round: watch::Receiver<Instant>,
    /// How long after it the next one has ended, if all is well.
    pub(super) overdue: Duration,
    /// Metrics are collected for one at a time.
    pub(super) collecting: Arc<Mutex<()>>,
}

/// A driver, and how it is.
#[derive(Clone)]
pub(super) struct Watched {
    pub(super) driver: String,
    pub(super) monitor: Monitor,
    pub(super) published: watch::Receiver<publish::State>,
}

/// How many are at the door at once, and how many of one address.
const MAX_VISITORS: usize = 64;
const MAX_OF_ONE: usize = 8;

/// How long a request may take to come, and all of a visit.
const REQUEST: Duration = Duration::from_secs(5);
const VISIT: Duration = Duration::from_secs(10);

/// What a request may have.
const MAX_HEAD: usize = 16 << 10;
const MAX_HEADERS: usize = 64;

// === impl Place ===

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(port) => Ok(Self::Everywhere(port)),
            Err(_) => text.parse().map(Self::At).map_err(|_| {
                "it is neither PORT nor ADDRESS:PORT, as 9400, 10.0.0.1:9400 or [::1]:9400"
                    .to_owned()
            }),
        }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Everywhere(port) => write!(f, "{port}"),
            Self::At(address) => write!(f, "{address}"),
        }
    }
}

impl Place {
    async fn listen(self) -> io::Result<TcpListener> {
        let port = match self {
            Self::At(address) => return TcpListener::bind(address).await,
            Self::Everywhere(port) => port,
        };
        match both_families(port) {
            Ok(listener) => TcpListener::from_std(listener),
            // A kernel without IPv6.
            Err(rustix::io::Errno::AFNOSUPPORT | rustix::io::Errno::ADDRNOTAVAIL) => {
                TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// A socket for IPv6 that takes IPv4 too, whatever the host's setting for that is.
fn both_families(port: u16) -> rustix::io::Result<std::net::TcpListener> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::INET6, SocketType::STREAM, flags, None)?;
    sockopt::set_ipv6_v6only(&socket, false)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    bind(&socket, &SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, port, 0, 0))?;
    listen(&socket, 128)?;
    Ok(socket.into())
}

// === impl Door ===

impl Door {
    /// Opens it there.
    pub(super) async fn open(place: Place) -> Result<TcpListener, Failure> {
        let listener = place.listen().await;
        listener.map_err(|error| Failure::new("FAILED", format!("--http {place}: {error}")))
    }

    /// Serves for as long as it is let.
    pub(super) async fn serve(self, listener: TcpListener) {
        let mut visitors = Visitors::new(MAX_VISITORS, MAX_OF_ONE);
        loop {
            let Ok((stream, from)) = listener.accept().await else {
                // Too many files are open, or the like: it passes.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            let visit = timeout(VISIT, self.clone().visit(stream));
            let visit = async {
                let _late = visit.await;
            };
            visitors.enter(from.ip(), visit).await;
        }
    }

    async fn visit(self, stream: TcpStream) {
        let service = service_fn(move |request| self.clone().answer(request));
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(REQUEST);
        builder.max_buf_size(MAX_HEAD).max_headers(MAX_HEADERS);
        // One request a visit.
        builder.keep_alive(false);
        let _broken = builder.serve_connection(TokioIo::new(stream), service).await;
    }

    async fn answer(self, request: Request<Incoming>) -> Result<Response<String>, Infallible> {
        let (ok, wait) = (StatusCode::OK, StatusCode::SERVICE_UNAVAILABLE);
        let (status, text) = match request.uri().path() {
            _ if !matches!(*request.method(), Method::GET | Method::HEAD) => {
                (StatusCode::METHOD_NOT_ALLOWED, "GET is all that there is here\n".to_owned())
            }
            "/healthz" if self.round.borrow().elapsed() > self.overdue => {
                (wait, "no round has ended for too long\n".to_owned())
            }
            "/healthz" => (ok, "ok\n".to_owned()),
            "/readyz" => match self.watched.iter().find_map(Watched::lacks) {
                None => (ok, "ok\n".to_owned()),
                Some(lacks) => (wait, format!("{lacks}\n")),
            },
            "/metrics" => (ok, self.metrics().await),
            _ => (StatusCode::NOT_FOUND, "/healthz, /readyz and /metrics are here\n".to_owned()),
        };
        let mut response = Response::new(text);
        *response.status_mut() = status;
        let kind = header::HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        Ok(response)
    }

    /// The metrics of all drivers.
    async fn metrics(&self) -> String {
        let _turn = self.collecting.lock().await;
        let mut texts = Vec::new();
        for Watched { driver, monitor, published } in &self.watched {
            let text = monitor.metrics().await + &taint_metrics(&published.borrow());
            texts.push((driver.as_str(), text));
        }
        together(&texts)
    }
}

/// The taints that a driver's devices have as they were published last.
fn taint_metrics(published: &publish::State) -> String {
    let name = "divvy_device_taints";
    let head = format!(
        "# HELP {name} Devices with such a taint in the slices that were published last.\n\
         # TYPE {name} gauge\n"
    );
    let line = |((key, effect), count): (&(String, Effect), &usize)| {
        format!("{name}{{key=\"{key}\",effect=\"{effect}\"}} {count}\n")
    };
    published.taints.iter().map(line).fold(head, |text, line| text + &line)
}

/// The metrics of several drivers as one text, each line with its driver's name; those of one as they
/// are. What is of one name stands together, as Prometheus wants it.
fn together(texts: &[(&str, String)]) -> String {
    if let [(_, text)] = texts {
        return text.clone();
    }
    let (mut heads, mut lines) = (Vec::<(&str, Vec<&str>)>::new(), BTreeMap::<&str, String>::new());
    for (driver, text) in texts {
        let mut family = "";
        for line in text.lines() {
            if let Some(head) = line.strip_prefix("# ") {
                let name = head.split(' ').nth(1).unwrap_or_default();
                family = name;
                match heads.iter_mut().find(|(known, _)| *known == name) {
                    Some((_, head)) if head.contains(&line) => {}
                    Some((_, head)) => head.push(line),
                    None => heads.push((name, vec![line])),
                }
                continue;
            }
            let end = line.find(['{', ' ']).unwrap_or(line.len());
            let (name, rest) = line.split_at(end);
            let rest = match rest.strip_prefix('{') {
                Some(labels) => format!("{{driver=\"{driver}\",{labels}"),
                None => format!("{{driver=\"{driver}\"}}{rest}"),
            };
            lines.entry(family).or_default().push_str(&format!("{name}{rest}\n"));
        }
    }
    let mut all = String::new();
    for (name, head) in heads {
        head.iter().for_each(|line| all.extend([line, "\n"]));
        all.push_str(lines.get(name).map_or("", String::as_str));
    }
    all
}

// === impl Watched ===

impl Watched {
    /// What is in the way of a pod that is to get its devices here.
    fn lacks(&self) -> Option<String> {
        let lacks = lacks(self.monitor.is_registered(), &self.published.borrow())?;
        Some(match self.driver.as_str() {
            DRIVER => lacks,
            driver => format!("{driver}: {lacks}"),
        })
    }
}

/// What is in the way of a pod that is to get its devices here.
fn lacks(is_registered: bool, published: &publish::State) -> Option<String> {
    if !is_registered {
        return Some("the kubelet has not registered the driver yet".to_owned());
    }
    match (published.generation, &published.trouble) {
        (Some(_), None) => None,
        (Some(_), Some(why)) => {
            Some(format!("the node's devices are published, but not as they are now: {why}"))
        }
        (None, Some(why)) => Some(format!("the node's devices are not published: {why}")),
        (None, None) => Some(
            "the node's devices are not published: the API server was not told of them yet"
                .to_owned(),
        ),
    }
}

#[cfg(test)]
mod tests;
