//! An API server that has claims and is hostile: it delays, fails, drops connections and never answers.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

/// The server. Clones are the same.
#[derive(Clone, Default)]
pub(super) struct Double(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// Path → object.
    objects: BTreeMap<String, Value>,
    /// What comes of the next requests, the first first; then all is well.
    next: Vec<Trouble>,
    asked: usize,
    delay: Duration,
    /// Nobody may do anything.
    denies: bool,
    /// What was written, as method, path and body.
    written: Vec<(String, String, Value)>,
}

/// What may come of a request.
#[derive(Debug, Clone, Copy)]
pub(super) enum Trouble {
    /// 500.
    Fails,
    /// 403, as of a server that has not read its rules yet.
    Forbids,
    /// 404, as of a proxy that does not find the server.
    Astray,
    /// 404, as of a server that does not have the resource.
    Unknown,
    /// 400, which does not pass.
    Refuses,
    /// The connection is closed.
    Drops,
    /// Half an answer, and the end.
    Cuts,
}

// === impl Double ===

impl Double {
    /// Starts it, and says where it is.
    pub(super) async fn start() -> (Self, u16) {
        let double = Self::default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let serving = double.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let double = serving.clone();
                tokio::spawn(async move { double.answer(stream).await });
            }
        });
        (double, port)
    }

    /// A claim that is allocated these devices and reserved for a pod.
    pub(super) fn claim(&self, name: &str, uid: &str, devices: &[&str]) {
        let result = |device: &&str| {
            json!({"request": "gpu", "driver": "gpu.divvy.dev", "pool": "worker-1", "device": device,
                   "aFieldOfLater": {"a": [1]}})
        };
        let results: Vec<Value> = devices.iter().map(result).collect();
        let claim = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {"name": name, "namespace": "team", "uid": uid, "resourceVersion": "7",
                         "managedFields": [{"manager": "k", "fieldsV1": {"f:spec": {".": {}}}}]},
            "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {
                "deviceClassName": "gpu.divvy.dev", "allocationMode": "AModeOfLater"}}]}},
            "status": {"allocation": {"devices": {"results": results}, "aFieldOfLater": true},
                       "reservedFor": [{"resource": "pods", "name": "pod", "uid": format!("pod-{uid}")}]},
        });
        self.put(name, claim);
    }

    pub(super) fn put(&self, name: &str, claim: Value) {
        self.0.lock().unwrap().objects.insert(path(name), claim);
    }

    pub(super) fn edit(&self, name: &str, edit: impl FnOnce(&mut Value)) {
        edit(self.0.lock().unwrap().objects.get_mut(&path(name)).unwrap());
    }

    pub(super) fn delete(&self, name: &str) {
        self.0.lock().unwrap().objects.remove(&path(name)).unwrap();
    }

    pub(super) fn trouble(&self, next: &[Trouble]) {
        self.0.lock().unwrap().next = next.to_vec();
    }

    /// Has no rule for us, whatever is asked, and says that it is ready.
    pub(super) fn deny(&self) {
        self.0.lock().unwrap().denies = true;
    }

    /// What was written to a path that ends so, in order.
    pub(super) fn written(&self, to: &str) -> Vec<Value> {
        let state = self.0.lock().unwrap();
        let of_path = state.written.iter().filter(|(_, path, _)| path.ends_with(to));
        of_path.map(|(_, _, body)| body.clone()).collect()
    }

    pub(super) fn delay(&self, delay: Duration) {
        self.0.lock().unwrap().delay = delay;
    }

    /// How many requests there were.
    pub(super) fn asked(&self) -> usize {
        self.0.lock().unwrap().asked
    }

    /// Takes in what is written, and answers that.
    fn write(&self, method: &str, path: &str, body: &Value) -> Vec<u8> {
        let mut state = self.0.lock().unwrap();
        state.written.push((method.to_owned(), path.to_owned(), body.clone()));
        let body = body.to_string();
        let head = "HTTP/1.1 200 x\r\nContent-Type: application/json\r\nContent-Length: ";
        format!("{head}{}\r\n\r\n{body}", body.len()).into_bytes()
    }

    /// What is to be read at a path, and what comes of it.
    async fn read(&self, path: &str) -> (Option<Trouble>, u16, Value) {
        let (found, trouble, delay) = {
            let mut state = self.0.lock().unwrap();
            state.asked += 1;
            let mut trouble = (!state.next.is_empty()).then(|| state.next.remove(0));
            if state.denies {
                trouble = (path != "/readyz").then_some(Trouble::Forbids);
            }
            (state.objects.get(path).cloned(), trouble, state.delay)
        };
        tokio::time::sleep(delay).await;
        let status = |code: u16, reason: &str, details: Value| {
            json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                   "message": "trouble", "reason": reason, "details": details, "code": code})
        };
        let of_claim = json!({"name": path.rsplit('/').next(), "group": "resource.k8s.io",
                              "kind": "resourceclaims"});
        let (code, body) = match (trouble, found) {
            (None, _) if path == "/readyz" => (200, json!("ok")),
            (Some(Trouble::Astray), _) => (404, json!("404 page not found")),
            (Some(Trouble::Unknown), _) => (404, status(404, "NotFound", json!({}))),
            (Some(Trouble::Fails), _) => (500, status(500, "Trouble", json!({}))),
            (Some(Trouble::Forbids), _) => (403, status(403, "Forbidden", of_claim)),
            (Some(Trouble::Refuses), _) => (400, status(400, "BadRequest", json!({}))),
            (_, Some(found)) => (200, found),
            (_, None) => (404, status(404, "NotFound", of_claim)),
        };
        (trouble, code, body)
    }

    async fn answer(&self, mut stream: TcpStream) {
        let mut request = Vec::new();
        loop {
            let mut bytes = [0; 4096];
            let Ok(read) = stream.read(&mut bytes).await else { return };
            if read == 0 {
                return;
            }
            request.extend_from_slice(&bytes[..read]);
            let text = String::from_utf8(request.clone()).unwrap();
            let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
            let length =
                head.lines().filter_map(|line| line.split_once(": ")).find_map(|(key, value)| {
                    key.eq_ignore_ascii_case("content-length")
                        .then(|| value.parse::<usize>().unwrap())
                });
            if body.len() < length.unwrap_or_default() {
                continue;
            }
            request.clear();
            let mut words = text.split(' ').map(str::to_owned);
            let (method, path) = (words.next().unwrap(), words.next().unwrap());
            if method != "GET" {
                let body: Value = serde_json::from_str(body).unwrap();
                if stream.write_all(&self.write(&method, &path, &body)).await.is_err() {
                    return;
                }
                continue;
            }
            let (trouble, code, body) = self.read(&path).await;
            if matches!(trouble, Some(Trouble::Drops)) {
                return;
            }
            let body = body.to_string();
            let cut = matches!(trouble, Some(Trouble::Cuts));
            let sent = if cut { &body[..body.len() / 2] } else { &body };
            let head = format!(
                "HTTP/1.1 {code} x\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{sent}",
                body.len()
            );
            if stream.write_all(head.as_bytes()).await.is_err() || cut {
                return;
            }
        }
    }
}

fn path(name: &str) -> String {
    format!("/apis/resource.k8s.io/v1/namespaces/team/resourceclaims/{name}")
}
