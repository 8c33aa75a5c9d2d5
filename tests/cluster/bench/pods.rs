//! Pods: how much later one with a GPU starts than one with a device of a driver that does nothing, and than one
//! without any.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use serde_json::json;

use super::{Report, median, milliseconds};
use crate::manifest::{ANY, template};
use crate::node::{FOLDER, NAME, Node, kubeconfig};
use crate::pods::SOON;

const NOOP: &str = "noop.divvy.dev";
const PROGRAM: &str = "noop-driver";
const ROUNDS: usize = 24;
const PODS: &str = "/api/v1/namespaces/default/pods";

/// It may do what an administrator may, which takes it no time.
const CLASS: &str = "---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: noop.divvy.dev}
spec: {selectors: [{cel: {expression: 'device.driver == \"noop.divvy.dev\"'}}]}
";

pub(super) fn measure(node: &mut Node, report: &mut Report) -> Result<()> {
    let file = format!("{FOLDER}/noop.conf");
    node.sandbox.write(&file, &kubeconfig("admin-token").to_string())?;
    node.spawn_path(PROGRAM, &format!("/kube/{PROGRAM}"), &[NAME, &file])?;
    let request = format!("requests: [{{name: gpu, exactly: {{deviceClassName: {NOOP}}}}}]");
    node.apply(&[CLASS, &template("noop", &request), &template("gpu", ANY)].concat())?;
    node.wait("the driver that does nothing", SOON, &[PROGRAM, "kubelet"], |node| {
        let slices = node.api.list("/apis/resource.k8s.io/v1/resourceslices")?;
        let log = node.sandbox.read("/var/log/node/kubelet.log").unwrap_or_default();
        let registered =
            log.lines().any(|line| line.contains("Registered DRA plugin") && line.contains(NOOP));
        let published = slices.iter().any(|slice| slice["spec"]["driver"] == NOOP);
        Ok((registered && published).then_some(()))
    })?;
    let kinds = [None, Some("noop"), Some("gpu")];
    let mut times: [[Vec<f64>; PHASES.len()]; 3] = Default::default();
    for round in 0..ROUNDS {
        for turn in 0..kinds.len() {
            // What is still being cleared away of the pod before is another's in each round.
            let kind = if round % 2 == 0 { turn } else { kinds.len() - 1 - turn };
            let phases = start(node, kinds[kind], round)?;
            for (times, phase) in times[kind].iter_mut().zip(phases) {
                times.push(phase);
            }
        }
    }
    node.stop(PROGRAM, "KILL")?;
    node.kubectl(&["delete", "deviceclass", NOOP], "")?;
    node.kubectl(&["delete", "resourceclaimtemplates", "--all"], "")?;
    node.kubectl(
        &["delete", "resourceslices", "--field-selector", &format!("spec.driver={NOOP}")],
        "",
    )?;
    // Round by round: what else the machine does in a round is in both.
    let all = PHASES.len() - 1;
    let beyond = times[2][all].iter().zip(&times[1][all]).map(|(gpu, noop)| gpu - noop);
    let beyond = median(beyond.collect());
    report.line("a pod's start with a GPU, beyond a noop driver", beyond, 20.0, "ms", "");
    let [none, noop, gpu] = times.map(|phases| phases.map(median));
    for (phase, name) in PHASES.iter().enumerate() {
        let more = format!(" (noop driver {:.0}, no claim {:.0})", noop[phase], none[phase]);
        report.aside(name, gpu[phase], "ms", &more);
    }
    Ok(())
}

/// What a pod's start is made of, by the engine's log: until it is asked for a sandbox, until that is there, and the
/// container is created, and started, and the API server says so.
const PHASES: [&str; 6] = [
    "placed, claims prepared",
    "sandbox",
    "container created",
    "container started",
    "told",
    "all, until Running (peer 120 to 140 over none)",
];

/// From the pod's creation until it runs, by phase, ms; then it is deleted.
fn start(node: &mut Node, claim: Option<&str>, round: usize) -> Result<[f64; PHASES.len()]> {
    let name = format!("{}-{round}", claim.unwrap_or("none"));
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {
            "restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "c", "image": "localhost/busybox:1",
                "command": ["sh", "-c", "trap exit TERM; sleep 1000 & wait"],
            }],
        },
    });
    if let Some(template) = claim {
        pod["spec"]["resourceClaims"] =
            json!([{"name": "d", "resourceClaimTemplateName": template}]);
        pod["spec"]["containers"][0]["resources"] = json!({"claims": [{"name": "d"}]});
    }
    // Who asks again and again would have the processor that the pod needs.
    let path = format!("{PODS}?watch=1&fieldSelector=metadata.name%3D{name}");
    let mut changes = node.api.watch(&path)?;
    let (begun, wall) = (Instant::now(), SystemTime::now());
    node.api.send("POST", PODS, &pod)?;
    let running = changes
        .find(|pod| pod.as_ref().map_or(true, |pod| pod["status"]["phase"] == "Running"))
        .context("the watch ended");
    let time = milliseconds(begun.elapsed());
    running.flatten().with_context(|| node.story(&name))?;
    let wall = milliseconds(wall.duration_since(UNIX_EPOCH)?) % 86_400_000.0;
    let marks = marks(node, &name)?.map(|mark| mark - wall);
    node.delete_pods(&[&name])?;
    let [asked, there, created, started] = marks;
    Ok([asked, there - asked, created - there, started - created, time - started, time])
}

/// When the engine was asked for the pod's sandbox, had it, had its container created and started; ms of the day.
fn marks(node: &mut Node, pod: &str) -> Result<[f64; 4]> {
    let log = node.sandbox.read("/var/log/node/containerd.log")?;
    let sandbox = format!("PodSandboxMetadata{{Name:{pod},");
    let id = |line: &str| {
        let id = line.rsplit_once("returns sandbox id ")?.1;
        Some(id.trim_matches(|c: char| !c.is_ascii_hexdigit()).to_owned())
    };
    let mut lines = log.lines();
    let mut next = |parts: &[&str]| -> Result<String> {
        let has = |line: &&str| parts.iter().all(|part| line.contains(part));
        let found = lines.find(has).with_context(|| format!("no {parts:?} in containerd's log"))?;
        Ok(found.to_owned())
    };
    let asked = next(&["RunPodSandbox for", &sandbox])?;
    let there = next(&["RunPodSandbox for", &sandbox, "returns sandbox id"])?;
    let id = id(&there).context("no sandbox id")?;
    let created = next(&["CreateContainer within sandbox", &id, "returns container id"])?;
    let started = next(&["StartContainer for", "returns successfully"])?;
    let marks = [asked, there, created, started].map(|line| moment(&line));
    let [Some(a), Some(b), Some(c), Some(d)] = marks else {
        anyhow::bail!("no times in containerd's log");
    };
    Ok([a, b, c, d])
}

/// The moment of a line of containerd's log, ms of its day.
fn moment(line: &str) -> Option<f64> {
    let clock = line.strip_prefix("time=\"")?.split_once('T')?.1.split('Z').next()?;
    let parts: Vec<f64> = clock.split(':').map_while(|part| part.parse().ok()).collect();
    let [hours, minutes, seconds] = parts[..] else { return None };
    Some(((hours * 60.0 + minutes) * 60.0 + seconds) * 1e3)
}
