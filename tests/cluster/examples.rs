//! deploy/examples: what people are told to apply, which runs here but for its image.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::claims::GPUS;
use crate::fixture::IMAGE;
use crate::node::Node;
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
    files.retain(|file| !file.ends_with("cat.yaml"));
    files.sort();
    ensure!(files.len() > 5, "no examples in {}", dir.display());
    // What one of them names, another has.
    let common = fs::read_to_string(dir.join("gpu.yaml"))?;
    let common = common.split("---").next().context("a template")?;
    for file in files {
        let text = fs::read_to_string(&file)?.replace(THEIRS, IMAGE);
        node.apply(&[common, "---\n", &text].concat())?;
        let pods: Vec<&str> = text
            .split("---\n")
            .filter(|part| part.contains("\nkind: Pod\n"))
            .filter_map(|part| part.split("metadata: {name: ").nth(1)?.split('}').next())
            .collect();
        ensure!(!pods.is_empty(), "{} has no pod", file.display());
        for pod in &pods {
            node.until_pod(pod, "Running").with_context(|| file.display().to_string())?;
        }
        node.delete_pods(&pods)?;
        let delete = ["delete", "resourceclaims,resourceclaimtemplates", "--all"];
        node.kubectl(&delete, "")?;
    }
    Ok(())
}
