//! Pods on the node, and what a test waits for and reads of them.

use std::fs;
use std::time::Duration;

use anyhow::{Result, bail};
use serde_json::Value;

use crate::node::Node;

/// How long a pod may take to come and to go, on a busy machine.
pub const SOON: Duration = Duration::from_secs(60);
/// Where containerd has a folder for each task.
pub const BUNDLES: &str = "/run/containerd/io.containerd.runtime.v2.task/k8s.io";
const PODS: &str = "/api/v1/namespaces/default/pods";

// === impl Node ===

impl Node {
    /// Applies manifests to the default namespace.
    pub fn apply(&mut self, manifests: &str) -> Result<()> {
        self.kubectl(&["apply", "-f", "-"], manifests).map(|_| ())
    }

    /// Waits until a pod is in a phase, and gives it.
    pub fn until_pod(&mut self, name: &str, phase: &str) -> Result<Value> {
        self.until_pod_within(name, phase, SOON)
    }

    pub fn until_pod_within(&mut self, name: &str, phase: &str, limit: Duration) -> Result<Value> {
        let path = format!("{PODS}/{name}");
        let waited = self.wait(&format!("pod {name} to be {phase}"), limit, &[], |node| {
            let pod = node.api.get(&path)?;
            let now = pod["status"]["phase"].as_str().unwrap_or_default().to_owned();
            // What has ended stays as it is.
            Ok((now == phase || now == "Failed" || now == "Succeeded").then_some((now, pod)))
        });
        match waited {
            Ok((now, pod)) if now == phase => Ok(pod),
            Ok((now, _)) => bail!("pod {name} is {now} and not {phase}\n{}", self.story(name)),
            Err(error) => bail!("{error:#}{}", self.story(name)),
        }
    }

    /// Waits until a container has started, whether it has ended since or not.
    pub fn until_container(&mut self, pod: &str, container: &str) -> Result<()> {
        let path = format!("{PODS}/{pod}");
        let waited = self.wait(&format!("{pod}/{container} to start"), SOON, &[], |node| {
            let status = node.api.get(&path)?["status"].take();
            let of = |list: &str| status[list].as_array().cloned().unwrap_or_default();
            let all = [of("initContainerStatuses"), of("containerStatuses")].concat();
            let state = all.iter().find(|one| one["name"] == container).map(|one| &one["state"]);
            let started =
                |state: &Value| !state["running"].is_null() || !state["terminated"].is_null();
            Ok(state.is_some_and(started).then_some(()))
        });
        waited.map_err(|error| anyhow::anyhow!("{error:#}{}", self.story(pod)))
    }

    /// Deletes pods, and waits until they are gone.
    pub fn delete_pods(&mut self, pods: &[&str]) -> Result<()> {
        self.kubectl(&[&["delete", "pod", "--wait=false", "--grace-period=1"], pods].concat(), "")?;
        pods.iter().try_for_each(|name| self.until_gone_within(name, SOON))
    }

    /// Waits until a pod has run to its end, and gives what its container printed.
    pub fn run_to_end(&mut self, name: &str) -> Result<String> {
        let pod = self.until_pod(name, "Succeeded")?;
        let container = pod["spec"]["containers"][0]["name"].as_str().unwrap_or_default();
        self.output(name, container)
    }

    /// What a container has printed.
    pub fn output(&self, pod: &str, container: &str) -> Result<String> {
        self.api.text(&format!("{PODS}/{pod}/log?container={container}"))
    }

    /// Waits until a pod is gone from the API.
    pub fn until_gone_within(&mut self, name: &str, limit: Duration) -> Result<()> {
        let path = format!("{PODS}/{name}");
        let gone = |node: &mut Node| Ok(node.api.find(&path)?.is_none().then_some(()));
        let waited = self.wait(&format!("pod {name} to go"), limit, &[], gone);
        waited.map_err(|error| anyhow::anyhow!("{error:#}{}", self.story(name)))
    }

    /// The events of a pod, as `Reason: message`.
    pub fn events(&self, pod: &str) -> Result<Vec<String>> {
        let path =
            format!("/api/v1/namespaces/default/events?fieldSelector=involvedObject.name%3D{pod}");
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let events = self.api.list(&path)?;
        Ok(events
            .iter()
            .map(|event| format!("{}: {}", text(&event["reason"]), text(&event["message"])))
            .collect())
    }

    /// The events of a pod by which the kubelet says that its devices were not prepared.
    pub fn failed_prepares(&self, pod: &str) -> Result<Vec<String>> {
        let mut events = self.events(pod)?;
        events.retain(|event| event.contains("FailedPrepareDynamicResources"));
        Ok(events)
    }

    /// The process of a pod's container that runs, whatever the API says of the pod.
    pub fn container(&self, pod: &str) -> Result<Option<u32>> {
        for bundle in fs::read_dir(self.sandbox.path(BUNDLES))?.flatten() {
            let read = |name: &str| fs::read_to_string(bundle.path().join(name));
            // One that is being made or removed does not run.
            let (Ok(config), Ok(pid)) = (read("config.json"), read("init.pid")) else { continue };
            let annotations = serde_json::from_str::<Value>(&config)?["annotations"].take();
            let of_pod = annotations["io.kubernetes.cri.sandbox-name"] == pod
                && annotations["io.kubernetes.cri.container-type"] == "container";
            let pid = pid.trim().parse()?;
            if of_pod && self.runs(pid) {
                return Ok(Some(pid));
            }
        }
        Ok(None)
    }

    /// All that is known of a pod that did not do as it should.
    pub fn story(&self, name: &str) -> String {
        let mut story = String::new();
        let mut add = |what: &str, text: String| story += &format!("--- {what} ---\n{text}\n");
        let pod = self.api.get(&format!("{PODS}/{name}")).unwrap_or_default();
        add("status", serde_json::to_string_pretty(&pod["status"]).unwrap_or_default());
        for container in containers(&pod) {
            add(&container, self.output(name, &container).unwrap_or_default());
        }
        story
    }
}

fn containers(pod: &Value) -> Vec<String> {
    let named = |list: &str| pod["spec"][list].as_array().cloned().unwrap_or_default();
    let all = [named("initContainers"), named("containers")].concat();
    all.iter().filter_map(|one| one["name"].as_str().map(str::to_owned)).collect()
}
