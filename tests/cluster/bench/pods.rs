//! Pods: how much later one with a GPU starts than one with a device of a driver that does nothing, and than one
//! without any.

use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::json;

use super::{Report, median, milliseconds};
use crate::manifest::{ANY, template};
use crate::node::{FOLDER, NAME, Node, kubeconfig};
use crate::pods::SOON;

const NOOP: &str = "noop.divvy.dev";
const PROGRAM: &str = "noop-driver";
const ROUNDS: usize = 10;
const PODS: &str = "/api/v1/namespaces/default/pods";

/// It may do what an administrator may, which takes it no time.
const CLASS: &str = "---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: noop.divvy.dev}
spec: {selectors: [{cel: {expression: 'device.driver == \"noop.divvy.dev\"'}}]}
";

pub(super) fn measure(node: &mut Node, report: &mut Report) -> Result<()> {
    let file = format!("{FOLDER}/noop.conf");
    node.sandbox.write(&file, &kubeconfig("admin-token").to_string())?;
    node.spawn_path(PROGRAM, &format!("/kube/{PROGRAM}"), &[NAME, &file])?;
    let request = format!("requests: [{{name: gpu, exactly: {{deviceClassName: {NOOP}}}}}]");
    node.apply(&[CLASS, &template("noop", &request), &template("gpu", ANY)].concat())?;
    node.wait("the driver that does nothing", SOON, &[PROGRAM, "kubelet"], |node| {
        let slices = node.api.list("/apis/resource.k8s.io/v1/resourceslices")?;
        let log = node.sandbox.read("/var/log/node/kubelet.log").unwrap_or_default();
        let registered =
            log.lines().any(|line| line.contains("Registered DRA plugin") && line.contains(NOOP));
        let published = slices.iter().any(|slice| slice["spec"]["driver"] == NOOP);
        Ok((registered && published).then_some(()))
    })?;
    let mut times: [Vec<f64>; 3] = Default::default();
    for round in 0..ROUNDS {
        for (kind, times) in [None, Some("noop"), Some("gpu")].into_iter().zip(&mut times) {
            let time = start(node, kind, round)?;
            times.push(time);
        }
    }
    node.stop(PROGRAM, "KILL")?;
    node.kubectl(&["delete", "deviceclass", NOOP], "")?;
    node.kubectl(&["delete", "resourceclaimtemplates", "--all"], "")?;
    node.kubectl(
        &["delete", "resourceslices", "--field-selector", &format!("spec.driver={NOOP}")],
        "",
    )?;
    let [none, noop, gpu] = times.map(median);
    report.line("a pod's start with a GPU, beyond a noop driver", gpu - noop, 20.0, "ms", "");
    report.aside("no claim, until Running", none, "ms", "");
    report.aside("a claim of a driver that does nothing", noop, "ms", "");
    report.aside("a GPU", gpu, "ms", " (peer 120 to 140 over no claim)");
    Ok(())
}

/// From the pod's creation until it runs, ms; then it is deleted.
fn start(node: &mut Node, claim: Option<&str>, round: usize) -> Result<f64> {
    let name = format!("{}-{round}", claim.unwrap_or("none"));
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {
            "restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "c", "image": "localhost/busybox:1",
                "command": ["sh", "-c", "trap exit TERM; sleep 1000 & wait"],
            }],
        },
    });
    if let Some(template) = claim {
        pod["spec"]["resourceClaims"] =
            json!([{"name": "d", "resourceClaimTemplateName": template}]);
        pod["spec"]["containers"][0]["resources"] = json!({"claims": [{"name": "d"}]});
    }
    let begun = Instant::now();
    node.api.send("POST", PODS, &pod)?;
    let path = format!("{PODS}/{name}");
    let time = loop {
        let phase = node.api.get(&path)?["status"]["phase"].take();
        if phase == "Running" {
            break milliseconds(begun.elapsed());
        }
        anyhow::ensure!(begun.elapsed() < SOON, "{}", node.story(&name));
        std::thread::sleep(Duration::from_millis(3));
    };
    node.delete_pods(&[&name])?;
    Ok(time)
}
