//! divvy-node, as the DRA driver of the node, with the GPUs of a fake host.

use anyhow::Result;
use divvy_fake_nvml::FakeHost;
use serde_json::Value;

use crate::Gpus;
use crate::node::{FOLDER, NAME, Node, kubeconfig};
use crate::pods::SOON;

/// Where the host with the GPUs is.
pub const HOST: &str = "/opt/host";
pub const DRIVER: &str = "gpu.divvy.dev";
pub const PROGRAM: &str = "divvy-node";

/// What the driver may do, and the classes of its devices.
const MANIFESTS: &str = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: divvy-node}
rules:
- {apiGroups: [resource.k8s.io], resources: [resourceslices], verbs: [get, list, watch, create, update, patch, delete]}
- {apiGroups: [resource.k8s.io], resources: [resourceclaims], verbs: [get, list, watch]}
- {apiGroups: [resource.k8s.io], resources: [resourceclaims/status], verbs: [update, patch]}
- {apiGroups: [resource.k8s.io], resources: [resourceclaims/driver], verbs: ["associated-node:update", "associated-node:patch", "arbitrary-node:update", "arbitrary-node:patch"], resourceNames: [gpu.divvy.dev]}
- {apiGroups: [""], resources: [nodes], verbs: [get]}
- {apiGroups: [""], resources: [pods], verbs: [get, list, watch]}
- {apiGroups: ["", events.k8s.io], resources: [events], verbs: [create, patch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: divvy-node}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: divvy-node}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: divvy-node}]
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu.divvy.dev}
spec:
  extendedResourceName: nvidia.com/gpu
  selectors: [{cel: {expression: 'device.driver == "gpu.divvy.dev" && device.attributes["gpu.divvy.dev"].type == "gpu"'}}]
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: mig.gpu.divvy.dev}
spec:
  selectors: [{cel: {expression: 'device.driver == "gpu.divvy.dev" && device.attributes["gpu.divvy.dev"].type == "mig"'}}]
---
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: divvy}
handler: divvy
"#;

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
        self.apply(MANIFESTS)?;
        self.sandbox.must(&["rm", "-rf", HOST])?;
        FakeHost::make(&self.sandbox.path(HOST), gpus)?.install_mps()?;
        let file = format!("{FOLDER}/divvy-node.conf");
        self.sandbox.write(&file, &kubeconfig("divvy-node-token").to_string())?;
        self.start_driver(&[])?;
        self.gpus = gpus;
        Ok(())
    }

    /// Starts the driver, and waits until the kubelet has it and its slices are there.
    pub fn start_driver(&mut self, more: &[&str]) -> Result<()> {
        let before = self.registrations();
        let (gpus, kubeconfig) = (format!("nvml:{HOST}"), format!("{FOLDER}/divvy-node.conf"));
        let args = ["--gpus", &gpus, "--node-name", NAME, "--kubeconfig", &kubeconfig];
        self.spawn_path(PROGRAM, "/programs/divvy-node", &[&args[..], more].concat())?;
        self.wait("the driver", SOON, &[PROGRAM, "kubelet"], |node| {
            let there = node.registrations() > before && !node.devices()?.is_empty();
            Ok(there.then_some(()))
        })
    }

    /// The devices in the driver's slices, in their order.
    pub fn devices(&self) -> Result<Vec<Value>> {
        let mut slices = self.api.list("/apis/resource.k8s.io/v1/resourceslices")?;
        slices.retain(|slice| slice["spec"]["driver"] == DRIVER);
        slices.sort_by_key(|slice| slice["metadata"]["name"].to_string());
        let devices = |slice: &Value| slice["spec"]["devices"].as_array().cloned();
        Ok(slices.iter().filter_map(devices).flatten().collect())
    }

    /// The host, as NVML and the administrator see it.
    pub fn host(&self) -> FakeHost {
        FakeHost::at(&self.sandbox.path(HOST))
    }

    /// How often the kubelet has taken the driver in.
    pub fn registrations(&self) -> usize {
        let log = self.sandbox.read("/var/log/node/kubelet.log").unwrap_or_default();
        log.lines()
            .filter(|line| line.contains("Registered DRA plugin") && line.contains(DRIVER))
            .count()
    }
}
