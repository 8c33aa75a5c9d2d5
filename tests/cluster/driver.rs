//! divvy-node, as the DRA driver of the node, with the GPUs of a fake host.

use anyhow::Result;
use divvy_fake_nvml::FakeHost;
use serde_json::Value;

use crate::Gpus;
use crate::node::{ADMIN, NAME, Node, kubeconfig};
use crate::pods::SOON;

/// Where the host with the GPUs is: on a file system whose files can be mounted into user namespaces.
pub const HOST: &str = "/var/lib/host";
/// How the driver calls the API server.
pub const KUBECONFIG: &str = "/var/lib/kube/divvy-node.conf";
pub const DRIVER: &str = "gpu.divvy.dev";
pub const PROGRAM: &str = "divvy-node";

const NAMESPACE: &str = "divvy";
/// The chart's release, with old pods' name for a GPU.
const RELEASE: [&str; 8] = [
    "upgrade",
    "--install",
    "divvy",
    "/deploy/chart",
    "--namespace=divvy",
    "--create-namespace",
    "--set=deviceClasses.extendedResourceName=nvidia.com/gpu",
    "--reset-values",
];

// === impl Node ===

impl Node {
    /// Has these GPUs on the node, and the driver for them; or neither where they are none.
    pub fn provide(&mut self, gpus: Gpus) -> Result<()> {
        if self.gpus == gpus && self.pid(PROGRAM).is_some() != gpus.is_empty() {
            return Ok(());
        }
        if self.pid(PROGRAM).is_some() {
            self.stop(PROGRAM, "TERM")?;
        }
        self.gpus = &[];
        if gpus.is_empty() {
            return Ok(());
        }
        self.install_chart(&[])?;
        self.token()?;
        // With the GPUs goes what is known of them.
        self.sandbox.must(&["rm", "-rf", HOST, "/var/lib/divvy/health.json"])?;
        FakeHost::make(&self.sandbox.path(HOST), gpus)?.install_mps()?;
        // In a user namespace runc takes a node from the path that the container has it at, whatever CDI says.
        self.sandbox.must(&["sh", "-c", &format!("cp -a {HOST}/dev/nvidia* /dev/")])?;
        self.start_driver(&[])?;
        self.gpus = gpus;
        Ok(())
    }

    /// Installs the chart, or changes what is installed of it. No pod of its own runs before the node has its label.
    pub fn install_chart(&mut self, more: &[&str]) -> Result<()> {
        self.helm(&[&RELEASE[..], more].concat()).map(|_| ())
    }

    /// The real helm, as the cluster's administrator.
    pub fn helm(&mut self, args: &[&str]) -> Result<String> {
        self.sandbox.must(&[&["/kube/helm", "--kubeconfig", ADMIN], args].concat())
    }

    /// A token as a pod of the chart has it.
    fn token(&mut self) -> Result<()> {
        let bound = ["--bound-object-kind=Node", &format!("--bound-object-name={NAME}")];
        let create = ["create", "token", "divvy-node", "--namespace", NAMESPACE];
        let token = self.kubectl(&[&create[..], &bound[..]].concat(), "")?;
        self.sandbox.write(KUBECONFIG, &kubeconfig(token.trim()).to_string())
    }

    /// Starts the driver, and waits until the kubelet has it and its slices are there.
    pub fn start_driver(&mut self, more: &[&str]) -> Result<()> {
        let before = self.registrations(DRIVER);
        let gpus = format!("nvml:{HOST}");
        let args = ["--gpus", &gpus, "--node-name", NAME, "--kubeconfig", KUBECONFIG];
        self.spawn_path(PROGRAM, "/programs/divvy-node", &[&args[..], more].concat())?;
        self.wait("the driver", SOON, &[PROGRAM, "kubelet"], |node| {
            Ok((node.registrations(DRIVER) > before && node.is_published()?).then_some(()))
        })
    }

    /// The devices in the driver's slices, in their order.
    pub fn devices(&self) -> Result<Vec<Value>> {
        let devices = |slice: &Value| slice["spec"]["devices"].as_array().cloned();
        Ok(self.all_slices()?.iter().filter_map(devices).flatten().collect())
    }

    /// The driver's slices, in their order.
    pub fn all_slices(&self) -> Result<Vec<Value>> {
        let mut slices = self.api.list("/apis/resource.k8s.io/v1/resourceslices")?;
        slices.retain(|slice| slice["spec"]["driver"] == DRIVER);
        slices.sort_by_key(|slice| slice["metadata"]["name"].to_string());
        Ok(slices)
    }

    /// Whether all that the driver has to publish is there: slices are written one after the other.
    fn is_published(&self) -> Result<bool> {
        let slices = self.all_slices()?;
        let newest = slices.iter().filter_map(|slice| slice["spec"]["pool"]["generation"].as_i64());
        let newest = newest.max();
        let of_newest = |slice: &&Value| slice["spec"]["pool"]["generation"].as_i64() == newest;
        let there = slices.iter().filter(of_newest).count();
        let count =
            slices.first().and_then(|slice| slice["spec"]["pool"]["resourceSliceCount"].as_u64());
        Ok(slices.len() == there && count == u64::try_from(there).ok())
    }

    /// The host, as NVML and the administrator see it.
    pub fn host(&self) -> FakeHost {
        FakeHost::at(&self.sandbox.path(HOST))
    }

    /// How often the kubelet has taken a driver in.
    pub fn registrations(&self, driver: &str) -> usize {
        let taken = |line: &&str| line.contains("Registered DRA plugin") && line.contains(driver);
        self.log("kubelet").lines().filter(taken).count()
    }
}
