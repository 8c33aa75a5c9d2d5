//! Trouble: what ends in the middle, comes back, or is not there for a while.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use divvy_fake_nvml::Rule;

use crate::claims::GPUS;
use crate::driver::{DRIVER, PROGRAM};
use crate::manifest::{ANY, Pod, by_name, claim, look_and_stay, pod, selecting};
use crate::node::{BOOT, NAME, Node, condition};
use crate::pods::SOON;
use crate::{Test, group};

/// The kubelet tries again what failed after 60 to 90 seconds.
const NEXT_TRY: Duration = Duration::from_secs(150);
/// The one old GPU.
const OLD: &str = r#"device.attributes["gpu.divvy.dev"].architecture == "Turing""#;
const SMALL: &str = r#"device.attributes["gpu.divvy.dev"].profile == "1g.5gb""#;

/// What a boot begins without: containers, and all that was mounted for them.
const END_PODS: &str = r#"
for stat in /proc/[0-9]*/comm; do
  read -r name <"$stat" && [ "$name" = containerd-shim ] && kill -9 "$(basename "$(dirname "$stat")")"
done
for pid in /run/containerd/io.containerd.runtime.v2.task/k8s.io/*/init.pid; do kill -9 "$(cat "$pid")"; done
while read -r _ _ _ _ at _; do
  case $at in /run/containerd/* | /var/lib/kubelet/* | /run/netns/* | /var/run/netns/*) umount -l "$at" ;; esac
done </proc/self/mountinfo
rm -rf /run/containerd /run/netns /run/cdi /run/divvy
true"#;

pub fn tests() -> Vec<Test> {
    group(
        GPUS,
        [
            ("trouble::driver_restart", driver_restart),
            ("trouble::driver_away_at_the_end", driver_away_at_the_end),
            ("trouble::driver_killed_in_prepare", driver_killed_in_prepare),
            ("trouble::kubelet_restart", kubelet_restart),
            ("trouble::forced_deletion", forced_deletion),
            ("trouble::claim_replaced", claim_replaced),
            ("trouble::api_server_away", api_server_away),
            ("trouble::reboot", reboot),
            ("trouble::entry_damaged", entry_damaged),
            ("trouble::journal_unreadable", journal_unreadable),
        ],
    )
}

/// A pod that has its claim runs on, and another gets one after the restart.
fn driver_restart(node: &mut Node) -> Result<()> {
    let stay = look_and_stay();
    node.apply(&[claim("before", ANY), pod("before", by_name("before"), &stay)].concat())?;
    let before = node.sees_claim("before", "c", "before")?;
    for signal in ["TERM", "KILL"] {
        node.stop(PROGRAM, signal)?;
        node.start_driver(&[])?;
        node.until_pod("before", "Running")?;
        node.apply(&[claim("after", ANY), pod("after", by_name("after"), &stay)].concat())?;
        let after = node.sees_claim("after", "c", "after")?;
        ensure!(before != after, "both have {after:?}");
        node.delete_pods(&["after"])?;
        node.kubectl(&["delete", "resourceclaim", "after"], "")?;
    }
    node.delete_pods(&["before"])
}

/// A pod whose claim nobody can end waits, and goes when the driver is back.
fn driver_away_at_the_end(node: &mut Node) -> Result<()> {
    let stay = look_and_stay();
    let devices = selecting("mig.gpu.divvy.dev", SMALL);
    node.apply(&[claim("left", &devices), pod("left", by_name("left"), &stay)].concat())?;
    node.seen("left", "c")?;
    node.stop(PROGRAM, "KILL")?;
    node.kubectl(&["delete", "pod", "left", "--wait=false"], "")?;
    let of_pod = |node: &mut Node| Ok(node.container("left")?.is_none().then_some(()));
    node.wait("the container to end", SOON, &["kubelet"], of_pod)?;
    node.start_driver(&[])?;
    node.until_gone_within("left", NEXT_TRY)
}

/// Killed with a partition made and nothing said of it: the next try has one, and no second is left.
fn driver_killed_in_prepare(node: &mut Node) -> Result<()> {
    let kill = Rule {
        call: "nvmlDeviceCreateGpuInstanceWithPlacement".into(),
        times: Some(1),
        kill: true,
        after: true,
        ..Rule::default()
    };
    node.host().script(&[kill])?;
    let stay = look_and_stay();
    let devices = selecting("mig.gpu.divvy.dev", SMALL);
    node.apply(&[claim("half", &devices), pod("half", by_name("half"), &stay)].concat())?;
    node.until_ended(PROGRAM)?;
    node.start_driver(&[])?;
    node.host().script(&[])?;
    node.until_pod_within("half", "Running", NEXT_TRY)?;
    let partitions: usize = node.host().state()?.gpus.iter().map(|gpu| gpu.instances.len()).sum();
    ensure!(partitions == 1, "{partitions} partitions for one claim");
    node.delete_pods(&["half"])
}

/// It wipes the slices as it starts: they come back, and pods with claims run on.
fn kubelet_restart(node: &mut Node) -> Result<()> {
    let stay = look_and_stay();
    node.apply(&[claim("before", ANY), pod("before", by_name("before"), &stay)].concat())?;
    node.sees_claim("before", "c", "before")?;
    let devices = node.devices()?.len();
    let slices = node.slice_uids()?;
    node.restart_kubelet()?;
    node.wait("the slices to be made anew", SOON, &["divvy-node", "kubelet"], |node| {
        let anew = node.slice_uids()?.is_disjoint(&slices);
        Ok((anew && node.devices()?.len() == devices).then_some(()))
    })?;
    node.apply(&[claim("after", ANY), pod("after", by_name("after"), &stay)].concat())?;
    node.sees_claim("after", "c", "after")?;
    node.until_pod("before", "Running")?;
    node.delete_pods(&["before", "after"])
}

/// A pod that is gone for the API, and whose GPU another gets at once: never both, and soon.
fn forced_deletion(node: &mut Node) -> Result<()> {
    let stay = look_and_stay();
    let devices = selecting("gpu.divvy.dev", OLD);
    node.apply(&[claim("first", &devices), pod("first", by_name("first"), &stay)].concat())?;
    let first = node.sees_claim("first", "c", "first")?;
    node.apply(&[claim("next", &devices), pod("next", by_name("next"), &stay)].concat())?;
    node.until_unschedulable("next")?;
    let start = Instant::now();
    node.kubectl(&["delete", "pod", "first", "--force", "--grace-period=0", "--wait=false"], "")?;
    node.kubectl(&["delete", "resourceclaim", "first", "--wait=false"], "")?;
    node.wait(
        "the successor to have the GPU alone",
        NEXT_TRY,
        &["divvy-node", "kubelet"],
        |node| {
            let next = node.container("next")?;
            ensure!(next.is_none() || node.container("first")?.is_none(), "two have {first:?}");
            Ok(next)
        },
    )?;
    println!("cluster: a successor had the GPU after {:.1} s", start.elapsed().as_secs_f64());
    let next = node.sees_claim("next", "c", "next")?;
    ensure!(next == first, "{next:?} and not {first:?}");
    // What was in its way was waited for in the call.
    let failed = node.failed_prepares("next")?;
    ensure!(failed.is_empty(), "{failed:?}");
    node.delete_pods(&["next"])
}

/// Another pod and another claim by the same names, as soon as the API has room for them.
fn claim_replaced(node: &mut Node) -> Result<()> {
    let stay = look_and_stay();
    let devices = selecting("gpu.divvy.dev", OLD);
    let both = [claim("same", &devices), pod("same", by_name("same"), &stay)].concat();
    node.apply(&both)?;
    node.sees_claim("same", "c", "same")?;
    node.kubectl(&["delete", "pod", "same", "--force", "--grace-period=0", "--wait=false"], "")?;
    node.kubectl(&["delete", "resourceclaim", "same"], "")?;
    node.apply(&both)?;
    node.until_pod_within("same", "Running", NEXT_TRY)?;
    node.sees_claim("same", "c", "same")?;
    // The kubelet itself lets go of the old claim first: that try the driver never sees.
    let kubelets = |event: &str| event.contains("old ResourceClaim with same name");
    let failed = node.failed_prepares("same")?;
    ensure!(failed.iter().all(|event| kubelets(event)), "{failed:?}");
    node.delete_pods(&["same"])
}

/// It goes when the kubelet has asked for a prepare and the driver has not read the claim; the pod waits for no
/// second try.
fn api_server_away(node: &mut Node) -> Result<()> {
    let stay = look_and_stay();
    node.signal(PROGRAM, "STOP")?;
    node.apply(&[claim("alone", ANY), pod("alone", by_name("alone"), &stay)].concat())?;
    node.wait("the kubelet to ask", SOON, &["kubelet"], |node| {
        let asked = node.sandbox.read("/var/lib/kubelet/dra_manager_state")?.contains("alone");
        Ok(asked.then_some(()))
    })?;
    node.stop("kube-apiserver", "KILL")?;
    node.signal(PROGRAM, "CONT")?;
    node.start_api_server()?;
    node.wait("the API server", SOON, &["kube-apiserver"], |node| {
        Ok(node.api.text("/readyz").ok())
    })?;
    node.until_pod_within("alone", "Running", NEXT_TRY)?;
    node.sees_claim("alone", "c", "alone")?;
    let failed = node.failed_prepares("alone")?;
    ensure!(failed.is_empty(), "{failed:?}");
    node.delete_pods(&["alone"])
}

/// What is in memory is gone, and the boot is another: a pod that is to run on gets its devices again.
fn reboot(node: &mut Node) -> Result<()> {
    let stay = look_and_stay();
    let gpu = selecting("gpu.divvy.dev", OLD);
    let part = selecting("mig.gpu.divvy.dev", SMALL);
    let containers: &[_] = &[("c", &*stay, &["claim0", "claim1"][..])];
    let claims = &[by_name("gpu"), by_name("part")];
    let pod = Pod { name: "lasting", claims, init: &[], containers, more: "" };
    let pod = pod.manifest().replace("restartPolicy: Never", "restartPolicy: Always");
    node.apply(&[claim("gpu", &gpu), claim("part", &part), pod].concat())?;
    let seen = node.seen("lasting", "c")?;
    let before = node.container("lasting")?.context("no container")?;
    node.reboot()?;
    let logs = ["divvy-node", "kubelet", "containerd"];
    node.wait("the container to run again", NEXT_TRY, &logs, |node| {
        Ok(node.container("lasting")?.filter(|now| *now != before))
    })?;
    ensure!(node.seen("lasting", "c")? == seen, "it saw {seen:?}");
    node.delete_pods(&["lasting"])
}

/// An entry that cannot be read, at the start and later: its pod runs on, its GPU is nobody else's, and it ends as ever.
fn entry_damaged(node: &mut Node) -> Result<()> {
    let stay = look_and_stay();
    let gpu = selecting("gpu.divvy.dev", OLD);
    for (at, damage) in
        [(At::Start, "{\"version\": 1, \"uid"), (At::Start, ""), (At::Work, "\0\0\0")]
    {
        node.apply(&[claim("before", &gpu), pod("before", by_name("before"), &stay)].concat())?;
        node.sees_claim("before", "c", "before")?;
        let entry = node.entry("before")?;
        match at {
            At::Start => {
                node.stop(PROGRAM, "KILL")?;
                node.sandbox.write(&entry, damage)?;
                node.start_driver(&[])?;
            }
            At::Work => {
                node.sandbox.write(&entry, damage)?;
                node.signal(PROGRAM, "HUP")?;
            }
        }
        node.wait("the entry to be made anew", SOON, &[PROGRAM], |node| {
            Ok(node.sandbox.read(&entry)?.contains("\"before\"").then_some(()))
        })?;
        node.apply(&[claim("other", ANY), pod("other", by_name("other"), &stay)].concat())?;
        node.sees_claim("other", "c", "other")?;
        node.until_pod("before", "Running")?;
        node.delete_pods(&["before", "other"])?;
        node.kubectl(&["delete", "resourceclaim", "before", "other"], "")?;
        // It is kept for people.
        node.sandbox.must(&[
            "sh",
            "-c",
            "rm -r /var/lib/divvy/damaged/* && rmdir /var/lib/divvy/damaged",
        ])?;
    }
    Ok(())
}

/// A folder of entries that is none: nobody gets anything, and says why, until it is one again.
fn journal_unreadable(node: &mut Node) -> Result<()> {
    let away = "cd /var/lib/divvy && mv claims kept && : >claims";
    node.sandbox.must(&["sh", "-c", away])?;
    let stay = look_and_stay();
    node.apply(&[claim("waits", ANY), pod("waits", by_name("waits"), &stay)].concat())?;
    let said = node.wait("an event that says why", SOON, &[PROGRAM], |node| {
        let events = node.events("waits")?;
        Ok(events.into_iter().find(|event| event.contains("FailedPrepareDynamicResources")))
    })?;
    ensure!(said.contains("/var/lib/divvy/claims"), "{said}");
    node.sandbox.must(&["sh", "-c", "cd /var/lib/divvy && rm claims && mv kept claims"])?;
    node.until_pod_within("waits", "Running", NEXT_TRY)?;
    node.sees_claim("waits", "c", "waits")?;
    node.delete_pods(&["waits"])
}

/// When something is damaged.
enum At {
    Start,
    Work,
}

// === impl Node ===

impl Node {
    /// The journal's entry of a claim.
    fn entry(&self, claim: &str) -> Result<String> {
        let path = format!("/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/{claim}");
        let uid = self.api.get(&path)?["metadata"]["uid"].take();
        Ok(format!("/var/lib/divvy/claims/{}.json", uid.as_str().context("a claim has a UID")?))
    }

    /// Which slices there are.
    pub fn slice_uids(&self) -> Result<BTreeSet<String>> {
        let slices = self.api.list("/apis/resource.k8s.io/v1/resourceslices")?;
        Ok(slices.iter().map(|slice| slice["metadata"]["uid"].to_string()).collect())
    }

    pub fn restart_kubelet(&mut self) -> Result<()> {
        let registered = self.registrations(DRIVER);
        self.stop("kubelet", "TERM")?;
        self.start_kubelet()?;
        self.wait("the node to be Ready", SOON, &["kubelet"], |node| {
            let found = node.api.get(&format!("/api/v1/nodes/{NAME}"))?;
            Ok((condition(&found, "Ready") && node.registrations(DRIVER) > registered)
                .then_some(()))
        })
    }

    /// What a reboot leaves of a node.
    fn reboot(&mut self) -> Result<()> {
        self.stop(PROGRAM, "KILL")?;
        self.stop("kubelet", "KILL")?;
        self.stop("containerd", "KILL")?;
        self.sandbox.must(&["bash", "-c", END_PODS])?;
        self.host().change(|state| {
            for gpu in &mut state.gpus {
                gpu.instances.clear();
            }
        })?;
        let boot = self.sandbox.read(BOOT)?;
        let other = if boot.starts_with('0') { "1" } else { "0" };
        self.sandbox.write(BOOT, &format!("{other}{}", &boot[1..]))?;
        self.start_containerd()?;
        self.start_kubelet()?;
        self.start_driver(&[])
    }
}
