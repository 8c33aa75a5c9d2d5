//! A comparison asks both libraries the same and explains what differs by a deviation, or not.

use std::{
    collections::BTreeMap,
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
};

use divvy_cdi::host::ThisHost;
use serde_json::json;
use tempfile::TempDir;

use crate::{
    deviations,
    divvy::{self, plain},
    generate::tree::{Case, File},
    go::Go,
    model::Answer,
    nodes,
};

/// Both libraries, and the folder that they look at.
pub(crate) struct Compare {
    pub(crate) go: Go,
    folder: TempDir,
    /// How many differences each deviation explained.
    pub(crate) explained: BTreeMap<&'static str, usize>,
}

/// Two answers that no deviation explains.
#[derive(Debug)]
pub(crate) struct Difference {
    pub(crate) go: Answer,
    pub(crate) ours: Answer,
}

// === impl Compare ===

impl Compare {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let folder_of_nodes = folder.path().join("nodes");
        fs::create_dir(&folder_of_nodes).expect("made");
        let made = [
            ("null", "c 1:3 0666"),
            ("zero", "c 1:5 0600"),
            ("disk", "b 7:9 0640"),
            ("pipe", "p 0:0 0600"),
        ];
        for (name, node) in made {
            nodes::make(&folder_of_nodes.join(name), node)
                .expect("device nodes (this test needs root)");
        }
        fs::write(folder_of_nodes.join("file"), "").expect("written");
        std::os::unix::fs::symlink("null", folder_of_nodes.join("link")).expect("linked");
        Self { go: Go::start(), folder, explained: BTreeMap::new() }
    }

    /// Where the device nodes are.
    pub(crate) fn nodes(&self) -> String {
        self.folder.path().join("nodes").to_str().expect("UTF-8").to_owned()
    }

    /// Compares what a document says.
    pub(crate) fn document(&mut self, bytes: &[u8]) -> Result<bool, Difference> {
        let go = self.go.parse(bytes);
        let ours = caught(|| divvy::parse(bytes));
        let accepted = matches!(go, Answer::Accepts(_));
        if same(&go, &ours) {
            return Ok(accepted);
        }
        match deviations::document::explain(&mut self.go, bytes, &go, &ours) {
            Some(id) => {
                self.count(id);
                Ok(accepted)
            }
            None => Err(Difference { go, ours }),
        }
    }

    /// Compares what directories hold, and a config with devices from them.
    pub(crate) fn case(&mut self, case: &Case) -> Result<bool, Difference> {
        let root = self.lay_out(case);
        let dirs = case.directories(&root);
        let listed_by_us = caught(|| divvy::list(&dirs));
        let config = case.config.to_string();
        let ours = caught(|| divvy::inject(&dirs, &case.devices, config.as_bytes(), &ThisHost));
        let ours = self.normal(ours);
        let (listed, go) = self.ask(case, &dirs);
        let accepted = matches!(go, Answer::Accepts(_));
        if listed == listed_by_us && exactly(&go, &ours) {
            return Ok(accepted);
        }
        // The same question without what we judge differently on purpose.
        let rewritten = deviations::case::rewrite(&mut self.go, case);
        self.lay_out(&rewritten.case);
        let (listed, go) = self.ask(&rewritten.case, &rewritten.case.directories(&root));
        let listed = rewritten.listing(listed, &root);
        if listed != listed_by_us {
            return Err(Difference { go: listed, ours: listed_by_us });
        }
        let before = self.go.normalise(&case.config);
        match deviations::case::explain(&before, &go, &ours) {
            _ if exactly(&go, &ours) => (),
            Some(id) => self.count(id),
            None => return Err(Difference { go, ours }),
        }
        rewritten.used.into_iter().for_each(|id| self.count(id));
        Ok(accepted)
    }

    fn ask(&mut self, case: &Case, dirs: &[PathBuf]) -> (Answer, Answer) {
        let listed = self.go.list(dirs);
        let go = self.go.inject(dirs, &case.devices, &case.config).answer(|reply| reply.config);
        (listed, go)
    }

    /// Our config as the Go types see it.
    fn normal(&mut self, ours: Answer) -> Answer {
        match ours {
            Answer::Accepts(config) => Answer::Accepts(self.go.normalise(&config)),
            other => other,
        }
    }

    /// The folder with the files of `case`; the one before is gone.
    fn lay_out(&self, case: &Case) -> PathBuf {
        let root = self.folder.path().join("case");
        fs::remove_dir_all(&root).ok();
        for dir in ["etc", "run", "opt"] {
            fs::create_dir_all(root.join(dir)).expect("made");
        }
        fs::write(root.join("file"), "").expect("written");
        for File { path, bytes } in &case.files {
            fs::write(root.join(path), bytes).expect("written");
        }
        root
    }

    fn count(&mut self, id: &'static str) {
        let entry = format!("\n### {id}\n");
        assert!(include_str!("../../cdi/DEVIATIONS.md").contains(&entry), "no entry {id}");
        *self.explained.entry(id).or_default() += 1;
    }
}

/// A panic of ours is an answer that nothing explains.
pub(crate) fn caught(ask: impl FnOnce() -> Answer) -> Answer {
    catch_unwind(AssertUnwindSafe(ask)).unwrap_or_else(|cause| {
        let text = cause.downcast_ref::<String>().cloned();
        let text = text.or_else(|| cause.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Answer::Panics(text.unwrap_or_default())
    })
}

/// As [`same`], with the very same config.
pub(crate) fn exactly(go: &Answer, ours: &Answer) -> bool {
    match (go, ours) {
        (Answer::Accepts(go), Answer::Accepts(ours)) => go == ours,
        (go, ours) => same(go, ours),
    }
}

/// Both accept the same, or both refuse. A panic or a hang is never the same as anything.
pub(crate) fn same(go: &Answer, ours: &Answer) -> bool {
    match (go, ours) {
        (Answer::Accepts(go), Answer::Accepts(ours)) => plain(go) == plain(ours),
        (Answer::Refuses(_), Answer::Refuses(_)) => true,
        _ => false,
    }
}

/// A question as a person reads it.
pub(crate) fn shown(case: &Case) -> String {
    let mut text = String::new();
    for File { path, bytes } in &case.files {
        text.push_str(&format!("--- {path}\n{}\n", String::from_utf8_lossy(bytes)));
    }
    let Case { dirs, devices, config, .. } = case;
    text + &format!("--- {}\n", json!({"dirs": dirs, "devices": devices, "config": config}))
}
