//! A node: a whole cluster of one machine, in a sandbox.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use crate::Gpus;
use crate::api::Api;
use crate::fixture::{self, Fixture, IMAGE, PAUSE};
use crate::hook;
use crate::sandbox::{End, Run, Sandbox, View};
use crate::versions;

#[derive(Debug)]
pub struct Node {
    pub sandbox: Sandbox,
    pub api: Api,
    /// Process ids inside, by what they log as.
    running: BTreeMap<String, u32>,
    /// Those that the driver was started for.
    pub gpus: Gpus,
    /// Where this machine has the images that are below /fixture inside.
    pub images: PathBuf,
    /// Which version of Kubernetes it is of.
    pub end: End,
}

pub const NAME: &str = "node1";
/// Of the whole start, on a busy machine.
const START: Duration = Duration::from_secs(120);

const ADDRESS: &str = "10.89.0.1";
/// Of the service `kubernetes`, which pods call: an address of the node, where the API server listens, so that there need
/// be no kube-proxy.
const SERVICE: &str = "10.96.0.1";
pub const FOLDER: &str = "/var/lib/kube";
const LOGS: &str = "/var/log/node";
const SOCKET: &str = "/run/kube/api.sock";
pub const ADMIN: &str = "/var/lib/kube/admin.conf";

/// What the kubelet wants the kernel to be set to. These settings are the machine's, not a namespace's: it finds files
/// in their places, and changes nothing.
const TUNABLES: [(&str, &str); 6] = [
    ("vm/overcommit_memory", "1"),
    ("vm/panic_on_oom", "0"),
    ("kernel/panic", "10"),
    ("kernel/panic_on_oops", "1"),
    ("kernel/keys/root_maxkeys", "1000000"),
    ("kernel/keys/root_maxbytes", "25000000"),
];

/// Who may call the API server: a token is a name and its groups.
const TOKENS: &str = "admin-token,admin,admin,system:masters\n\
    kubelet-token,system:node:node1,node1,system:nodes\n";

/// No systemd, cgroups of version 1 or none for pods; else as the kubelet has it.
const KUBELET: &str = r#"
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
cgroupDriver: cgroupfs
failCgroupV1: false
failSwapOn: false
cgroupsPerQOS: false
enforceNodeAllocatable: []
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
staticPodPath: /etc/kubernetes/manifests
# What has failed is tried again in ten seconds, not in a minute.
syncFrequency: 10s
evictionHard: {memory.available: 1Mi, nodefs.available: 1%, imagefs.available: 1%, nodefs.inodesFree: 1%}
"#;

/// A sandbox has no CAP_SYS_RESOURCE and no AppArmor.
const CONTAINERD: &str = r#"
version = 3
imports = ["/etc/containerd/conf.d/*.toml"]
[plugins.'io.containerd.cri.v1.runtime']
restrict_oom_score_adj = true
disable_apparmor = true
enable_cdi = NATIVE
[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = ["/usr/lib/cni"]
conf_dir = "/etc/cni/net.d"
[plugins.'io.containerd.cri.v1.runtime'.containerd]
default_runtime_name = "runc"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = "localhost/pause:1"
"#;

const CONFIG: &str = "/etc/containerd/config.toml";
/// Stands for the kernel's, so that a test can have another boot.
pub const BOOT: &str = "/run/boot-id";

const NETWORK: &str = r#"{"cniVersion":"1.0.0","name":"pods","plugins":[{"type":"bridge","bridge":"pods0",
"isGateway":true,"ipam":{"type":"host-local","ranges":[[{"subnet":"10.88.0.0/16"}]],"routes":[{"dst":"0.0.0.0/0"}]}}]}"#;

// === impl Node ===

impl Node {
    /// Starts it, and waits until pods can run there.
    pub fn start(fixture: &Fixture, end: End) -> Result<Node> {
        let start = Instant::now();
        let sandbox = Sandbox::start(fixture, End::New, View::with_controllers()?)?;
        let api = Api { socket: sandbox.path(SOCKET) };
        let (running, images) = (BTreeMap::new(), fixture.dir.path().to_owned());
        let mut node = Node { sandbox, api, running, gpus: &[], images, end };
        node.configure(fixture)?;
        node.start_control_plane()?;
        node.start_containerd()?;
        node.start_kubelet()?;
        let ready = |node: &mut Node| {
            let found = node.api.find(&format!("/api/v1/nodes/{NAME}"))?;
            Ok(found.filter(|found| condition(found, "Ready")))
        };
        node.wait("the node to be Ready", START, &["kubelet", "containerd"], ready)?;
        for needed in ["serviceaccounts/default", "configmaps/kube-root-ca.crt"] {
            let path = format!("/api/v1/namespaces/default/{needed}");
            node.wait(needed, START, &["kube-controller-manager"], |node| node.api.find(&path))?;
        }
        eprintln!("cluster: a node was ready in {:.1} s", start.elapsed().as_secs_f64());
        Ok(node)
    }

    fn configure(&mut self, fixture: &Fixture) -> Result<()> {
        let sandbox = &mut self.sandbox;
        for (name, value) in TUNABLES {
            let file = format!("/run/tunables/{name}");
            sandbox.write(&file, &format!("{value}\n"))?;
            sandbox.must(&["mount", "--bind", &file, &format!("/proc/sys/{name}")])?;
        }
        let boot = sandbox.read("/proc/sys/kernel/random/boot_id")?;
        sandbox.write(BOOT, &boot)?;
        sandbox.must(&["mount", "--bind", BOOT, "/proc/sys/kernel/random/boot_id"])?;
        // The kernel lets a user namespace mount /proc only where one is that nothing covers.
        sandbox.must(&["mkdir", "-p", "/run/proc", "/run/kube", LOGS])?;
        sandbox.must(&["mount", "-t", "proc", "proc", "/run/proc"])?;
        // The kubelet takes no loopback address as the node's; a bridge is what every kernel with pods has.
        sandbox.must(&["ip", "link", "add", "node0", "type", "bridge"])?;
        sandbox.must(&["ip", "address", "add", &format!("{ADDRESS}/24"), "dev", "node0"])?;
        sandbox.must(&["ip", "address", "add", &format!("{SERVICE}/32"), "dev", "node0"])?;
        sandbox.must(&["ip", "link", "set", "node0", "up"])?;
        sandbox.write("/etc/machine-id", &boot.replace('-', ""))?;
        let key = sandbox.must(&["/kube/kube-key"])?;
        sandbox.write_mode(&format!("{FOLDER}/sa.key"), key.as_bytes(), 0o600)?;
        sandbox.write(&format!("{FOLDER}/tokens.csv"), TOKENS)?;
        sandbox.write(&format!("{FOLDER}/kubelet.yaml"), KUBELET)?;
        for name in ["admin", "kubelet"] {
            let file = format!("{FOLDER}/{name}.conf");
            sandbox.write(&file, &kubeconfig(&format!("{name}-token")).to_string())?;
        }
        sandbox.write(CONFIG, &CONTAINERD.replace("NATIVE", "true"))?;
        sandbox.write("/etc/cni/net.d/10-pods.conflist", NETWORK)?;
        let ours = hook::documented("containerd-2.toml")?;
        sandbox.write("/etc/containerd/conf.d/90-divvy.toml", &ours)?;
        let ours = hook::documented("config.toml")?;
        hook::install_as(sandbox, fixture, &["divvy-runtime"], &ours)
    }

    fn start_control_plane(&mut self) -> Result<()> {
        self.spawn("etcd", &["--data-dir=/var/lib/etcd", "--log-level=warn"])?;
        self.start_api_server()?;
        let admin = format!("--kubeconfig={ADMIN}");
        self.wait("a certificate", START, &["kube-apiserver", "etcd"], |node| {
            Ok(node.sandbox.exists(&format!("{FOLDER}/apiserver.crt")).then_some(()))
        })?;
        self.spawn_as("proxy", "kubectl", &["proxy", &admin, "--unix-socket", SOCKET])?;
        self.wait("the API server", START, &["kube-apiserver", "etcd", "proxy"], |node| {
            Ok(node.api.text("/readyz").ok())
        })?;
        self.spawn("kube-scheduler", &[&admin, "--leader-elect=false"])?;
        self.spawn(
            "kube-controller-manager",
            &[
                &admin,
                "--leader-elect=false",
                "--use-service-account-credentials=true",
                &format!("--service-account-private-key-file={FOLDER}/sa.key"),
                &format!("--root-ca-file={FOLDER}/apiserver.crt"),
            ],
        )
    }

    pub fn start_api_server(&mut self) -> Result<()> {
        self.spawn(
            "kube-apiserver",
            &[
                "--etcd-servers=http://127.0.0.1:2379",
                "--secure-port=443",
                &format!("--advertise-address={ADDRESS}"),
                &format!("--cert-dir={FOLDER}"),
                &format!("--service-account-key-file={FOLDER}/sa.key"),
                &format!("--service-account-signing-key-file={FOLDER}/sa.key"),
                "--service-account-issuer=https://kubernetes.default.svc",
                "--service-cluster-ip-range=10.96.0.0/16",
                "--authorization-mode=Node,RBAC",
                "--enable-admission-plugins=NodeRestriction",
                "--kubelet-preferred-address-types=InternalIP",
                &format!("--token-auth-file={FOLDER}/tokens.csv"),
                "--allow-privileged=true",
                // A webhook is called at its pod.
                "--enable-aggregator-routing=true",
            ],
        )
    }

    pub fn start_containerd(&mut self) -> Result<()> {
        self.spawn_path("containerd", "containerd", &["--log-level", "info"])?;
        self.wait("containerd", START, &["containerd"], |node| {
            Ok((node.sandbox.run(&["ctr", "version"])?.code == 0).then_some(()))
        })?;
        for image in [IMAGE, PAUSE] {
            let archive = format!("/fixture/{}", fixture::archive(image));
            self.sandbox.must(&["ctr", "--namespace", "k8s.io", "images", "import", &archive])?;
        }
        Ok(())
    }

    /// Starts containerd again, with its own CDI or without.
    pub fn restart_containerd(&mut self, native: bool) -> Result<()> {
        self.stop("containerd", "TERM")?;
        self.sandbox.write(CONFIG, &CONTAINERD.replace("NATIVE", &native.to_string()))?;
        self.start_containerd()
    }

    pub fn start_kubelet(&mut self) -> Result<()> {
        self.spawn(
            "kubelet",
            &[
                &format!("--config={FOLDER}/kubelet.yaml"),
                &format!("--kubeconfig={FOLDER}/kubelet.conf"),
                &format!("--hostname-override={NAME}"),
                &format!("--node-ip={ADDRESS}"),
                "--cert-dir=/var/lib/kubelet/pki",
                // It says when it takes a driver in.
                "--vmodule=dra_plugin_manager=3",
            ],
        )
    }

    /// Starts one of Kubernetes' programs.
    fn spawn(&mut self, program: &str, args: &[&str]) -> Result<()> {
        self.spawn_as(program, program, args)
    }

    fn spawn_as(&mut self, name: &str, program: &str, args: &[&str]) -> Result<()> {
        let folder = versions::folder(self.end);
        self.spawn_path(name, &format!("{folder}/{program}"), args)
    }

    /// Starts a program that logs under a name.
    pub fn spawn_path(&mut self, name: &str, path: &str, args: &[&str]) -> Result<()> {
        let pid = self.sandbox.spawn(&[&[path], args].concat(), &format!("{LOGS}/{name}.log"))?;
        self.running.insert(name.to_owned(), pid);
        Ok(())
    }

    /// The process of a program that was started.
    pub fn pid(&self, name: &str) -> Option<u32> {
        self.running.get(name).copied()
    }

    /// Whether a process of the sandbox runs: one that was killed has its sockets as long as it has threads.
    pub fn runs(&self, pid: u32) -> bool {
        let stat = self.sandbox.read(&format!("/proc/{pid}/stat")).unwrap_or_default();
        let Some((_, rest)) = stat.split_once(") ") else { return false };
        let threads = std::fs::read_dir(self.sandbox.path(&format!("/proc/{pid}/task")));
        !rest.starts_with('Z') || threads.is_ok_and(|threads| threads.count() > 1)
    }

    pub fn signal(&mut self, name: &str, signal: &str) -> Result<()> {
        let pid = self.pid(name).with_context(|| format!("no {name} runs"))?;
        self.sandbox.must(&["bash", "-c", &format!("kill -{signal} {pid}")]).map(|_| ())
    }

    /// Ends a program by a signal.
    pub fn stop(&mut self, name: &str, signal: &str) -> Result<()> {
        self.signal(name, signal)?;
        self.until_ended(name)
    }

    /// Waits until a program has ended, which is no surprise.
    pub fn until_ended(&mut self, name: &str) -> Result<()> {
        let pid = self.running.remove(name).with_context(|| format!("no {name} runs"))?;
        self.wait(&format!("{name} to end"), START, &[name], |node| {
            Ok((!node.runs(pid)).then_some(()))
        })
    }

    /// Waits until something is there; where it does not come, the end of these programs' logs says why.
    pub fn wait<T>(
        &mut self,
        what: &str,
        limit: Duration,
        logs: &[&str],
        mut look: impl FnMut(&mut Node) -> Result<Option<T>>,
    ) -> Result<T> {
        let start = Instant::now();
        loop {
            let found = look(self);
            if let Ok(Some(found)) = found {
                return Ok(found);
            }
            let ended = logs.iter().find(|name| self.pid(name).is_some_and(|pid| !self.runs(pid)));
            if ended.is_some() || start.elapsed() > limit {
                let last = found.err().map(|error| format!(": {error:#}")).unwrap_or_default();
                let logs: String = logs.iter().map(|name| self.end_of_log(name)).collect();
                let why = match ended {
                    Some(name) => format!("{name} has ended"),
                    None => format!("{limit:?} are over"),
                };
                bail!("waited in vain for {what}: {why}{last}\n{logs}");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// All that a program has said.
    pub fn log(&self, name: &str) -> String {
        self.sandbox.read(&format!("{LOGS}/{name}.log")).unwrap_or_default()
    }

    /// The last lines of a program's log, under its name.
    pub fn end_of_log(&self, name: &str) -> String {
        let log = self.log(name);
        let lines: Vec<&str> = log.lines().collect();
        let end = lines[lines.len().saturating_sub(25)..].join("\n");
        format!("--- {name} ---\n{end}\n")
    }

    /// What a person needs to see why something failed: the events, the ends of the logs, and where all of them are kept.
    pub fn account(&self, test: &str) -> String {
        let events = self.api.list("/api/v1/events").unwrap_or_default();
        let mut account = "--- events ---\n".to_owned();
        for event in &events[events.len().saturating_sub(40)..] {
            let of = |pointer: &str| event.pointer(pointer).and_then(Value::as_str).unwrap_or("");
            let (kind, name) = (of("/involvedObject/kind"), of("/involvedObject/name"));
            account += &format!("{kind} {name}: {} {}\n", of("/reason"), of("/message"));
        }
        for log in ["divvy-node", "kubelet", "containerd"] {
            account += &self.end_of_log(log);
        }
        let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/cluster").join(test);
        account
            + &match keep(&self.sandbox.path(LOGS), &kept) {
                Ok(()) => format!("--- all logs are in {} ---\n", kept.display()),
                Err(error) => format!("--- the logs could not be kept: {error:#} ---\n"),
            }
    }

    /// Calls kubectl as the cluster's administrator.
    pub fn kubectl(&mut self, args: &[&str], stdin: &str) -> Result<String> {
        let argv = [&["/kube/kubectl", "--kubeconfig", ADMIN], args].concat();
        let run = Run::new(&argv).stdin(stdin);
        let output = self.sandbox.finish(&run)?;
        ensure!(output.code == 0, "kubectl {}: {}{}", args.join(" "), output.stdout, output.stderr);
        Ok(output.stdout)
    }

    /// Hands it to a person, until their shell ends.
    pub fn shell(&mut self) -> Result<()> {
        let tools = "mkdir /run/busybox && busybox --install -s /run/busybox";
        self.sandbox.must(&["sh", "-c", tools])?;
        let path = "PATH=/kube:/programs:/usr/local/bin:/usr/bin:/usr/sbin:/run/busybox";
        let (prompt, kubeconfig) = (format!("PS1={NAME}# "), format!("KUBECONFIG={ADMIN}"));
        // The first process of the sandbox is in all its namespaces but that of its cgroup.
        let first = self.sandbox.path("/");
        let first = first.iter().nth(2).context("no first process")?;
        let status = Command::new("nsenter")
            .args(["--mount", "--uts", "--ipc", "--net", "--pid", "--root", "--wd", "--target"])
            .arg(first)
            .args(["env", "-i", "HOME=/root", "TERM=linux", path, &prompt, &kubeconfig])
            .args(["sh", "-c", "cd && exec bash --noprofile --norc"])
            .status()?;
        ensure!(status.success(), "the shell ended with {status}");
        Ok(())
    }
}

/// Copies the files of a folder.
fn keep(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)?.flatten() {
        std::fs::copy(entry.path(), to.join(entry.file_name()))?;
    }
    Ok(())
}

/// Whether an object's condition is true.
pub fn condition(object: &Value, kind: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    conditions
        .is_some_and(|all| all.iter().any(|one| one["type"] == kind && one["status"] == "True"))
}

/// How a program calls the API server; JSON is YAML.
pub fn kubeconfig(token: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": {
            "server": format!("https://{ADDRESS}:443"),
            "certificate-authority": format!("{FOLDER}/apiserver.crt"),
        }}],
        "users": [{"name": "me", "user": {"token": token}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "me"}}],
        "current-context": "test",
    })
}
