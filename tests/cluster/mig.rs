//! MIG: partitions that are made for claims, and those that are there already.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use divvy_fake_nvml::{Compute, Instance};

use crate::claims::GPUS;
use crate::driver::{DRIVER, PROGRAM};
use crate::manifest::{Pod, by_name, claim, look_and_stay, pod, selecting};
use crate::node::Node;
use crate::slices::until_published;
use crate::{Test, group};

/// The GPUs whose mode can be switched, by their places among [`GPUS`].
const SWITCHABLE: [usize; 2] = [0, 1];
/// The GPU in MIG mode, by its place among them, and its node.
const AT: usize = 2;
const NODE: &str = "/dev/nvidia2";

pub fn tests() -> Vec<Test> {
    group(
        GPUS,
        [
            ("mig::one", one),
            ("mig::two_containers", two_containers),
            ("mig::full", full),
            ("mig::room_between", room_between),
            ("mig::again_and_again", again_and_again),
            ("mig::there_already", there_already),
            ("mig::switched", switched),
        ],
    )
}

/// A request of partitions of a profile.
fn partitions(name: &str, profile: &str, count: u32) -> String {
    let expression = format!(r#"device.attributes["gpu.divvy.dev"].profile == "{profile}""#);
    let expression = serde_json::Value::from(expression);
    format!(
        "{{name: {name}, exactly: {{deviceClassName: mig.gpu.divvy.dev, count: {count}, \
         selectors: [{{cel: {{expression: {expression}}}}}]}}}}"
    )
}

fn requests(all: &[String]) -> String {
    format!("requests: [{}]", all.join(", "))
}

// === impl Node ===

impl Node {
    /// Profiles and places of the partitions there are.
    fn partitions(&self) -> Result<BTreeSet<(String, u8)>> {
        let gpus = self.host().state()?.gpus;
        let instances = gpus.iter().flat_map(|gpu| &gpu.instances);
        Ok(instances.map(|instance| (instance.profile.clone(), instance.start)).collect())
    }

    /// That a container sees its GPU, and the two capabilities of each of so many partitions.
    fn sees_partitions(
        &mut self,
        pod: &str,
        container: &str,
        count: usize,
    ) -> Result<BTreeSet<String>> {
        let mut seen = self.seen(pod, container)?;
        ensure!(seen.remove(NODE), "{pod}/{container} sees {seen:?} without {NODE}");
        let capabilities = seen.iter().all(|node| node.starts_with("/dev/nvidia-caps/"));
        ensure!(capabilities && seen.len() == 2 * count, "{pod}/{container} sees {seen:?}");
        Ok(seen)
    }
}

fn one(node: &mut Node) -> Result<()> {
    let devices = requests(&[partitions("slice", "1g.5gb", 1)]);
    let stay = look_and_stay();
    node.apply(&[claim("small", &devices), pod("small", by_name("small"), &stay)].concat())?;
    node.sees_partitions("small", "c", 1)?;
    let there = node.partitions()?;
    ensure!(there.len() == 1, "{there:?}");
    node.delete_pods(&["small"])
}

fn two_containers(node: &mut Node) -> Result<()> {
    let devices = requests(&[partitions("a", "1g.5gb", 1), partitions("b", "2g.10gb", 1)]);
    let stay = look_and_stay();
    let pod = Pod {
        name: "two",
        claims: &[by_name("two")],
        init: &[],
        containers: &[("a", &stay, &["claim0/a"]), ("b", &stay, &["claim0/b"])],
        more: "",
    };
    node.apply(&[claim("two", &devices), pod.manifest()].concat())?;
    let (a, b) = (node.sees_partitions("two", "a", 1)?, node.sees_partitions("two", "b", 1)?);
    ensure!(a.is_disjoint(&b), "{a:?} {b:?}");
    Ok(())
}

/// Nothing fits beside seven, not even what would have the whole GPU.
fn full(node: &mut Node) -> Result<()> {
    let stay = look_and_stay();
    let seven = requests(&[partitions("slices", "1g.5gb", 7)]);
    node.apply(&[claim("seven", &seven), pod("seven", by_name("seven"), &stay)].concat())?;
    node.sees_partitions("seven", "c", 7)?;
    for (name, profile) in [("eighth", "1g.5gb"), ("whole", "7g.40gb")] {
        let devices = requests(&[partitions("slice", profile, 1)]);
        node.apply(&[claim(name, &devices), pod(name, by_name(name), &stay)].concat())?;
        node.until_unschedulable(name)?;
    }
    node.delete_pods(&["seven"])?;
    node.kubectl(&["delete", "resourceclaim", "seven"], "")?;
    node.until_pod("eighth", "Running").map(|_| ())
}

/// A small one where a large one must be: it fits as soon as that has gone, and not before.
fn room_between(node: &mut Node) -> Result<()> {
    let stay = look_and_stay();
    for (name, profile) in [("small", "1g.5gb"), ("half", "3g.20gb"), ("large", "4g.20gb")] {
        let devices = requests(&[partitions("slice", profile, 1)]);
        node.apply(&[claim(name, &devices), pod(name, by_name(name), &stay)].concat())?;
        match name {
            "large" => node.until_unschedulable(name)?,
            _ => node.until_pod(name, "Running").map(|_| ())?,
        }
    }
    let there = node.partitions()?;
    ensure!(there.contains(&("3g.20gb".into(), 4)), "{there:?}");
    node.delete_pods(&["small"])?;
    node.kubectl(&["delete", "resourceclaim", "small"], "")?;
    node.until_pod("large", "Running").map(|_| ())
}

fn again_and_again(node: &mut Node) -> Result<()> {
    let stay = look_and_stay();
    for profile in ["1g.5gb", "7g.40gb", "2g.10gb", "3g.20gb", "1g.5gb"] {
        let devices = requests(&[partitions("slice", profile, 1)]);
        node.apply(&[claim("churn", &devices), pod("churn", by_name("churn"), &stay)].concat())?;
        node.sees_partitions("churn", "c", 1)?;
        node.delete_pods(&["churn"])?;
        node.kubectl(&["delete", "resourceclaim", "churn"], "")?;
        let there = node.partitions()?;
        ensure!(there.is_empty(), "{there:?}");
    }
    Ok(())
}

/// One that an administrator made is given, and stays when its claim goes.
fn there_already(node: &mut Node) -> Result<()> {
    let made = ("3g.20gb".to_owned(), 4);
    node.host().change(|state| {
        let gpu = &mut state.gpus[AT];
        let compute = Compute {
            serial: 901,
            id: 0,
            slices: 3,
            uuid: "MIG-there-already".into(),
            busy: false,
        };
        gpu.instances.push(Instance {
            serial: 900,
            id: 1,
            profile: made.0.clone(),
            start: made.1,
            size: 4,
            busy: false,
            compute: vec![compute],
        });
    })?;
    let stay = look_and_stay();
    let both = requests(&[partitions("halves", "3g.20gb", 2)]);
    node.apply(&[claim("halves", &both), pod("halves", by_name("halves"), &stay)].concat())?;
    node.sees_partitions("halves", "c", 2)?;
    let there = node.partitions()?;
    ensure!(there.len() == 2 && there.contains(&made), "{there:?}");
    node.delete_pods(&["halves"])?;
    let there = node.partitions()?;
    ensure!(there.len() == 1 && there.contains(&made), "{there:?}");
    node.host().change(|state| state.gpus[AT].instances.clear()).context("the administrator's")
}

/// A GPU that may be switched is whole for one claim or in parts for others, and as it was when they are gone.
fn switched(node: &mut Node) -> Result<()> {
    let before = node.devices()?;
    node.stop(PROGRAM, "TERM")?;
    node.start_driver(&["--switch-mig"])?;
    let stay = look_and_stay();
    let part = requests(&[partitions("part", "2g.20gb", 1)]);
    let both = selecting(DRIVER, r#"device.attributes["gpu.divvy.dev"].architecture == "Hopper""#)
        .replace("deviceClassName", "count: 2, deviceClassName");
    let in_mig_mode = |node: &Node| {
        let gpus = node.host().state()?.gpus;
        anyhow::Ok(SWITCHABLE.iter().filter(|at| gpus[**at].mig).count())
    };
    let end = |node: &mut Node, name: &str| {
        node.delete_pods(&[name])?;
        node.kubectl(&["delete", "resourceclaim", name], "").map(|_| ())
    };
    for (name, devices, switched) in [("part", &part, 1), ("both", &both, 0), ("late", &part, 1)] {
        node.apply(&[claim(name, devices), pod(name, by_name(name), &stay)].concat())?;
        if let Some(earlier) = match name {
            "both" => Some("part"),
            "late" => Some("both"),
            _ => None,
        } {
            node.until_unschedulable(name)?;
            end(node, earlier)?;
        }
        node.until_pod(name, "Running")?;
        let found = in_mig_mode(node)?;
        ensure!(found == switched, "{found} GPUs are in MIG mode for {name}, and not {switched}");
    }
    end(node, "late")?;
    let found = in_mig_mode(node)?;
    ensure!(found == 0, "{found} GPUs are left in MIG mode");
    node.stop(PROGRAM, "TERM")?;
    node.start_driver(&[])?;
    until_published(node, &before)
}
