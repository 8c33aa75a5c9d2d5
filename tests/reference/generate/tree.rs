//! Spec directories with files of several kinds, and requests for their devices.

use std::path::PathBuf;

use fastrand::Rng;
use serde_json::Value;

use super::{config, once_in, pick, render, spec};

/// Everything one injection depends on.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    /// Files as `etc/a.yaml`, in order.
    pub(crate) files: Vec<File>,
    /// The directories as `etc`, lowest priority first.
    pub(crate) dirs: Vec<&'static str>,
    pub(crate) devices: Vec<String>,
    pub(crate) config: Value,
}

/// One file of a spec directory.
#[derive(Debug, Clone)]
pub(crate) struct File {
    pub(crate) path: String,
    pub(crate) bytes: Vec<u8>,
}

/// A case; device nodes are below `nodes`.
pub(crate) fn case(rng: &mut Rng, nodes: &str) -> Case {
    const PATHS: &[&str] = &[
        "etc/a.yaml",
        "etc/b.json",
        "etc/c.yaml",
        "run/a.yaml",
        "run/b.json",
        "run/c.yml",
        "opt/z.json",
    ];
    const DIRS: &[&[&str]] = &[
        &["run", "etc"],
        &["etc", "etc"],
        &["missing", "etc", "run", "opt"],
        &["file", "etc", "run"],
        &["etc"],
        &["etc", "opt", "run"],
        &["etc", "opt", "run"],
        &["etc", "opt", "run"],
        &["etc", "opt", "run"],
        &["etc", "run"],
    ];
    let mut files: Vec<File> = Vec::new();
    let mut names = Vec::new();
    for _ in 0..1 + rng.usize(..3) {
        let path = pick(rng, PATHS);
        if files.iter().any(|file| file.path == path) {
            continue;
        }
        let (tree, bytes) = document(rng, nodes);
        names.extend(tree["devices"].as_array().into_iter().flatten().filter_map(|device| {
            Some(format!("{}={}", tree["kind"].as_str()?, device["name"].as_str()?))
        }));
        files.push(File { path: path.to_owned(), bytes });
    }
    if once_in(rng, 6) {
        // The same definitions in several places: conflicts, shadowed ones, both.
        for path in ["etc/d.yaml", "etc/e.json", "run/d.json"] {
            let bytes = files[rng.usize(..files.len())].bytes.clone();
            files.push(File { path: path.to_owned(), bytes });
        }
    }
    let count = if once_in(rng, 12) { 0 } else { 1 + rng.usize(..3) };
    let devices = (0..count).map(|_| request(rng, &names)).collect();
    let config = config::config(rng, nodes);
    Case { files, dirs: pick(rng, DIRS).to_vec(), devices, config }
}

/// A document that is mostly a good one: what is bad is compared alone, by the thousand.
fn document(rng: &mut Rng, nodes: &str) -> (Value, Vec<u8>) {
    let mut made = (Value::Null, Vec::new());
    for _ in 0..6 {
        let tree = spec::spec(rng, nodes, 40);
        let bytes = render::text(rng, &tree);
        let good = spec_is_good(&bytes);
        made = (tree, bytes);
        if good {
            break;
        }
    }
    made
}

fn spec_is_good(bytes: &[u8]) -> bool {
    matches!(
        crate::compare::caught(|| crate::divvy::parse(bytes)),
        crate::model::Answer::Accepts(_)
    )
}

/// Mostly one of `names`.
fn request(rng: &mut Rng, names: &[String]) -> String {
    const STRANGE: &[&str] = &["", "x", "/dev/null", "v.com/cc=", "v.com/cc=nope", "V.com/cc=d"];
    if names.is_empty() || once_in(rng, 40) {
        return pick(rng, STRANGE).to_owned();
    }
    names[rng.usize(..names.len())].clone()
}

// === impl Case ===

impl Case {
    /// The directories below `root`.
    pub(crate) fn directories(&self, root: &std::path::Path) -> Vec<PathBuf> {
        self.dirs.iter().map(|dir| root.join(dir)).collect()
    }
}
