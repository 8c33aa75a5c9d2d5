//! The chart's webhook, as the API server asks it: configuration that no node would understand is never stored.

use anyhow::{Result, ensure};

use crate::claims::GPUS;
use crate::manifest::{ANY, claim, template};
use crate::node::Node;
use crate::pods::SOON;
use crate::{Test, group};

pub fn tests() -> Vec<Test> {
    group(GPUS, [("webhook::refuses", refuses)])
}

fn refuses(node: &mut Node) -> Result<()> {
    node.import_image()?;
    let on = ["--set=webhook.enabled=true,webhook.replicas=1,webhook.failurePolicy=Fail"];
    node.install_chart(&on)?;
    let deployment = "/apis/apps/v1/namespaces/divvy/deployments/divvy-webhook";
    node.wait("the webhook", SOON, &["kubelet"], |node| {
        Ok((node.api.get(deployment)?["status"]["readyReplicas"] == 1).then_some(()))
    })?;
    let config = |parameters: &str| {
        format!(
            "config: [{{opaque: {{driver: gpu.divvy.dev, parameters: {{apiVersion: gpu.divvy.dev/v1alpha1, \
             kind: GpuConfig, sharing: {{timeSlicing: {{interval: {parameters}}}}}}}}}}}]"
        )
    };
    let class = |interval: &str| {
        format!(
            "---\napiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {{name: turns}}\nspec: {{{}}}\n",
            config(interval)
        )
    };
    let devices = |interval: &str| format!("{ANY}, {}", config(interval));
    let objects = |interval: &str| {
        [claim("turns", &devices(interval)), template("turns", &devices(interval)), class(interval)]
    };
    // The endpoint may be a moment behind the pod.
    let create = ["create", "--dry-run=server", "-f", "-"];
    node.wait("an answer of the webhook", SOON, &["kube-apiserver"], |node| {
        node.kubectl(&create, &objects("Short")[0]).map(Some)
    })?;
    for (right, wrong) in objects("Short").iter().zip(objects("Tiny")) {
        node.kubectl(&create, right)?;
        let said = match node.kubectl(&create, &wrong) {
            Ok(said) => anyhow::bail!("stored: {said}"),
            Err(error) => error.to_string(),
        };
        for part in ["denied the request", "CONFIG-INVALID", "interval", "Tiny", "Short"] {
            ensure!(said.contains(part), "no {part} in {said}");
        }
    }
    // Another driver's configuration is not its business.
    let theirs = objects("Tiny")[0].replace("driver: gpu.divvy.dev", "driver: gpu.example.com");
    node.kubectl(&create, &theirs)?;
    node.install_chart(&[])?;
    node.wait("the webhook to go", SOON, &["kubelet"], |node| {
        Ok(node.api.list("/api/v1/namespaces/divvy/pods")?.is_empty().then_some(()))
    })
}
