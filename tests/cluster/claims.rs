//! Claims of whole GPUs: who gets which, and what a container sees of it.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::manifest::{
    ANY, LOOK, Pod, by_name, by_template, claim, look_and_stay, pod, selecting, template,
};
use crate::node::Node;
use crate::pods::SOON;
use crate::{Gpus, Test, group};

/// Two of one kind, one in MIG mode, one old one.
pub const GPUS: Gpus =
    &[("H100-80GB", false), ("H100-80GB", false), ("A100-40GB", true), ("T4-16GB", false)];

pub fn tests() -> Vec<Test> {
    group(
        GPUS,
        [
            ("claims::one_pod", one_pod),
            ("claims::two_pods", two_pods),
            ("claims::shared_by_pods", shared_by_pods),
            ("claims::shared_by_containers", shared_by_containers),
            ("claims::template_for_each_pod", template_for_each_pod),
            ("claims::selectors", selectors),
            ("claims::no_such_device", no_such_device),
            ("claims::match_attribute", match_attribute),
            ("claims::first_available", first_available),
            ("claims::requests_apart", requests_apart),
            ("claims::admin_access", admin_access),
            ("claims::extended_resource", extended_resource),
            ("claims::user_namespace", user_namespace),
        ],
    )
}

// === impl Node ===

impl Node {
    /// Waits until a container has looked at its devices, and gives the nodes. None of them may be closed to it.
    pub fn seen(&mut self, pod: &str, container: &str) -> Result<BTreeSet<String>> {
        self.until_container(pod, container)?;
        let looked = self.wait(&format!("{pod}/{container} to have looked"), SOON, &[], |node| {
            let output = node.output(pod, container)?;
            Ok(output.ends_with("looked\n").then_some(output))
        });
        let output = looked.map_err(|error| anyhow::anyhow!("{error:#}{}", self.story(pod)))?;
        ensure!(!output.contains("not permitted"), "{pod}: {output}");
        let lines = output.lines().filter(|line| *line != "looked");
        Ok(lines.map(|line| line.split(':').next().unwrap_or_default().to_owned()).collect())
    }

    /// The devices that a claim got, by name.
    pub fn allocated(&self, claim: &str) -> Result<Vec<String>> {
        let path = format!("/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/{claim}");
        let results = self.api.get(&path)?["status"]["allocation"]["devices"]["results"].take();
        let name = |result: &Value| result["device"].as_str().map(str::to_owned);
        Ok(results.as_array().into_iter().flatten().filter_map(name).collect())
    }

    /// Waits until a claim is made for a pod, and gives its name.
    pub fn until_claim_of(&mut self, pod: &str) -> Result<String> {
        let path = format!("/api/v1/namespaces/default/pods/{pod}");
        self.wait(&format!("a claim of {pod}"), SOON, &["kube-controller-manager"], |node| {
            let statuses = node.api.get(&path)?["status"]["resourceClaimStatuses"].take();
            Ok(statuses[0]["resourceClaimName"].as_str().map(str::to_owned))
        })
    }

    /// The nodes of these whole GPUs, by the name of their devices.
    pub fn nodes_of(&self, devices: &[String]) -> Result<BTreeSet<String>> {
        let gpus = self.host().state()?.gpus;
        let node = |name: &String| {
            // 0000:1b:00.0 is gpu-0000-1b-00.
            let is = |pci: &str| {
                let address = pci.trim_end_matches(".0").replace(':', "-");
                format!("gpu-{address}") == *name
            };
            let gpu = gpus.iter().find(|gpu| is(&gpu.pci)).with_context(|| format!("no {name}"))?;
            Ok(format!("/dev/nvidia{}", gpu.minor))
        };
        devices.iter().map(node).collect()
    }

    /// That a container sees exactly the GPUs of a claim; their names.
    pub fn sees_claim(&mut self, pod: &str, container: &str, claim: &str) -> Result<Vec<String>> {
        let seen = self.seen(pod, container)?;
        let devices = self.allocated(claim)?;
        let nodes = self.nodes_of(&devices)?;
        ensure!(!nodes.is_empty() && seen == nodes, "{pod}/{container} sees {seen:?} of {nodes:?}");
        Ok(devices)
    }

    /// Waits until the scheduler says that a pod fits nowhere.
    pub fn until_unschedulable(&mut self, pod: &str) -> Result<()> {
        let path = format!("/api/v1/namespaces/default/pods/{pod}");
        self.wait(&format!("{pod} to fit nowhere"), SOON, &["kube-scheduler"], |node| {
            let conditions = node.api.get(&path)?["status"]["conditions"].take();
            let says =
                |one: &Value| one["type"] == "PodScheduled" && one["reason"] == "Unschedulable";
            Ok(conditions.as_array().is_some_and(|all| all.iter().any(says)).then_some(()))
        })
    }
}

fn one_pod(node: &mut Node) -> Result<()> {
    node.apply(&[claim("one", ANY), pod("one", by_name("one"), LOOK)].concat())?;
    let devices = node.sees_claim("one", "c", "one")?;
    ensure!(devices.len() == 1, "{devices:?}");
    node.until_pod("one", "Succeeded").map(|_| ())
}

fn two_pods(node: &mut Node) -> Result<()> {
    let stay = look_and_stay();
    for name in ["a", "b"] {
        node.apply(&[claim(name, ANY), pod(name, by_name(name), &stay)].concat())?;
    }
    let a = node.sees_claim("a", "c", "a")?;
    let b = node.sees_claim("b", "c", "b")?;
    ensure!(a != b, "both have {a:?}");
    Ok(())
}

/// The second comes when the first has it, and the first goes before the second.
fn shared_by_pods(node: &mut Node) -> Result<()> {
    let stay = look_and_stay();
    node.apply(&[claim("shared", ANY), pod("first", by_name("shared"), &stay)].concat())?;
    node.sees_claim("first", "c", "shared")?;
    node.apply(&pod("second", by_name("shared"), &stay))?;
    node.sees_claim("second", "c", "shared")?;
    node.delete_pods(&["first"])?;
    node.apply(&pod("third", by_name("shared"), &stay))?;
    node.sees_claim("third", "c", "shared").map(|_| ())
}

fn shared_by_containers(node: &mut Node) -> Result<()> {
    let (stay, all) = (look_and_stay(), ["claim0"]);
    let containers = [("a", &*stay, &all[..]), ("b", &*stay, &all[..]), ("none", &*stay, &[][..])];
    let pod = Pod {
        name: "several",
        claims: &[by_name("shared")],
        init: &[("before", LOOK, &all)],
        containers: &containers,
        more: "",
    };
    node.apply(&[claim("shared", ANY), pod.manifest()].concat())?;
    for container in ["before", "a", "b"] {
        node.sees_claim("several", container, "shared")?;
    }
    let none = node.seen("several", "none")?;
    ensure!(none.is_empty(), "a container without the claim sees {none:?}");
    Ok(())
}

fn template_for_each_pod(node: &mut Node) -> Result<()> {
    let stay = look_and_stay();
    node.apply(&template("each", ANY))?;
    let mut all = BTreeSet::new();
    for name in ["each-a", "each-b"] {
        node.apply(&pod(name, by_template("each"), &stay))?;
        let claim = node.until_claim_of(name)?;
        all.extend(node.sees_claim(name, "c", &claim)?);
    }
    ensure!(all.len() == 2, "one GPU for both: {all:?}");
    node.delete_pods(&["each-a", "each-b"])
}

/// Version, memory and name.
fn selectors(node: &mut Node) -> Result<()> {
    let of = |text: &str| text.replace("$", r#"device.attributes["gpu.divvy.dev"]"#);
    for (name, expression, product) in [
        ("old", of("$.cudaComputeCapability.isLessThan(semver(\"8.0.0\"))"), "T4"),
        (
            "large",
            of("device.capacity[\"gpu.divvy.dev\"].memory.isGreaterThan(quantity(\"60Gi\"))"),
            "H100",
        ),
        (
            "driver",
            of(
                "$.driverVersion.isGreaterThan(semver(\"570.0.0\")) && $.architecture == \"Turing\"",
            ),
            "T4",
        ),
    ] {
        let devices = selecting("gpu.divvy.dev", &expression);
        node.apply(&[claim(name, &devices), pod(name, by_name(name), LOOK)].concat())?;
        let got = node.sees_claim(name, "c", name)?;
        let all = node.devices()?;
        let device = all.iter().find(|device| device["name"] == *got[0]).context("no device")?;
        let is = device["attributes"]["productName"]["string"].to_string();
        ensure!(is.contains(product), "{name}: {is}");
    }
    Ok(())
}

fn no_such_device(node: &mut Node) -> Result<()> {
    let devices = selecting(
        "gpu.divvy.dev",
        r#"device.capacity["gpu.divvy.dev"].memory.isGreaterThan(quantity("1Ti"))"#,
    );
    node.apply(&[claim("huge", &devices), pod("huge", by_name("huge"), LOOK)].concat())?;
    node.until_unschedulable("huge")
}

/// Two GPUs of one kind, and never three of which there are two.
fn match_attribute(node: &mut Node) -> Result<()> {
    let same = |count: u32| {
        format!(
            "requests: [{{name: gpus, exactly: {{deviceClassName: gpu.divvy.dev, count: {count}}}}}], \
             constraints: [{{matchAttribute: gpu.divvy.dev/productName}}]"
        )
    };
    node.apply(&[claim("pair", &same(2)), pod("pair", by_name("pair"), LOOK)].concat())?;
    let devices = node.sees_claim("pair", "c", "pair")?;
    ensure!(devices.len() == 2, "{devices:?}");
    node.until_pod("pair", "Succeeded")?;
    node.apply(&[claim("three", &same(3)), pod("three", by_name("three"), LOOK)].concat())?;
    node.until_unschedulable("three")
}

/// What is wanted most, then what there is.
fn first_available(node: &mut Node) -> Result<()> {
    let wanted = |expression: &str| {
        let expression = Value::from(expression);
        format!(
            "deviceClassName: gpu.divvy.dev, selectors: [{{cel: {{expression: {expression}}}}}]"
        )
    };
    let devices = format!(
        "requests: [{{name: gpu, firstAvailable: [{{name: huge, {}}}, {{name: old, {}}}]}}]",
        wanted(r#"device.capacity["gpu.divvy.dev"].memory.isGreaterThan(quantity("1Ti"))"#),
        wanted(r#"device.attributes["gpu.divvy.dev"].architecture == "Turing""#),
    );
    node.apply(&[claim("first", &devices), pod("first", by_name("first"), LOOK)].concat())?;
    node.sees_claim("first", "c", "first").map(|_| ())
}

/// One claim, of which each container has one request.
fn requests_apart(node: &mut Node) -> Result<()> {
    let devices = "requests: [{name: a, exactly: {deviceClassName: gpu.divvy.dev}}, \
                   {name: b, exactly: {deviceClassName: gpu.divvy.dev}}]";
    let stay = look_and_stay();
    let pod = Pod {
        name: "apart",
        claims: &[by_name("both")],
        init: &[],
        containers: &[("a", &stay, &["claim0/a"]), ("b", &stay, &["claim0/b"])],
        more: "",
    };
    node.apply(&[claim("both", devices), pod.manifest()].concat())?;
    let (a, b) = (node.seen("apart", "a")?, node.seen("apart", "b")?);
    let devices = node.allocated("both")?;
    ensure!(a == node.nodes_of(&devices[..1])?, "{a:?} of {devices:?}");
    ensure!(b == node.nodes_of(&devices[1..])?, "{b:?} of {devices:?}");
    Ok(())
}

/// A pod that looks at a GPU which another has.
fn admin_access(node: &mut Node) -> Result<()> {
    let label = "resource.kubernetes.io/admin-access";
    node.kubectl(&["label", "namespace", "default", &format!("{label}=true")], "")?;
    let stay = look_and_stay();
    node.apply(&[claim("mine", ANY), pod("user", by_name("mine"), &stay)].concat())?;
    let used = node.sees_claim("user", "c", "mine")?;
    let devices = "requests: [{name: all, exactly: {deviceClassName: gpu.divvy.dev, \
                   allocationMode: All, adminAccess: true}}]";
    node.apply(&[claim("watch", devices), pod("watcher", by_name("watch"), &stay)].concat())?;
    let watched = node.sees_claim("watcher", "c", "watch")?;
    ensure!(watched.len() > 1 && watched.contains(&used[0]), "{watched:?} of {used:?}");
    // The watcher goes; the other has its GPU still, and nobody else gets it.
    node.delete_pods(&["watcher"])?;
    node.kubectl(&["label", "namespace", "default", &format!("{label}-")], "").map(|_| ())
}

/// A pod as it was for a device plugin.
fn extended_resource(node: &mut Node) -> Result<()> {
    let manifest = format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: old}}\nspec:\n  restartPolicy: Never\n  \
         containers: [{{name: c, image: localhost/busybox:1, command: [sh, -c, {}], \
         resources: {{limits: {{nvidia.com/gpu: 2}}}}}}]\n",
        Value::from(LOOK)
    );
    node.apply(&manifest)?;
    let seen = node.seen("old", "c")?;
    ensure!(seen.len() == 2, "{seen:?}");
    node.until_pod("old", "Succeeded").map(|_| ())
}

fn user_namespace(node: &mut Node) -> Result<()> {
    let pod = Pod {
        name: "own-users",
        claims: &[by_name("mine")],
        init: &[],
        containers: &[("c", LOOK, &["claim0"])],
        more: "hostUsers: false",
    };
    node.apply(&[claim("mine", ANY), pod.manifest()].concat())?;
    node.sees_claim("own-users", "c", "mine").map(|_| ())
}
