//! What the driver tells the real OpenTelemetry collector of the time that claims take.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};

use crate::claims::GPUS;
use crate::driver::PROGRAM;
use crate::manifest::{ANY, LOOK, by_name, claim, pod};
use crate::node::Node;
use crate::pods::SOON;
use crate::{Test, group};

const COLLECTOR: &str = "otelcol";
const ADDRESS: &str = "127.0.0.1:4317";
const FILE: &str = "/var/lib/kube/otelcol.yaml";
const CONFIG: &str = "receivers: {otlp: {protocols: {grpc: {endpoint: \"127.0.0.1:4317\"}}}}\nexporters: {debug: \
                      {verbosity: detailed}}\nservice:\n  telemetry: {metrics: {level: none}}\n  pipelines: {traces: \
                      {receivers: [otlp], exporters: [debug]}}\n";

pub fn tests() -> Vec<Test> {
    group(GPUS, [("traces::claim", of_claim)])
}

/// A span, by what the collector prints of it.
#[derive(Debug, Default)]
struct Span {
    id: String,
    parent: String,
    name: String,
    attributes: BTreeMap<String, String>,
}

/// A span for each claim, and below it what its time went into; a collector that is away keeps nobody waiting.
fn of_claim(node: &mut Node) -> Result<()> {
    node.stop(PROGRAM, "TERM")?;
    node.sandbox.write(FILE, CONFIG)?;
    node.start_driver(&["--traces", &format!("http://{ADDRESS}")])?;
    run(node, "unheard")?;
    node.wait("the complaint", SOON, &[PROGRAM], |node| {
        Ok(node.log(PROGRAM).contains("spans are lost").then_some(()))
    })?;
    node.spawn_path(COLLECTOR, "/kube/otelcol", &["--config", &format!("file:{FILE}")])?;
    node.wait("the collector", SOON, &[COLLECTOR], |node| {
        Ok(node.log(COLLECTOR).contains("Everything is ready").then_some(()))
    })?;
    let uid = run(node, "heard")?;
    let of = |spans: &[Span], name: &str| {
        let of = |span: &&Span| span.name == name && span.attributes.get("uid") == Some(&uid);
        spans.iter().find(of).map(|span| span.id.clone())
    };
    let spans = node.wait("the spans", SOON, &[PROGRAM, COLLECTOR], |node| {
        let spans = spans(&node.log(COLLECTOR));
        let there = of(&spans, "prepare").and(of(&spans, "unprepare")).is_some();
        Ok(there.then_some(spans))
    })?;
    for (call, wanted) in
        [("prepare", &["api", "nvml", "journal", "cdi"][..]), ("unprepare", &["journal"])]
    {
        let id = of(&spans, call).context("no span")?;
        let below = spans.iter().filter(|span| span.parent == id);
        let below: Vec<_> = below.map(|span| span.name.as_str()).collect();
        ensure!(wanted.iter().all(|part| below.contains(part)), "below {call}: {below:?}");
    }
    ensure!(node.log(PROGRAM).contains("takes spans again"), "{}", node.end_of_log(PROGRAM));
    node.stop(COLLECTOR, "TERM")?;
    node.stop(PROGRAM, "TERM")?;
    node.sandbox.must(&["rm", FILE])?;
    node.start_driver(&[])
}

/// Has a pod run to its end, and gives the UID of the claim that it had.
fn run(node: &mut Node, name: &str) -> Result<String> {
    node.apply(&[claim(name, ANY), pod(name, by_name(name), LOOK)].concat())?;
    node.sees_claim(name, "c", name)?;
    let path = format!("/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/{name}");
    let uid = node.api.get(&path)?["metadata"]["uid"].as_str().context("no UID")?.to_owned();
    node.until_pod(name, "Succeeded")?;
    node.delete_pods(&[name])?;
    node.kubectl(&["delete", "resourceclaim", name], "")?;
    Ok(uid)
}

fn spans(log: &str) -> Vec<Span> {
    let mut spans = Vec::new();
    for block in log.split("Span #").skip(1) {
        let mut span = Span::default();
        for line in block.lines() {
            let line = line.trim();
            if let Some((key, value)) =
                line.strip_prefix("-> ").and_then(|line| line.split_once(": "))
            {
                let value = value.split_once('(').map_or(value, |(_, value)| value);
                span.attributes
                    .entry(key.to_owned())
                    .or_insert(value.trim_end_matches(')').to_owned());
            } else if let Some((key, value)) = line.split_once(':') {
                let value = value.trim().to_owned();
                match key.trim() {
                    "ID" => span.id = value,
                    "Parent ID" => span.parent = value,
                    "Name" if span.name.is_empty() => span.name = value,
                    _ => {}
                }
            }
        }
        spans.push(span);
    }
    spans
}
