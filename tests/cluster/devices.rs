//! Devices of the host other than GPUs, which a file declares: the cats of DRA's first articles.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::Test;
use crate::claims::GPUS;
use crate::driver::{self, PROGRAM};
use crate::fixture::IMAGE;
use crate::manifest::{Pod, by_name, claim, look_and_stay};
use crate::node::Node;
use crate::pods::SOON;

const DRIVER: &str = "resource-driver.example.com";
const CLASS: &str = "resource.example.com";
const FILE: &str = "/var/lib/kube/cats.yaml";
/// How many the file has.
const CATS: usize = 3;
const BOTH: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/both";
/// Where a container finds what it is told of the devices of claims.
const TOLD: &str = "/var/run/kubernetes.io/dra-device-attributes/resourceclaims";
const SAY: &str = "echo \"cat $CAT_NAME\"; exec sleep 100000";

pub fn tests() -> Vec<Test> {
    let test = |name, run| Test { name, gpus: GPUS, run };
    vec![
        test("devices::example", |node| with_cats(node, example)),
        test("devices::shared", |node| with_cats(node, shared)),
        test("devices::beside_gpus", |node| with_cats(node, beside_gpus)),
        test("devices::reload", |node| with_cats(node, reload)),
    ]
}

/// Does something with the cats on the node.
fn with_cats(node: &mut Node, run: fn(&mut Node) -> Result<()>) -> Result<()> {
    node.stop(PROGRAM, "TERM")?;
    node.sandbox.write(FILE, &project("examples/devices/cats.yaml")?)?;
    // The chart lets the driver publish what it has the file of.
    node.install_chart(&["--set-file", &format!("devices.cats\\.yaml={FILE}")])?;
    let before = node.registrations(DRIVER);
    node.start_driver(&["--devices", FILE])?;
    node.wait(&format!("the cats of {DRIVER}"), SOON, &[PROGRAM, "kubelet"], |node| {
        let there = node.registrations(DRIVER) > before && published(node)?.len() == CATS;
        Ok(there.then_some(()))
    })?;
    let classes = project("deploy/examples/cat.yaml")?;
    let class = classes.split("---\n").next().unwrap_or_default().to_owned();
    node.apply(&class)?;
    run(node)?;
    let delete =
        ["delete", "pods,resourceclaims,resourceclaimtemplates", "--all", "--grace-period=1"];
    node.kubectl(&delete, "")?;
    node.kubectl(&["delete", "deviceclass", CLASS], "")?;
    node.stop(PROGRAM, "TERM")?;
    node.sandbox.must(&["rm", "-rf", FILE, "/var/lib/divvy/drivers", "/var/lib/divvy/devices"])?;
    node.install_chart(&[])?;
    node.start_driver(&[])
}

fn project(path: &str) -> Result<String> {
    Ok(fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path))?)
}

/// The names of the published devices, with the taints of each behind it.
fn published(node: &Node) -> Result<Vec<String>> {
    let mut slices = node.api.list("/apis/resource.k8s.io/v1/resourceslices")?;
    slices.retain(|slice| slice["spec"]["driver"] == DRIVER);
    let devices = slices.iter().filter_map(|slice| slice["spec"]["devices"].as_array());
    let named = devices.flatten().map(|device| {
        let name = device["name"].as_str().unwrap_or_default();
        match device["taints"][0]["key"].as_str() {
            Some(taint) => format!("{name} {taint}"),
            None => name.to_owned(),
        }
    });
    Ok(named.collect())
}

fn until_says(node: &mut Node, pod: &str, container: &str, says: &str) -> Result<()> {
    node.until_container(pod, container)?;
    node.wait(&format!("{pod}/{container} to say {says}"), SOON, &[], |node| {
        Ok(node.output(pod, container)?.lines().any(|line| line == says).then_some(()))
    })
}

fn cat(expression: &str) -> String {
    let attributes = format!("device.attributes[\"{DRIVER}\"]");
    let expression = Value::from(expression.replace('$', &attributes));
    format!(
        "requests: [{{name: cat, exactly: {{deviceClassName: {CLASS}, selectors: [{{cel: {{expression: \
         {expression}}}}}]}}}}]"
    )
}

/// What people are told to apply; and one that there is not.
fn example(node: &mut Node) -> Result<()> {
    node.apply(&project("deploy/examples/cat.yaml")?.replace("ubuntu:24.04", IMAGE))?;
    node.until_pod("pod-with-cats", "Running")?;
    until_says(node, "pod-with-cats", "container0", "Snow")?;
    until_says(node, "pod-with-cats", "container1", "Coal")?;
    let devices = node.allocated("small-white-cat-claim")?;
    ensure!(devices == ["cat-0"], "{devices:?}");
    let containers = [("c", SAY, &["claim0"][..])];
    let pod = Pod {
        name: "green",
        claims: &[by_name("green")],
        init: &[],
        containers: &containers,
        more: "",
    };
    node.apply(&[claim("green", &cat("$.color == \"green\"")), pod.manifest()].concat())?;
    node.until_unschedulable("green")
}

/// Two containers of a pod, and three pods with a part each of the same cat; the fourth waits. And what people are told to
/// apply.
fn shared(node: &mut Node) -> Result<()> {
    node.apply(&project("deploy/examples/shared-cat.yaml")?.replace("ubuntu:24.04", IMAGE))?;
    let laps = ["first-lap", "second-lap"];
    laps.iter().try_for_each(|pod| until_says(node, pod, "main", "Ash"))?;
    node.delete_pods(&laps)?;
    let containers = [("a", SAY, &["claim0"][..]), ("b", SAY, &["claim0"]), ("none", SAY, &[])];
    let pod = Pod {
        name: "two",
        claims: &[by_name("white")],
        init: &[],
        containers: &containers,
        more: "",
    };
    node.apply(&[claim("white", &cat("$.color == \"white\"")), pod.manifest()].concat())?;
    for container in ["a", "b"] {
        until_says(node, "two", container, "cat Snow")?;
    }
    until_says(node, "two", "none", "cat ")?;
    let containers = [("c", SAY, &["claim0"][..])];
    for name in ["first", "second", "third", "fourth"] {
        let claims = &[by_name(name)];
        let pod = Pod { name, claims, init: &[], containers: &containers, more: "" };
        node.apply(
            &[claim(name, &cat("device.allowMultipleAllocations")), pod.manifest()].concat(),
        )?;
        match name {
            "fourth" => node.until_unschedulable(name)?,
            _ => until_says(node, name, "c", "cat Ash")?,
        }
    }
    node.delete_pods(&["first"])?;
    node.kubectl(&["delete", "resourceclaim", "first"], "")?;
    until_says(node, "fourth", "c", "cat Ash")
}

/// One claim of a GPU and a cat, by containerd's CDI and by the shim. The container is told of both.
fn beside_gpus(node: &mut Node) -> Result<()> {
    node.stop(PROGRAM, "TERM")?;
    node.start_driver(&["--devices", FILE, "--device-metadata"])?;
    let both = cat("$.color == \"black\"").replace(
        "requests: [",
        "requests: [{name: gpu, exactly: {deviceClassName: gpu.divvy.dev}}, ",
    );
    let script = format!("echo \"cat $CAT_NAME\"; cat {TOLD}/both/*/*.json\n{}", look_and_stay());
    let containers = [("c", &*script, &["claim0"][..])];
    for more in ["", "runtimeClassName: divvy"] {
        if !more.is_empty() {
            node.restart_containerd(false)?;
        }
        let pod = Pod {
            name: "both",
            claims: &[by_name("both")],
            init: &[],
            containers: &containers,
            more,
        };
        node.apply(&[claim("both", &both), pod.manifest()].concat())?;
        until_says(node, "both", "c", "cat Coal")?;
        let output = node.output("both", "c")?;
        ensure!(output.contains("/dev/nvidia"), "no GPU: {output}");
        let told = told(&output, &node.api.get(BOTH)?)?;
        ensure!(
            told == [(driver::DRIVER.into(), "gpu".into()), (DRIVER.into(), "black".into())],
            "{told:?}"
        );
        // Each driver says so of its own.
        node.wait("both to be told ready", SOON, &[PROGRAM], |node| {
            let claim = node.api.get(BOTH)?;
            let told = claim["status"]["devices"].as_array().cloned().unwrap_or_default();
            let ready = |driver: &str| {
                let mut of = told.iter().filter(|one| one["driver"] == driver);
                of.any(|one| {
                    one["conditions"][0]["type"] == "Ready"
                        && one["conditions"][0]["status"] == "True"
                })
            };
            Ok((ready(DRIVER) && ready(driver::DRIVER)).then_some(()))
        })?;
        node.delete_pods(&["both"])?;
        node.kubectl(&["delete", "resourceclaim", "both"], "")?;
    }
    node.restart_containerd(true)
}

/// Of what drivers a container of a claim has a device, and what tells one of theirs from others, as its metadata files say.
fn told(output: &str, claim: &Value) -> Result<Vec<(String, String)>> {
    let mut told = Vec::new();
    for line in output.lines().filter(|line| line.starts_with('{')) {
        let file: Value = serde_json::from_str(line).with_context(|| line.to_owned())?;
        ensure!(file["metadata"]["uid"] == claim["metadata"]["uid"], "another claim's: {file}");
        let device = &file["requests"][0]["devices"][0];
        let results = claim["status"]["allocation"]["devices"]["results"].as_array();
        let same = |one: &Value| {
            let names = [("driver", "driver"), ("pool", "pool"), ("device", "name")];
            names.iter().all(|(theirs, ours)| one[*theirs] == device[*ours])
        };
        ensure!(results.is_some_and(|all| all.iter().any(same)), "not allocated: {file}");
        let attributes = &device["attributes"];
        let kind = [&attributes["color"], &attributes["type"]]
            .into_iter()
            .find_map(|one| one["string"].as_str());
        let text = |value: Option<&str>| value.unwrap_or_default().to_owned();
        told.push((text(device["driver"].as_str()), text(kind)));
    }
    told.sort();
    Ok(told)
}

/// A cat that goes while a pod has it is tainted, and gone when the pod is; a bad file changes nothing.
fn reload(node: &mut Node) -> Result<()> {
    let containers = [("c", SAY, &["claim0"][..])];
    let pod = Pod {
        name: "owner",
        claims: &[by_name("white")],
        init: &[],
        containers: &containers,
        more: "",
    };
    node.apply(&[claim("white", &cat("$.color == \"white\"")), pod.manifest()].concat())?;
    until_says(node, "owner", "c", "cat Snow")?;
    let cats = project("examples/devices/cats.yaml")?;
    node.sandbox.write(FILE, &cats.replace("color: ", "colour "))?;
    node.signal(PROGRAM, "HUP")?;
    node.wait("the complaint", SOON, &[], |node| {
        let log = node.log(PROGRAM);
        Ok((log.contains("DEVICES-INVALID") && log.contains("still counts")).then_some(()))
    })?;
    ensure!(published(node)? == ["cat-0", "cat-1", "cat-2"], "{:?}", published(node)?);
    // So it is for a driver that starts with such a file.
    node.stop(PROGRAM, "KILL")?;
    let before = node.registrations(DRIVER);
    node.start_driver(&["--devices", FILE])?;
    node.wait("the cats' driver", SOON, &[PROGRAM, "kubelet"], |node| {
        Ok((node.registrations(DRIVER) > before).then_some(()))
    })?;
    node.apply(&claim("other", &cat("$.color == \"black\"")))?;
    node.apply(&Pod { name: "late", claims: &[by_name("other")], ..pod }.manifest())?;
    until_says(node, "late", "c", "cat Coal")?;
    ensure!(published(node)? == ["cat-0", "cat-1", "cat-2"], "{:?}", published(node)?);
    node.delete_pods(&["late"])?;
    node.kubectl(&["delete", "resourceclaim", "other"], "")?;
    node.sandbox.write(FILE, &cats.replace("name: cat-0", "name: cat-9"))?;
    let tainted = format!("cat-0 {DRIVER}/unavailable");
    let expect = |node: &mut Node, what: &str, all: &[&str]| {
        node.wait(what, SOON, &[PROGRAM], |node| {
            let mut found = published(node)?;
            found.sort();
            Ok((found == all).then_some(()))
        })
    };
    expect(node, "the taint", &[&tainted, "cat-1", "cat-2", "cat-9"])?;
    node.delete_pods(&["owner"])?;
    node.kubectl(&["delete", "resourceclaim", "white"], "")?;
    expect(node, "cat-0 to go", &["cat-1", "cat-2", "cat-9"])
}
