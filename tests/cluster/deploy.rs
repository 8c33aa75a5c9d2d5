//! What is shipped: the chart as the real helm renders and installs it, and its DaemonSet of the image that is made here,
//! with the hook that its first container installs.

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Result, ensure};
use serde_json::Value;

use crate::claims::GPUS;
use crate::driver::{HOST, PROGRAM};
use crate::manifest::{ANY, LOOK, Pod, by_name, claim, look_and_stay, pod};
use crate::node::{BOOT, NAME, Node};
use crate::pods::SOON;
use crate::{Test, group, hook};

/// Where the chart has its hook.
const HOOK: &str = "/opt/divvy";
const ENGINE: &str = "/etc/containerd/conf.d/90-divvy.toml";
/// What the chart's pods are called by.
const PODS: &str = "/api/v1/namespaces/divvy/pods";
/// Of the image of this build, which is made once.
const ARCHIVE: &str = "divvy.tar";
static MADE: OnceLock<Result<(), String>> = OnceLock::new();

pub fn tests() -> Vec<Test> {
    group(
        GPUS,
        [
            ("deploy::manifests", manifests),
            ("deploy::two_releases", two_releases),
            ("deploy::options", options),
            ("deploy::pods", pods),
        ],
    )
}

// === impl Node ===

impl Node {
    /// Has the chart's pod be the node's driver while something is done, in the place of a process of the tests.
    pub fn deployed(&mut self, body: fn(&mut Node) -> Result<()>) -> Result<()> {
        self.import_image()?;
        self.stop(PROGRAM, "TERM")?;
        // A pod sees the machine's own.
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
        self.sandbox.write(BOOT, &boot)?;
        self.install_chart(&[&format!("--set=gpus=nvml:{HOST}")])?;
        let label = ["label", "node", NAME, "--overwrite"];
        self.kubectl(&[&label[..], &["divvy.dev/gpu=true"]].concat(), "")?;
        self.until_deployed()?;
        body(self)?;
        self.kubectl(&[&label[..], &["divvy.dev/gpu-"]].concat(), "")?;
        self.wait("the chart's pod to go", SOON, &["kubelet"], |node| {
            Ok(node.api.list(PODS)?.is_empty().then_some(()))
        })?;
        self.start_driver(&[])
    }

    /// Makes the image of this build, and gives it to containerd: no registry has it.
    pub fn import_image(&mut self) -> Result<()> {
        let archive = self.images.join(ARCHIVE);
        let made = MADE.get_or_init(|| image(&archive).map_err(|error| format!("{error:#}")));
        made.clone().map_err(anyhow::Error::msg)?;
        let archive = format!("/fixture/{ARCHIVE}");
        self.sandbox.must(&["ctr", "--namespace", "k8s.io", "images", "import", &archive])?;
        Ok(())
    }

    /// Waits until the DaemonSet has what it wants, and no pod of before is left; gives the pod.
    pub fn until_deployed(&mut self) -> Result<Value> {
        self.wait("the DaemonSet's pod to be ready", SOON * 2, &["kubelet"], |node| {
            let pods = node.api.list(PODS)?;
            match (node.is_rolled_out()?, pods.as_slice()) {
                (true, [pod]) => Ok(Some(pod.clone())),
                _ => anyhow::bail!("{}", node.deployed_story()),
            }
        })
    }

    /// Whether the DaemonSet's pod is of its last form, and ready.
    pub fn is_rolled_out(&self) -> Result<bool> {
        let set = self.api.get("/apis/apps/v1/namespaces/divvy/daemonsets/divvy-node")?;
        let status = |key: &str| set["status"][key].as_i64().unwrap_or_default();
        let seen = set["metadata"]["generation"].as_i64() == Some(status("observedGeneration"));
        let one = ["desiredNumberScheduled", "updatedNumberScheduled", "numberReady"];
        Ok(seen && one.into_iter().all(|key| status(key) == 1))
    }

    /// What the chart's pods are at.
    pub fn deployed_story(&self) -> String {
        let pods = self.api.list(PODS).unwrap_or_default();
        let mut story = String::new();
        for pod in &pods {
            let name = pod["metadata"]["name"].as_str().unwrap_or_default();
            story += &format!("--- {name} ---\n{}\n", pod["status"]);
            for container in ["install", "divvy-node"] {
                let path = format!("{PODS}/{name}/log?container={container}");
                story += &self.api.text(&path).unwrap_or_default();
            }
        }
        story
    }
}

/// The image of the debug build, as scripts/image.sh makes it.
fn image(archive: &Path) -> Result<()> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/image.sh");
    let made = Command::new(script).arg(archive).env("PROFILE", "debug").output()?;
    let said = String::from_utf8_lossy(&made.stderr);
    ensure!(made.status.success(), "scripts/image.sh: {said}");
    Ok(())
}

/// deploy/divvy.yaml is what helm makes of the chart.
fn manifests(_: &mut Node) -> Result<()> {
    let project = Path::new(env!("CARGO_MANIFEST_DIR"));
    let made = Command::new(project.join("scripts/chart.sh")).output()?;
    ensure!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let kept = std::fs::read(project.join("deploy/divvy.yaml"))?;
    ensure!(made.stdout == kept, "deploy/divvy.yaml is stale: make chart writes it anew");
    Ok(())
}

/// Both have all that is theirs in one cluster and one namespace.
fn two_releases(node: &mut Node) -> Result<()> {
    let other = ["install", "other", "/deploy/chart", "--namespace=divvy"];
    let own = ["--set=deviceClasses.create=false,runtimeClass=false"];
    node.helm(&[&other[..], &own].concat())?;
    for (path, name) in [
        ("/apis/apps/v1/namespaces/divvy/daemonsets", ""),
        ("/apis/rbac.authorization.k8s.io/v1/clusterroles", ""),
        ("/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies", "-slices"),
    ] {
        for release in ["divvy-node", "other-divvy-node"] {
            node.api.get(&format!("{path}/{release}{name}"))?;
        }
    }
    node.helm(&["uninstall", "other", "--namespace=divvy"])?;
    Ok(())
}

/// What is off by default is there when it is asked for, and what no value may be is refused.
fn options(node: &mut Node) -> Result<()> {
    let template = ["template", "divvy", "/deploy/chart", "--kube-version=1.34.0"];
    let monitored = node.helm(&[&template[..], &["--set=podMonitor.enabled=true"]].concat())?;
    ensure!(monitored.contains("kind: PodMonitor"), "{monitored}");
    let simulated =
        node.helm(&[&template[..], &["--set=gpus=sim:/etc/gpus/node.toml"]].concat())?;
    ensure!(simulated.contains("mountPath: /etc/gpus}"), "{simulated}");
    for wrong in ["hookDir=relative", "httpPort=0", "podMonitor.interval=often", "unknown=1"] {
        let set = format!("--set={wrong}");
        let refused = node.helm(&[&template[..], &[&set]].concat());
        ensure!(refused.is_err(), "{wrong} is taken");
    }
    Ok(())
}

/// A pod has its GPU from the DaemonSet by containerd's own CDI, and another by the runtime that it has installed.
fn pods(node: &mut Node) -> Result<()> {
    node.deployed(|node| {
        let stay = look_and_stay();
        node.apply(&[claim("native", ANY), pod("native", by_name("native"), &stay)].concat())?;
        node.sees_claim("native", "c", "native")?;
        node.delete_pods(&["native"])?;
        let documented = hook::documented("containerd-2.toml")?;
        node.sandbox.write(ENGINE, &documented.replace(hook::DIR, HOOK))?;
        node.restart_containerd(false)?;
        let containers = [("c", LOOK, &["claim0"][..]), ("none", LOOK, &[])];
        let (claims, more) = (&[by_name("ours")], "runtimeClassName: divvy");
        let ours = Pod { name: "ours", claims, init: &[], containers: &containers, more };
        node.apply(&[claim("ours", ANY), ours.manifest()].concat())?;
        node.sees_claim("ours", "c", "ours")?;
        let none = node.seen("ours", "none")?;
        ensure!(none.is_empty(), "a container without the claim sees {none:?}");
        node.until_pod("ours", "Succeeded")?;
        node.delete_pods(&["ours"])?;
        node.sandbox.write(ENGINE, &documented)?;
        node.restart_containerd(true)
    })
}
