//! deploy/examples: what people are told to apply, which runs here but for its image.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::claims::GPUS;
use crate::driver::PROGRAM;
use crate::fixture::IMAGE;
use crate::node::Node;
use crate::pods::SOON;
use crate::{Test, group};

/// Theirs cannot be fetched here.
const THEIRS: &str = "ubuntu:24.04";

pub fn tests() -> Vec<Test> {
    group(GPUS, [("examples::all", all)])
}

fn all(node: &mut Node) -> Result<()> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/examples");
    let mut files: Vec<_> =
        fs::read_dir(&dir)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    // The cats have a driver of their own: `devices::example`.
    files.retain(|file| !file.to_string_lossy().ends_with("cat.yaml"));
    files.sort();
    ensure!(files.len() > 5, "no examples in {}", dir.display());
    // What one of them names, another has.
    let common = fs::read_to_string(dir.join("gpu.yaml"))?;
    let common = common.split("---").next().context("a template")?;
    let label = "resource.kubernetes.io/admin-access";
    node.kubectl(&["label", "namespace", "default", &format!("{label}=true")], "")?;
    let mut has = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file)?.replace(THEIRS, IMAGE);
        let wants = options(&text);
        if wants != has {
            node.stop(PROGRAM, "TERM")?;
            node.start_driver(&wants.iter().map(String::as_str).collect::<Vec<_>>())?;
            has = wants;
        }
        node.apply(&[common, "---\n", &text].concat())?;
        let pods: Vec<&str> = text
            .split("---\n")
            .filter(|part| part.contains("\nkind: Pod\n"))
            .filter_map(|part| part.split("metadata: {name: ").nth(1)?.split('}').next())
            .collect();
        ensure!(!pods.is_empty(), "{} has no pod", file.display());
        for pod in &pods {
            let running = node.until_pod(pod, "Running").and_then(|found| finds(node, pod, &found));
            running.with_context(|| file.display().to_string())?;
        }
        node.delete_pods(&pods)?;
        let delete = ["delete", "resourceclaims,resourceclaimtemplates", "--all"];
        node.kubectl(&delete, "")?;
    }
    node.kubectl(&["label", "namespace", "default", &format!("{label}-")], "")?;
    node.stop(PROGRAM, "TERM")?;
    node.start_driver(&[])
}

/// Each container of a pod says what it has, and misses nothing.
fn finds(node: &mut Node, name: &str, pod: &Value) -> Result<()> {
    for container in pod["spec"]["containers"].as_array().into_iter().flatten() {
        let container = container["name"].as_str().unwrap_or_default();
        let said =
            node.wait(&format!("{name}/{container} to say what it has"), SOON, &[], |node| {
                Ok(Some(node.output(name, container)?).filter(|said| !said.is_empty()))
            })?;
        ensure!(!said.contains("No such file"), "{name}/{container}: {said}");
    }
    Ok(())
}

/// The options of divvy-node that an example names at its top.
fn options(text: &str) -> Vec<String> {
    let top = text.lines().map_while(|line| line.strip_prefix('#'));
    let words = top.flat_map(str::split_whitespace);
    words.filter(|word| word.starts_with("--")).map(str::to_owned).collect()
}
