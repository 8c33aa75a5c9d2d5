//! What the driver tells the cluster of claims, with no more rights than the chart gives it.

use anyhow::{Result, ensure};
use serde_json::Value;

use crate::claims::GPUS;
use crate::driver::DRIVER;
use crate::manifest::{ANY, by_name, claim, look_and_stay, pod};
use crate::node::Node;
use crate::pods::SOON;
use crate::{Test, group};

const CLAIMS: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
const EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/default/events";

/// A setting that no GPU has: only the node looks at it.
const WRONG: &str = "requests: [{name: gpu, exactly: {deviceClassName: gpu.divvy.dev}}], \
    config: [{opaque: {driver: gpu.divvy.dev, parameters: \
    {apiVersion: gpu.divvy.dev/v1alpha1, kind: GpuConfig, bogus: 1}}}]";

pub fn tests() -> Vec<Test> {
    group(
        GPUS,
        [
            ("report::prepared", prepared),
            ("report::not_prepared", not_prepared),
            ("report::of_no_other", of_no_other),
        ],
    )
}

// === impl Node ===

impl Node {
    /// Waits until a claim's devices are told to be ready or not, and gives what is told of them.
    fn until_ready(&mut self, claim: &str, is: &str) -> Result<Vec<Value>> {
        let path = format!("{CLAIMS}/{claim}");
        self.wait(&format!("{claim} to be told Ready {is}"), SOON, &["divvy-node"], |node| {
            let devices = node.api.get(&path)?["status"]["devices"].take();
            let devices = devices.as_array().cloned().unwrap_or_default();
            let ready = |one: &Value| {
                let condition = &one["conditions"][0];
                condition["type"] == "Ready" && condition["status"] == is
            };
            Ok((!devices.is_empty() && devices.iter().all(ready)).then_some(devices))
        })
    }

    /// Waits for the driver's event of an object.
    fn until_event(&mut self, kind: &str, name: &str) -> Result<Value> {
        self.wait(&format!("an event of {kind} {name}"), SOON, &["divvy-node"], |node| {
            let of = |event: &Value| {
                let regarding = &event["regarding"];
                event["reportingController"] == DRIVER
                    && regarding["kind"] == kind
                    && regarding["name"] == name
            };
            Ok(node.api.list(EVENTS)?.into_iter().find(of))
        })
    }
}

fn prepared(node: &mut Node) -> Result<()> {
    let stay = look_and_stay();
    node.apply(&[claim("told", ANY), pod("told", by_name("told"), &stay)].concat())?;
    let devices = node.sees_claim("told", "c", "told")?;
    let told = node.until_ready("told", "True")?;
    ensure!(told.len() == devices.len() && told[0]["device"] == *devices[0], "{told:?}");
    node.delete_pods(&["told"])?;
    // With its allocation goes what was told.
    let path = format!("{CLAIMS}/told");
    node.wait("the claim to be free", SOON, &["kube-controller-manager"], |node| {
        Ok(node.api.get(&path)?["status"]["devices"].is_null().then_some(()))
    })
}

fn not_prepared(node: &mut Node) -> Result<()> {
    let stay = look_and_stay();
    node.apply(&[claim("wrong", WRONG), pod("wrong", by_name("wrong"), &stay)].concat())?;
    let told = node.until_ready("wrong", "False")?;
    let why = told[0]["conditions"][0]["message"].as_str().unwrap_or_default().to_owned();
    ensure!(why.contains("CONFIG-INVALID") && why.contains("bogus"), "{why}");
    for kind in ["ResourceClaim", "Pod"] {
        let event = node.until_event(kind, "wrong")?;
        ensure!(event["note"] == *why && event["reason"] == "PrepareFailed", "{event}");
    }
    node.delete_pods(&["wrong"])
}

/// As the driver one may tell nothing of another driver's devices, and change no allocation.
fn of_no_other(node: &mut Node) -> Result<()> {
    let stay = look_and_stay();
    node.apply(&[claim("mine", ANY), pod("mine", by_name("mine"), &stay)].concat())?;
    node.until_ready("mine", "True")?;
    let apply = ["apply", "--server-side", "--subresource=status", "--force-conflicts", "-f", "-"];
    for (status, why) in [
        ("reservedFor: [{resource: pods, name: other, uid: of-another}]", "resourceclaims/binding"),
        ("devices: [{driver: x.example.com, pool: p, device: d}]", "resourceclaims/driver"),
    ] {
        let claim = format!(
            "{{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, \
             metadata: {{name: mine, namespace: default}}, status: {{{status}}}}}"
        );
        let (done, said) = node.as_driver(&apply, &claim)?;
        ensure!(!done && said.contains(why), "{status}: {said}");
    }
    let patch = [
        "patch",
        "resourceclaim",
        "mine",
        "--type=merge",
        "-p",
        r#"{"metadata": {"labels": {"a": "b"}}}"#,
    ];
    let (done, said) = node.as_driver(&patch, "")?;
    ensure!(!done && said.contains("forbidden"), "{said}");
    node.delete_pods(&["mine"])
}
