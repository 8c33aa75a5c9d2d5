//! A rolling update: the next instance of the driver serves before the last one ends, and no call finds nobody.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use divvy_fake_nvml::Rule;

use crate::claims::GPUS;
use crate::driver::{DRIVER, HOST, KUBECONFIG, PROGRAM};
use crate::manifest::{ANY, by_name, by_template, claim, look_and_stay, pod, selecting, template};
use crate::node::{NAME, Node};
use crate::pods::SOON;
use crate::{Test, group};

const PARTITION: &str = r#"device.attributes["gpu.divvy.dev"].profile == "1g.5gb""#;
const MAKE: &str = "nvmlDeviceCreateGpuInstanceWithPlacement";
/// The instance that comes.
pub const NEXT: &str = "divvy-node-next";

pub fn tests() -> Vec<Test> {
    group(
        GPUS,
        [("rolling::under_load", under_load), ("rolling::ended_by_the_other", ended_by_the_other)],
    )
}

// === impl Node ===

impl Node {
    /// The sockets of the driver, in the kubelet's registry and in its own folder.
    fn sockets(&self) -> Result<BTreeSet<String>> {
        let mut found = BTreeSet::new();
        for folder in ["plugins_registry", "plugins/gpu.divvy.dev"] {
            for entry in std::fs::read_dir(self.sandbox.path("/var/lib/kubelet").join(folder))? {
                found.insert(entry?.file_name().to_string_lossy().into_owned());
            }
        }
        found.retain(|name| name.contains(DRIVER) || name.starts_with("dra"));
        Ok(found)
    }

    /// Starts the instance that comes, beside the one that is there, and waits until the kubelet has it.
    pub fn start_next(&mut self) -> Result<()> {
        let registered = self.registrations(DRIVER);
        let gpus = format!("nvml:{HOST}");
        let args = ["--gpus", &gpus, "--node-name", NAME, "--kubeconfig", KUBECONFIG];
        let args = [&args[..], &["--pod-uid=second"]].concat();
        self.spawn_path(NEXT, "/programs/divvy-node", &args)?;
        self.wait("the next instance", SOON, &[NEXT], |node| {
            Ok((node.registrations(DRIVER) > registered).then_some(()))
        })
    }

    /// That no prepare has failed, of whichever pod.
    pub fn none_failed(&self) -> Result<()> {
        let events = self.api.list("/api/v1/namespaces/default/events")?;
        let failed = events.iter().find(|event| event["reason"] == "FailedPrepareDynamicResources");
        ensure!(failed.is_none(), "{failed:?}\n{}", self.deployed_story());
        Ok(())
    }
}

/// Pods come and go all the time, their partitions are slow to make, and the DaemonSet is changed twice.
fn under_load(node: &mut Node) -> Result<()> {
    node.deployed(|node| {
        let slow = Rule { call: MAKE.into(), delay_ms: 1500, ..Rule::default() };
        node.host().script(&[slow])?;
        let stay = look_and_stay();
        let partition = selecting("mig.gpu.divvy.dev", PARTITION);
        node.apply(&[template("gpu", ANY), template("part", &partition)].concat())?;
        node.apply(&[claim("kept", ANY), pod("kept", by_name("kept"), &stay)].concat())?;
        node.sees_claim("kept", "c", "kept")?;
        let slices = node.slice_uids()?;
        let mut last = String::new();
        for interval in ["--interval=50", "--interval=51"] {
            node.install_chart(&[
                &format!("--set=gpus=nvml:{HOST}"),
                &format!("--set=args={{{interval}}}"),
            ])?;
            let (mut rounds, mut done) = (0, false);
            // One round more than the update takes.
            while !done || rounds < 2 {
                done = node.is_rolled_out()?;
                let names = ["gpu-a", "part-a", "part-b", "part-c"]
                    .map(|name| (name, &name[..name.len() - 2]));
                let pods = names.map(|(name, kind)| pod(name, by_template(kind), &stay));
                node.apply(&pods.concat())?;
                for (name, _) in names {
                    node.seen(name, "c").with_context(|| node.deployed_story())?;
                }
                node.delete_pods(&names.map(|(name, _)| name))?;
                rounds += 1;
                ensure!(rounds < 30, "no end of the update: {}", node.deployed_story());
            }
            println!("cluster: {} pods came and went in a rolling update", rounds * 4);
            let now = node.until_deployed()?;
            let uid = now["metadata"]["uid"].as_str().context("a pod has a UID")?.to_owned();
            ensure!(uid != last, "the pod is that of before");
            let sockets = [format!("{DRIVER}-{uid}-reg.sock"), format!("dra-{uid}.sock")];
            ensure!(node.sockets()? == sockets.into(), "{:?} of pod {uid}", node.sockets()?);
            last = uid;
        }
        node.none_failed()?;
        ensure!(node.slice_uids()? == slices, "the slices were made anew");
        node.until_pod("kept", "Running")?;
        node.host().script(&[])?;
        node.delete_pods(&["kept"])
    })
}

/// One instance makes a partition and is slow; the pod goes meanwhile, and the kubelet tells the next instance.
fn ended_by_the_other(node: &mut Node) -> Result<()> {
    node.stop(PROGRAM, "TERM")?;
    node.start_driver(&["--pod-uid=first"])?;
    let slow = Rule { call: MAKE.into(), delay_ms: 15_000, times: Some(1), ..Rule::default() };
    node.host().script(&[slow])?;
    let partition = selecting("mig.gpu.divvy.dev", PARTITION);
    let stay = look_and_stay();
    node.apply(&[claim("short", &partition), pod("short", by_name("short"), &stay)].concat())?;
    node.wait("a partition to be made", SOON, &[PROGRAM], |node| {
        Ok((node.host().fitted(0)? > 0).then_some(()))
    })?;
    node.start_next()?;
    node.kubectl(&["delete", "pod", "short", "--force", "--grace-period=0", "--wait=false"], "")?;
    node.kubectl(&["delete", "resourceclaim", "short", "--wait=false"], "")?;
    node.stop(PROGRAM, "TERM")?;
    node.host().script(&[])?;
    node.wait("no partition to be left", SOON, &[NEXT], |node| {
        let left = node.host().state()?.gpus.iter().any(|gpu| !gpu.instances.is_empty());
        Ok((!left).then_some(()))
    })?;
    // It gives the same to the next.
    node.apply(&[claim("next", &partition), pod("next", by_name("next"), &stay)].concat())?;
    node.seen("next", "c")?;
    node.delete_pods(&["next"])?;
    node.stop(NEXT, "TERM")?;
    node.start_driver(&[])
}
