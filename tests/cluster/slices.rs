//! What the driver publishes, and what becomes of it when somebody deletes it, or nothing changes.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::claims::GPUS;
use crate::driver::{DRIVER, HOST, KUBECONFIG, PROGRAM};
use crate::manifest::{ANY, by_name, claim, look_and_stay, pod};
use crate::node::{NAME, Node};
use crate::pods::SOON;
use crate::{Gpus, Test, group};

/// A large node.
const MANY: Gpus = &[("H100-80GB", false); 16];
/// The devices of one of its GPUs: itself, and 25 places for partitions.
const EACH: usize = 26;

/// The driver has looked at the node again by then.
pub const LOOKED: Duration = Duration::from_secs(6);

pub fn tests() -> Vec<Test> {
    let few = group(
        GPUS,
        [
            ("slices::deleted", deleted),
            ("slices::unchanged", unchanged),
            ("slices::local", local),
            ("slices::lost", lost),
            ("slices::shares", shares),
            ("slices::other_driver", other_driver),
        ],
    );
    [few, group(MANY, [("slices::many", many)])].concat()
}

// === impl Node ===

impl Node {
    /// Names, versions and generations of the driver's slices.
    pub fn slices(&self) -> Result<Vec<(String, String, i64)>> {
        let slices = self.all_slices()?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let mut found: Vec<_> = slices
            .iter()
            .map(|slice| {
                let (metadata, pool) = (&slice["metadata"], &slice["spec"]["pool"]);
                let generation = pool["generation"].as_i64().unwrap_or_default();
                (text(&metadata["name"]), text(&metadata["resourceVersion"]), generation)
            })
            .collect();
        found.sort();
        Ok(found)
    }

    /// The values of the taint of this name, by device.
    fn tainted(&self, name: &str) -> Result<Vec<(String, String)>> {
        let key = format!("{DRIVER}/{name}");
        let value = |device: &Value| {
            let taint = device["taints"].as_array()?.iter().find(|taint| taint["key"] == key)?;
            let value = taint["value"].as_str().unwrap_or_default();
            Some((device["name"].as_str()?.to_owned(), value.to_owned()))
        };
        Ok(self.devices()?.iter().filter_map(value).collect())
    }
}

/// Waits until these devices are published, and no others.
pub fn until_published(node: &mut Node, devices: &[Value]) -> Result<()> {
    node.wait("the devices as before", SOON, &[PROGRAM], |node| {
        let now = node.devices()?;
        ensure!(now == devices, "{now:?}\nare published, and not\n{devices:?}");
        Ok(Some(()))
    })
}

/// As kubelet does when it starts.
fn deleted(node: &mut Node) -> Result<()> {
    let (before, slices) = (node.devices()?, node.slices()?);
    node.kubectl(&["delete", "resourceslices", "--all"], "")?;
    node.wait("the slices again", SOON, &[PROGRAM], |node| {
        let same = node.devices()? == before && node.slices()?.len() == slices.len();
        Ok(same.then_some(()))
    })?;
    let old = slices.first().context("no slices")?.2;
    ensure!(node.slices()?.iter().all(|slice| slice.2 > old), "a generation is had twice");
    Ok(())
}

fn unchanged(node: &mut Node) -> Result<()> {
    let before = node.slices()?;
    node.stop(PROGRAM, "TERM")?;
    node.start_driver(&[])?;
    node.wait("the driver to be at work", SOON, &[PROGRAM], |node| {
        Ok(node.end_of_log(PROGRAM).contains("keeping").then_some(()))
    })?;
    std::thread::sleep(LOOKED);
    ensure!(node.slices()? == before, "{before:?} became {:?}", node.slices()?);
    Ok(())
}

/// What a person has on this host no pod gets.
fn local(node: &mut Node) -> Result<()> {
    let claim = "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: mine}\nspec: {devices: \
                 {requests: [{name: a, exactly: {deviceClassName: gpu.divvy.dev}}]}}\n";
    node.sandbox.write("/root/mine.yaml", claim)?;
    let gpus = format!("nvml:{HOST}");
    let divvy = ["/programs/divvy", "--gpus", &gpus];
    node.sandbox.must(&[&divvy[..], &["prepare", "-f", "/root/mine.yaml"]].concat())?;
    node.wait("a taint", SOON, &[PROGRAM], |node| {
        let tainted = node.tainted("local-claim")?;
        Ok(matches!(tainted.as_slice(), [(_, claim)] if claim == "default.mine").then_some(()))
    })?;
    node.sandbox.must(&[&divvy[..1], &["unprepare", "mine"]].concat())?;
    node.sandbox.must(&["rm", "/root/mine.yaml"])?;
    node.wait("no taint", SOON, &[PROGRAM], |node| {
        Ok(node.tainted("local-claim")?.is_empty().then_some(()))
    })
}

/// A GPU that is lost while a pod has it stays published for that pod, and is nobody else's.
fn lost(node: &mut Node) -> Result<()> {
    let before = node.devices()?;
    let stay = look_and_stay();
    node.apply(&[claim("held", ANY), pod("held", by_name("held"), &stay)].concat())?;
    node.seen("held", "c")?;
    let held = node.allocated("held")?;
    let is_held = |pci: &str| {
        let name = format!("gpu-{}", pci.replace(':', "-"));
        name.rsplit_once('.').is_some_and(|(name, _)| held.iter().any(|held| held == name))
    };
    let set = |node: &Node, lost: bool| {
        node.host().change(|state| {
            let gpus = state.gpus.iter_mut();
            gpus.filter(|gpu| is_held(&gpu.pci)).for_each(|gpu| gpu.lost = lost);
        })
    };
    set(node, true)?;
    let tainted: Vec<_> = held.iter().map(|device| (device.clone(), String::new())).collect();
    node.wait("a taint", SOON, &[PROGRAM], |node| {
        Ok((node.tainted("unavailable")? == tainted).then_some(()))
    })?;
    set(node, false)?;
    until_published(node, &before)?;
    node.delete_pods(&["held"])
}

/// Two claims have parts of one GPU, by the scheduler's own sums. One that asks for no part has a GPU alone.
fn shares(node: &mut Node) -> Result<()> {
    let before = node.devices()?;
    node.stop(PROGRAM, "TERM")?;
    node.start_driver(&["--shares"])?;
    node.wait("GPUs in shares", SOON, &[PROGRAM], |node| {
        let shared =
            node.devices()?.iter().any(|device| device["allowMultipleAllocations"] == true);
        Ok(shared.then_some(()))
    })?;
    let part = format!(
        "requests: [{{name: gpu, exactly: {{deviceClassName: {DRIVER}, capacity: {{requests: {{memory: \
         30Gi}}}}}}}}], config: [{{opaque: {{driver: {DRIVER}, parameters: {{apiVersion: \
         {DRIVER}/v1alpha1, kind: GpuConfig, sharing: {{mps: {{}}}}}}}}}}]"
    );
    let stay = look_and_stay();
    let names = ["one", "two", "alone"];
    for (name, devices) in names.into_iter().zip([part.as_str(), &part, ANY]) {
        node.apply(&[claim(name, devices), pod(name, by_name(name), &stay)].concat())?;
        node.sees_claim(name, "c", name)?;
    }
    let [one, two, alone] = names.map(|name| node.allocated(name));
    let (one, two, alone) = (one?, two?, alone?);
    ensure!(one == two && one != alone, "{one:?}, {two:?} and alone {alone:?}");
    node.delete_pods(&names)?;
    node.stop(PROGRAM, "TERM")?;
    node.start_driver(&[])?;
    until_published(node, &before)
}

/// Two drivers that give the same GPUs would each not know what the other gave.
fn other_driver(node: &mut Node) -> Result<()> {
    let before = node.devices()?;
    node.stop(PROGRAM, "TERM")?;
    node.kubectl(&["delete", "resourceslices", "--all"], "")?;
    let theirs = format!(
        "apiVersion: resource.k8s.io/v1\nkind: ResourceSlice\nmetadata: {{name: theirs}}\nspec: {{driver: \
         gpu.nvidia.com, nodeName: {NAME}, pool: {{name: {NAME}, generation: 1, resourceSliceCount: 1}}, devices: \
         [{{name: gpu-0}}]}}\n"
    );
    node.apply(&theirs)?;
    let gpus = format!("nvml:{HOST}");
    let args = ["--gpus", &gpus, "--node-name", NAME, "--kubeconfig", KUBECONFIG];
    node.spawn_path(PROGRAM, "/programs/divvy-node", &args)?;
    node.wait("the refusal", SOON, &[PROGRAM], |node| {
        let said = "given by the DRA driver gpu.nvidia.com, by ResourceSlice theirs";
        Ok(node.end_of_log(PROGRAM).contains(said).then_some(()))
    })?;
    ensure!(node.slices()?.is_empty(), "published all the same: {:?}", node.slices()?);
    node.kubectl(&["delete", "resourceslice", "theirs"], "")?;
    until_published(node, &before)
}

/// Every GPU whole and in every partition that it could have.
fn many(node: &mut Node) -> Result<()> {
    node.stop(PROGRAM, "TERM")?;
    node.kubectl(&["delete", "resourceslices", "--all"], "")?;
    let start = Instant::now();
    node.start_driver(&["--switch-mig"])?;
    node.wait("all devices", SOON, &[PROGRAM], |node| {
        Ok((node.devices()?.len() == MANY.len() * EACH).then_some(()))
    })?;
    println!("416 devices are published {:?} after the driver was started", start.elapsed());
    node.stop(PROGRAM, "TERM")?;
    node.start_driver(&[])?;
    node.wait("whole GPUs alone", SOON, &[PROGRAM], |node| {
        Ok((node.devices()?.len() == MANY.len()).then_some(()))
    })
}
