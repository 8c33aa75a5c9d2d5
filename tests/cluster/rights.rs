//! What the driver may do on the cluster, and what it may not: the chart's RBAC and its admission policy.

use anyhow::{Result, ensure};

use crate::claims::GPUS;
use crate::driver::{DRIVER, KUBECONFIG};
use crate::node::{NAME, Node};
use crate::sandbox::Run;
use crate::{Test, group};

pub fn tests() -> Vec<Test> {
    group(
        GPUS,
        [
            ("rights::slices_of_its_node", slices_of_its_node),
            ("rights::nothing_else", nothing_else),
        ],
    )
}

// === impl Node ===

impl Node {
    /// What kubectl says as the driver.
    pub fn as_driver(&mut self, args: &[&str], stdin: &str) -> Result<(bool, String)> {
        let argv = [&["/kube/kubectl", "--kubeconfig", KUBECONFIG], args].concat();
        let output = self.sandbox.finish(&Run::new(&argv).stdin(stdin))?;
        Ok((output.code == 0, output.stdout + &output.stderr))
    }
}

fn slices_of_its_node(node: &mut Node) -> Result<()> {
    let slice = |on: &str, driver: &str| {
        format!(
            "{{apiVersion: resource.k8s.io/v1, kind: ResourceSlice, metadata: {{name: probe}}, \
             spec: {{driver: {driver}, nodeName: {on}, devices: [], \
             pool: {{name: probe, generation: 1, resourceSliceCount: 1}}}}}}"
        )
    };
    for (on, driver, why) in [
        ("node2", DRIVER, "may not write ResourceSlices of another"),
        (NAME, "gpu.example.com", "may not write ResourceSlices of driver gpu.example.com"),
    ] {
        let (done, said) = node.as_driver(&["create", "-f", "-"], &slice(on, driver))?;
        ensure!(!done && said.contains(why), "{said}");
    }
    // Nor may it change or delete those of others.
    for (on, driver, why) in
        [("node2", DRIVER, "of another"), (NAME, "gpu.example.com", "of driver gpu.example.com")]
    {
        node.kubectl(&["create", "-f", "-"], &slice(on, driver))?;
        let changed =
            slice(on, driver).replace("name: probe}, spec", "name: probe, labels: {a: b}}, spec");
        for (args, stdin) in
            [(&["replace", "-f", "-"][..], &*changed), (&["delete", "resourceslice", "probe"], "")]
        {
            let (done, said) = node.as_driver(args, stdin)?;
            ensure!(!done && said.contains(why), "{args:?}: {said}");
        }
        node.kubectl(&["delete", "resourceslice", "probe"], "")?;
    }
    // Nor by a token that is bound to no node.
    let create = ["create", "token", "divvy-node", "--namespace=divvy"];
    let token = format!("--token={}", node.kubectl(&create, "")?.trim());
    let (done, said) = node.as_driver(&[&token, "create", "-f", "-"], &slice(NAME, DRIVER))?;
    ensure!(!done && said.contains("token is of no pod on a node"), "{said}");
    // The control, under a name that the driver's own slices have not.
    let (done, said) =
        node.as_driver(&["create", "--dry-run=server", "-f", "-"], &slice(NAME, DRIVER))?;
    ensure!(done, "{said}");
    Ok(())
}

fn nothing_else(node: &mut Node) -> Result<()> {
    for what in
        ["secrets", "configmaps", "resourceclaims", "nodes", "deviceclasses.resource.k8s.io"]
    {
        for verb in ["create", "update", "delete"] {
            let (may, said) =
                node.as_driver(&["auth", "can-i", verb, what, "--all-namespaces"], "")?;
            ensure!(!may && said.contains("no"), "it may {verb} {what}: {said}");
        }
    }
    Ok(())
}
