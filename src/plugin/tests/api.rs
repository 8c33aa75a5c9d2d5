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
}

/// What may come of a request.
#[derive(Debug, Clone, Copy)]
pub(super) enum Trouble {
    /// 500.
    Fails,
    /// 403, as of a server that has not read its rules yet.
    Forbids,
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

    pub(super) fn delay(&self, delay: Duration) {
        self.0.lock().unwrap().delay = delay;
    }

    /// How many requests there were.
    pub(super) fn asked(&self) -> usize {
        self.0.lock().unwrap().asked
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
            if !request.ends_with(b"\r\n\r\n") {
                continue;
            }
            let text = String::from_utf8(std::mem::take(&mut request)).unwrap();
            let path = text.split(' ').nth(1).unwrap().to_owned();
            let (found, trouble, delay) = {
                let mut state = self.0.lock().unwrap();
                state.asked += 1;
                let trouble = (!state.next.is_empty()).then(|| state.next.remove(0));
                (state.objects.get(&path).cloned(), trouble, state.delay)
            };
            tokio::time::sleep(delay).await;
            let status = |code: u16| {
                json!({"kind": "Status", "apiVersion": "v1", "metadata": {},
                "status": "Failure", "message": "trouble", "reason": "Trouble", "code": code})
            };
            let (code, body) = match (trouble, found) {
                (Some(Trouble::Drops), _) => return,
                (Some(Trouble::Fails), _) => (500, status(500)),
                (Some(Trouble::Forbids), _) => (403, status(403)),
                (Some(Trouble::Refuses), _) => (400, status(400)),
                (_, Some(found)) => (200, found),
                (_, None) => (404, status(404)),
            };
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
