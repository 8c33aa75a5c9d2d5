//! The node itself: pods that want no devices.

use anyhow::{Result, ensure};

use crate::node::{NAME, Node};
use crate::{Test, group};

pub fn tests() -> Vec<Test> {
    group(
        &[],
        [
            ("plain::versions", versions),
            ("plain::pod", pod),
            ("plain::user_namespace", user_namespace),
        ],
    )
}

fn versions(node: &mut Node) -> Result<()> {
    let found = node.api.get(&format!("/api/v1/nodes/{NAME}"))?;
    let info = &found["status"]["nodeInfo"];
    println!("cluster: kubelet {}, {}", info["kubeletVersion"], info["containerRuntimeVersion"]);
    let version = node.api.get("/version")?["gitVersion"].take();
    ensure!(version == info["kubeletVersion"], "{version} {info}");
    Ok(())
}

fn pod(node: &mut Node) -> Result<()> {
    node.apply(
        "
apiVersion: v1
kind: Pod
metadata: {name: plain}
spec:
  restartPolicy: Never
  containers: [{name: c, image: localhost/busybox:1, command: [sh, -c, 'echo hello; ls /dev | grep -c nvidia']}]
",
    )?;
    let output = node.until_pod("plain", "Failed").and_then(|_| node.output("plain", "c"))?;
    ensure!(output == "hello\n0\n", "{output}");
    Ok(())
}

fn user_namespace(node: &mut Node) -> Result<()> {
    node.apply(
        "
apiVersion: v1
kind: Pod
metadata: {name: own-users}
spec:
  restartPolicy: Never
  hostUsers: false
  containers: [{name: c, image: localhost/busybox:1, command: [cat, /proc/self/uid_map]}]
",
    )?;
    let output = node.run_to_end("own-users")?;
    let words: Vec<&str> = output.split_whitespace().collect();
    ensure!(words.len() == 3 && words[0] == "0" && words[1] != "0", "{output}");
    Ok(())
}
