//! An API server for slices that does what a real one cannot be made to do: it conflicts, fails, is slow,
//! ends watches, forgets versions, drops fields, refuses.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Condvar, Mutex, MutexGuard},
    thread,
    time::Duration,
};

use serde_json::{Value, json};

/// The server. It listens until the process ends.
#[derive(Clone)]
pub(super) struct Server {
    inner: Arc<(Mutex<World>, Condvar)>,
    pub(super) address: String,
}

/// What it has, and how it behaves.
pub(super) struct World {
    version: u64,
    pub(super) objects: BTreeMap<String, Value>,
    events: Vec<(u64, &'static str, Value)>,
    /// Watches that began before this number end.
    watches: u64,
    /// One of those that would not end has begun.
    pub(super) watched: bool,
    /// Requests that wrote something, or tried to.
    pub(super) writes: Vec<String>,
    /// How many of the next requests fail, and how.
    pub(super) faults: Vec<Fault>,
    /// Fields of devices that are not stored.
    pub(super) drops: Vec<&'static str>,
    pub(super) kubernetes: Value,
    pub(super) node: Value,
    /// Watches answer that their version is too old, so often.
    pub(super) gone: u32,
}

/// What happens to a request in place of its answer.
#[derive(Clone, Copy)]
pub(super) enum Fault {
    /// It is refused with this status.
    Status(u16),
    /// It is done, and its answer never comes.
    Deaf,
    /// Its answer takes so many milliseconds.
    Slow(u64),
}

struct Request {
    method: String,
    path: String,
    query: String,
    body: Value,
}

// === impl Server ===

impl Server {
    pub(super) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let world = World {
            version: 100,
            objects: BTreeMap::new(),
            events: Vec::new(),
            watches: 0,
            watched: false,
            writes: Vec::new(),
            faults: Vec::new(),
            drops: Vec::new(),
            kubernetes: json!({ "major": "1", "minor": "37", "gitVersion": "v1.37.0" }),
            node: json!({ "metadata": { "name": "n", "uid": "node-1" } }),
            gone: 0,
        };
        let server = Self { inner: Arc::new((Mutex::new(world), Condvar::new())), address };
        let listening = server.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let server = listening.clone();
                // A connection that breaks is its client's trouble.
                thread::spawn(move || drop(server.serve(stream)));
            }
        });
        server
    }

    pub(super) fn world(&self) -> MutexGuard<'_, World> {
        self.inner.0.lock().unwrap()
    }

    /// Does something to it, as somebody else would.
    pub(super) fn change(&self, how: impl FnOnce(&mut World)) {
        how(&mut self.world());
        self.inner.1.notify_all();
    }

    fn serve(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let mut reader = BufReader::new(stream.try_clone()?);
        while let Some(request) = Request::read(&mut reader)? {
            if request.query.contains("watch=1") {
                return self.watch(&mut stream, &request);
            }
            let fault = self.fault(&request);
            if let Some(Fault::Slow(millis)) = fault {
                thread::sleep(Duration::from_millis(millis));
            }
            let (status, body) = match fault {
                Some(Fault::Status(status)) => (status, failure(status)),
                _ => self.answer(&request),
            };
            if matches!(fault, Some(Fault::Deaf)) {
                return Ok(());
            }
            let body = body.to_string();
            let head = format!(
                "HTTP/1.1 {status} x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
                body.len()
            );
            stream.write_all((head + &body).as_bytes())?;
        }
        Ok(())
    }

    fn fault(&self, request: &Request) -> Option<Fault> {
        let mut world = self.world();
        let writes = request.method != "GET" && !request.query.contains("dryRun");
        if writes {
            world.writes.push(format!("{} {}", request.method, request.path));
        }
        // Who only reads is in nobody's way.
        let conflict = matches!(world.faults.last(), Some(Fault::Status(409)));
        if conflict && !writes {
            return None;
        }
        world.faults.pop()
    }

    fn answer(&self, request: &Request) -> (u16, Value) {
        let mut world = self.world();
        let name = request.path.rsplit('/').next().unwrap().to_owned();
        let answer = match (request.method.as_str(), request.path.as_str()) {
            ("GET", "/version") => (200, world.kubernetes.clone()),
            ("GET", path) if path.starts_with("/api/v1/nodes/") => (200, world.node.clone()),
            ("GET", _) => {
                let driver = request.query.split("spec.driver%3D").nth(1);
                let driver = driver.map(|driver| driver.split(['%', '&']).next().unwrap());
                let of = |object: &&Value| driver.is_none_or(|it| object["spec"]["driver"] == it);
                let items: Vec<&Value> = world.objects.values().filter(of).collect();
                (
                    200,
                    json!({ "metadata": { "resourceVersion": world.version.to_string() }, "items": items }),
                )
            }
            ("POST", _) => world.create(request),
            ("PUT", _) => world.update(&name, request),
            ("DELETE", _) => world.delete(&name, request),
            _ => (405, failure(405)),
        };
        self.inner.1.notify_all();
        answer
    }

    fn watch(&self, stream: &mut TcpStream, request: &Request) -> std::io::Result<()> {
        let from = request.query.split("resourceVersion=").nth(1).unwrap();
        let mut sent: u64 = from.split('&').next().unwrap().parse().unwrap();
        let head = "HTTP/1.1 200 x\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
        stream.write_all(head.as_bytes())?;
        let mut send = |kind: &str, object: &Value| {
            let line = format!("{}\n", json!({ "type": kind, "object": object }));
            stream.write_all(format!("{:x}\r\n{line}\r\n", line.len()).as_bytes())
        };
        let mut world = self.world();
        let began = world.watches;
        if world.gone > 0 {
            world.gone -= 1;
            send("ERROR", &failure(410))?;
            return stream.write_all(b"0\r\n\r\n");
        }
        world.watched = true;
        while world.watches == began {
            let events: Vec<_> =
                world.events.iter().filter(|(version, ..)| *version > sent).cloned().collect();
            for (version, kind, object) in events {
                send(kind, &object)?;
                sent = version;
            }
            world = self.inner.1.wait(world).unwrap();
        }
        stream.write_all(b"0\r\n\r\n")
    }
}

// === impl World ===

impl World {
    fn create(&mut self, request: &Request) -> (u16, Value) {
        if request.body["spec"]["pool"]["resourceSliceCount"].as_u64().unwrap() == 0 {
            return (422, failure(422));
        }
        let mut object = self.stored(request.body.clone());
        let base = object["metadata"]["generateName"].as_str().unwrap().to_owned();
        let name = format!("{}x{}", &base[..base.len().min(58)], self.version);
        object["metadata"]["name"] = name.clone().into();
        object["metadata"]["uid"] = format!("uid-{}", self.version).into();
        if !request.query.contains("dryRun") {
            object = self.put(&name, "ADDED", object);
        }
        (201, object)
    }

    fn update(&mut self, name: &str, request: &Request) -> (u16, Value) {
        let Some(there) = self.objects.get(name) else { return (404, absent(name)) };
        let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
        if version(there) != version(&request.body) {
            return (409, failure(409));
        }
        let object = self.stored(request.body.clone());
        (200, self.put(name, "MODIFIED", object))
    }

    fn delete(&mut self, name: &str, request: &Request) -> (u16, Value) {
        let Some(there) = self.objects.get(name) else { return (404, absent(name)) };
        let metadata = &there["metadata"];
        let wanted = &request.body["preconditions"];
        if wanted["uid"] != metadata["uid"]
            || wanted["resourceVersion"] != metadata["resourceVersion"]
        {
            return (409, failure(409));
        }
        self.remove(name);
        (200, json!({ "kind": "Status", "status": "Success" }))
    }

    /// As it is stored: taints get their time, and what has no feature gate is dropped.
    fn stored(&mut self, mut object: Value) -> Value {
        self.version += 1;
        let now = format!("2026-11-30T12:00:00.{}Z", self.version);
        let drops = self.drops.clone();
        let devices = object["spec"].get_mut("devices").and_then(Value::as_array_mut);
        for device in devices.into_iter().flatten() {
            let device = device.as_object_mut().unwrap();
            device.retain(|key, _| !drops.contains(&key.as_str()));
            for taint in
                device.get_mut("taints").and_then(Value::as_array_mut).into_iter().flatten()
            {
                let taint = taint.as_object_mut().unwrap();
                taint.entry("timeAdded").or_insert_with(|| now.clone().into());
            }
        }
        object["spec"].as_object_mut().unwrap().retain(|key, _| !drops.contains(&key.as_str()));
        object
    }

    /// Puts an object there, and tells the watches.
    pub(super) fn put(&mut self, name: &str, kind: &'static str, mut object: Value) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        object["metadata"]["name"] = name.into();
        self.objects.insert(name.to_owned(), object.clone());
        self.events.push((self.version, kind, object.clone()));
        object
    }

    pub(super) fn remove(&mut self, name: &str) {
        self.version += 1;
        let Some(mut object) = self.objects.remove(name) else { return };
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        self.events.push((self.version, "DELETED", object));
    }

    /// As kubelet does when it starts.
    pub(super) fn wipe(&mut self) {
        for name in self.objects.keys().cloned().collect::<Vec<_>>() {
            self.remove(&name);
        }
    }

    /// Ends the watches that there are.
    pub(super) fn end_watches(&mut self) {
        self.watches += 1;
        self.watched = false;
    }

    /// The slices of the driver, by name.
    pub(super) fn slices(&self) -> Vec<&Value> {
        self.objects.values().filter(|object| object["spec"]["driver"] == "gpu.divvy.dev").collect()
    }
}

// === impl Request ===

impl Request {
    fn read(reader: &mut impl BufRead) -> std::io::Result<Option<Self>> {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let mut words = line.split_whitespace();
        let (method, target) = (words.next().unwrap().to_owned(), words.next().unwrap().to_owned());
        let mut length = 0;
        loop {
            let mut header = String::new();
            reader.read_line(&mut header)?;
            let Some((name, value)) = header.trim().split_once(':') else { break };
            if name.eq_ignore_ascii_case("content-length") {
                length = value.trim().parse().unwrap();
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        let body = serde_json::from_slice(&body).unwrap_or_default();
        let (path, query) = target.split_once('?').unwrap_or((&target, ""));
        Ok(Some(Self { method, path: path.to_owned(), query: query.to_owned(), body }))
    }
}

/// As a real one says that it has no such slice.
fn absent(name: &str) -> Value {
    let mut status = failure(404);
    status["details"] =
        json!({ "name": name, "group": "resource.k8s.io", "kind": "resourceslices" });
    status
}

fn failure(code: u16) -> Value {
    let reason = match code {
        403 => "Forbidden",
        404 => "NotFound",
        409 => "Conflict",
        410 => "Expired",
        _ => "InternalError",
    };
    json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": format!("no: {code}"), "reason": reason, "code": code })
}
