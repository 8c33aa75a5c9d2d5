//! Both ends of the range of Kubernetes: the newest, and the oldest that has `resource.k8s.io/v1`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::claims::GPUS;
use crate::driver::PROGRAM;
use crate::node::{NAME, Node};
use crate::sandbox::End;
use crate::{Test, group};

/// What needs feature gates that the oldest has off as it is shipped: partitions, taints, shares of a device, and
/// extended resources. Or finer rights of a claim's status than it knows. The collector is beside the newest alone.
const NOT_OLD: [&str; 17] = [
    "mig::",
    "examples::",
    "health::",
    "rolling::",
    "traces::",
    "churn::fifty_pods",
    "claims::extended_resource",
    "devices::reload",
    "devices::shared",
    "report::of_no_other",
    "slices::local",
    "slices::lost",
    "slices::many",
    "slices::shares",
    "trouble::driver_away_at_the_end",
    "trouble::driver_killed_in_prepare",
    "trouble::reboot",
];

/// What there is to prove of the oldest alone.
const ONLY_OLD: &str = "versions::";

pub fn tests() -> Vec<Test> {
    group(GPUS, [("versions::no_partitions", no_partitions)])
}

/// Whether this version can run a test.
pub fn has(end: End, test: &str) -> bool {
    match end {
        End::New => !test.starts_with(ONLY_OLD),
        End::Old => !NOT_OLD.iter().any(|prefix| test.starts_with(prefix)),
    }
}

/// What a test on this version is called.
pub fn title(end: End, test: &str) -> String {
    match end {
        End::New => test.to_owned(),
        End::Old => format!("{test}::old"),
    }
}

/// Where the programs of this version are in the sandbox.
pub fn folder(end: End) -> &'static str {
    match end {
        End::New => "/kube",
        End::Old => "/kube-old",
    }
}

/// Where they are on this machine.
pub fn programs(project: &Path, end: End) -> Result<PathBuf> {
    let mut script = Command::new(project.join("scripts/cluster.sh"));
    let script = script.arg(end.name()).stderr(Stdio::inherit()).output();
    let script = script.context("scripts/cluster.sh")?;
    ensure!(script.status.success(), "scripts/cluster.sh failed");
    Ok(std::str::from_utf8(&script.stdout)?.trim().into())
}

/// A server that would drop what keeps partitions apart is sent none, and the driver says so: whole GPUs are given.
fn no_partitions(node: &mut Node) -> Result<()> {
    let version = node.api.get(&format!("/api/v1/nodes/{NAME}"))?["status"]["nodeInfo"].take();
    ensure!(version["kubeletVersion"].to_string().contains("v1.34."), "{version}");
    let devices = node.devices()?;
    let whole = GPUS.iter().filter(|(_, mig)| !mig).count();
    let all_whole = devices.iter().all(|one| one["attributes"]["type"]["string"] == "gpu");
    ensure!(devices.len() == whole && all_whole, "{devices:?}");
    let said = node.log(PROGRAM);
    ensure!(said.contains("which need Kubernetes 1.35 or newer"), "{said}");
    Ok(())
}
