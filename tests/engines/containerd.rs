//! containerd, called through `ctr` and through the Kubernetes container runtime interface.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use crate::fixture::{self, Fixture, IMAGE, PAUSE};
use crate::hook;
use crate::sandbox::{End, Run, Sandbox, View};

/// A running containerd with the images imported.
#[derive(Debug)]
pub struct Containerd {
    pub sandbox: Sandbox,
    handlers: Vec<(&'static str, String)>,
}

/// A pod to be made.
#[derive(Debug, Clone)]
pub struct Pod {
    pub name: &'static str,
    pub handler: &'static str,
    pub annotations: Value,
    pub user_namespace: bool,
}

/// A container to be made in a pod.
#[derive(Debug, Clone)]
pub struct Container<'a> {
    pub name: &'a str,
    pub image: &'a str,
    pub script: String,
    pub annotations: Value,
    pub cdi: &'a [&'a str],
    /// Which try of the kubelet's it is.
    pub attempt: u32,
}

/// How a container ended.
#[derive(Debug)]
pub struct Ended {
    pub code: i32,
    pub reason: String,
    pub message: String,
    /// What it printed, as far as it came.
    #[expect(dead_code, reason = "shown when a test fails")]
    pub output: String,
}

pub const SOCKET: &str = "/run/containerd/containerd.sock";
const LOG: &str = "/tmp/containerd.log";
const LOGS: &str = "/tmp/pods";

// === impl Containerd ===

impl Containerd {
    /// Starts it with a runtime handler for each (name, binary). `native` turns its own CDI on, which the new end has.
    pub fn start(
        fixture: &Fixture,
        end: End,
        handlers: &[(&'static str, &str)],
        native: bool,
    ) -> Result<Containerd> {
        let sandbox = Sandbox::start(fixture, end, View::with_controllers()?)?;
        let handlers =
            handlers.iter().map(|(name, binary)| (*name, (*binary).to_owned())).collect();
        let mut containerd = Containerd { sandbox, handlers };
        let sandbox = &mut containerd.sandbox;
        sandbox.write(
            "/etc/containerd/config.toml",
            &configuration(end, &containerd.handlers, native)?,
        )?;
        if end == End::New {
            let ours = hook::documented("containerd-2.toml")?;
            sandbox.write("/etc/containerd/conf.d/90-divvy.toml", &ours)?;
        }
        sandbox.write("/etc/cni/net.d/10-pods.conflist", NETWORK)?;
        sandbox.spawn(&["containerd", "--log-level", "warn"], LOG)?;
        sandbox.until("containerd", &["ctr", "version"])?;
        for image in [IMAGE, PAUSE, fixture::ANNOTATED] {
            let archive = format!("/fixture/{}", fixture::archive(image));
            sandbox.must(&["ctr", "--namespace", "k8s.io", "images", "import", &archive])?;
        }
        Ok(containerd)
    }

    /// Calls a method of the CRI. `Err` is the engine's message.
    pub fn call(&mut self, method: &str, request: &Value) -> Result<Result<Value, String>> {
        let run = Run::new(&["/fixture/cri", SOCKET, method]).stdin(&request.to_string());
        let output = self.sandbox.finish(&run)?;
        match output.code {
            0 => Ok(Ok(serde_json::from_str(&output.stdout)?)),
            1 => Ok(Err(output.stderr.trim_end().to_owned())),
            _ => bail!("{output:?}"),
        }
    }

    /// Runs a pod, and gives its sandbox's id.
    pub fn pod(&mut self, pod: &Pod) -> Result<String> {
        let request = json!({"config": pod.config(), "runtimeHandler": pod.handler});
        let response = self.call("RuntimeService/RunPodSandbox", &request)?;
        let response =
            response.map_err(|error| anyhow::anyhow!("RunPodSandbox: {error}\n{}", self.log()))?;
        id(&response, "podSandboxId")
    }

    /// Makes a container in a pod and starts it. `Err` is the engine's message, with the container's id.
    pub fn start_container(
        &mut self,
        pod: &Pod,
        sandbox: &str,
        container: &Container<'_>,
    ) -> Result<Result<String, (String, String)>> {
        let cdi: Vec<Value> = container.cdi.iter().map(|name| json!({"name": name})).collect();
        let request = json!({
            "podSandboxId": sandbox,
            "config": {
                "metadata": {"name": container.name, "attempt": container.attempt},
                "image": {"image": container.image},
                "command": ["sh", "-c", container.script],
                "logPath": format!("{}.log", container.name),
                "annotations": container.annotations,
                "CDIDevices": cdi,
                "linux": {"securityContext": {"namespaceOptions": pod.namespaces()}},
            },
            "sandboxConfig": pod.config(),
        });
        let response = match self.call("RuntimeService/CreateContainer", &request)? {
            Ok(response) => response,
            Err(message) => return Ok(Err((message, String::new()))),
        };
        let id = id(&response, "containerId")?;
        Ok(match self.call("RuntimeService/StartContainer", &json!({"containerId": id}))? {
            Ok(_) => Ok(id),
            Err(message) => Err((message, id)),
        })
    }

    /// Runs a container to its end.
    pub fn run(&mut self, pod: &Pod, sandbox: &str, container: &Container<'_>) -> Result<Ended> {
        match self.start_container(pod, sandbox, container)? {
            Ok(id) => self.ended(pod, container.name, &id),
            Err((message, _)) => bail!("{}: {message}\n{}", container.name, self.log()),
        }
    }

    /// Waits for a container's end.
    pub fn ended(&mut self, pod: &Pod, name: &str, id: &str) -> Result<Ended> {
        let start = Instant::now();
        loop {
            let response =
                self.call("RuntimeService/ContainerStatus", &json!({"containerId": id}))?;
            let status = response.map_err(|error| anyhow::anyhow!(error))?["status"].take();
            if status["state"] == "CONTAINER_EXITED" {
                let text = |key: &str| status[key].as_str().unwrap_or_default().to_owned();
                let code = status["exitCode"].as_i64().unwrap_or_default();
                let code = i32::try_from(code)?;
                let output = self.output(pod, name).unwrap_or_default();
                return Ok(Ended {
                    code,
                    reason: text("reason"),
                    message: text("message"),
                    output,
                });
            }
            ensure!(start.elapsed() < Duration::from_secs(20), "{name} does not end: {status}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// What a container printed: the lines of its log without time, stream and tag.
    fn output(&self, pod: &Pod, name: &str) -> Result<String> {
        let log = self.sandbox.read(&format!("{LOGS}/{}/{name}.log", pod.name))?;
        Ok(log
            .lines()
            .filter_map(|line| line.splitn(4, ' ').nth(3))
            .map(|line| format!("{line}\n"))
            .collect())
    }

    /// The configuration that the low-level runtime got.
    pub fn config(&self, id: &str) -> Result<String> {
        self.bundle_file(id, "config.json")
    }

    /// A file of a container's bundle.
    pub fn bundle_file(&self, id: &str, name: &str) -> Result<String> {
        self.sandbox
            .read(&format!("/run/containerd/io.containerd.runtime.v2.task/k8s.io/{id}/{name}"))
    }

    /// The engine's own log.
    pub fn log(&self) -> String {
        self.sandbox.read(LOG).unwrap_or_default()
    }
}

// === impl Pod ===

impl Pod {
    pub fn new(name: &'static str, handler: &'static str) -> Pod {
        Pod { name, handler, annotations: json!({}), user_namespace: false }
    }

    pub fn uid(&self) -> String {
        format!("uid-of-{}", self.name)
    }

    fn config(&self) -> Value {
        json!({
            "metadata": {"name": self.name, "uid": self.uid(), "namespace": "default"},
            "logDirectory": format!("{LOGS}/{}", self.name),
            "annotations": self.annotations,
            "linux": {"securityContext": {"namespaceOptions": self.namespaces()}},
        })
    }

    fn namespaces(&self) -> Value {
        if !self.user_namespace {
            return json!({"network": "NODE"});
        }
        let ids = json!([{"hostId": 100_000, "containerId": 0, "length": 65_536}]);
        json!({"network": "POD", "usernsOptions": {"mode": "POD", "uids": ids, "gids": ids}})
    }
}

// === impl Container ===

impl<'a> Container<'a> {
    pub fn new(name: &'a str, script: impl Into<String>) -> Container<'a> {
        Container {
            name,
            image: IMAGE,
            script: script.into(),
            annotations: json!({}),
            cdi: &[],
            attempt: 0,
        }
    }
}

fn id(response: &Value, key: &str) -> Result<String> {
    response[key].as_str().map(str::to_owned).with_context(|| format!("no {key} in {response}"))
}

/// The configuration, as an administrator would write it; sandboxes without CAP_SYS_RESOURCE and AppArmor need
/// `restrict_oom_score_adj` and `disable_apparmor`.
fn configuration(end: End, handlers: &[(&str, String)], native: bool) -> Result<String> {
    let (version, cri, images) = match end {
        End::Old => (2, "io.containerd.grpc.v1.cri", format!("sandbox_image = {PAUSE:?}")),
        End::New => (3, "io.containerd.cri.v1.runtime", format!("enable_cdi = {native}")),
    };
    let mut text = format!(
        "version = {version}\nimports = [\"/etc/containerd/conf.d/*.toml\"]\n\
         [plugins.{cri:?}]\nrestrict_oom_score_adj = true\ndisable_apparmor = true\n{images}\n\
         [plugins.{cri:?}.cni]\n{} = {}\nconf_dir = \"/etc/cni/net.d\"\n",
        if end == End::Old { "bin_dir" } else { "bin_dirs" },
        if end == End::Old { "\"/usr/lib/cni\"" } else { "[\"/usr/lib/cni\"]" },
    );
    if end == End::New {
        text += &format!(
            "[plugins.'io.containerd.cri.v1.images'.pinned_images]\nsandbox = {PAUSE:?}\n"
        );
    }
    if let Some((default, _)) = handlers.first() {
        text += &format!("[plugins.{cri:?}.containerd]\ndefault_runtime_name = {default:?}\n");
    }
    for (name, binary) in handlers {
        text += &format!(
            "[plugins.{cri:?}.containerd.runtimes.{name}]\nruntime_type = \"io.containerd.runc.v2\"\n\
             container_annotations = [\"cdi.k8s.io/*\"]\n\
             [plugins.{cri:?}.containerd.runtimes.{name}.options]\nBinaryName = {binary:?}\n"
        );
    }
    if end == End::Old {
        // An import would replace all of the CRI's configuration there.
        text += &hook::documented("containerd-1.toml")?.replace("version = 2", "");
    }
    Ok(text)
}

/// A bridge for the pods that have a network of their own, as those with a user namespace must.
const NETWORK: &str = r#"{"cniVersion":"1.0.0","name":"pods","plugins":[{"type":"bridge","bridge":"pods0","isGateway":true,
"ipam":{"type":"host-local","ranges":[[{"subnet":"10.88.0.0/24"}]]}}]}"#;
