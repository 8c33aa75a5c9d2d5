mod equal;

use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf};

use super::{Resolution, Scope, from_spec, lookup, resolve};
use crate::{file::Trust, name::QualifiedName, registry::Registry};

/// Spec directories `etc` and `run` below a fresh folder.
struct Tree {
    folder: tempfile::TempDir,
}

impl Tree {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for dir in ["etc", "run"] {
            fs::create_dir(folder.path().join(dir)).unwrap();
        }
        Self { folder }
    }

    fn put(&self, path: &str, text: &str) {
        #[allow(clippy::disallowed_methods, reason = "a fresh folder of this test")]
        fs::write(self.folder.path().join(path), text).unwrap();
    }

    fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    fn dirs(&self) -> Vec<PathBuf> {
        vec![self.path("etc"), self.path("run")]
    }

    /// Both ways to resolve, which agree.
    fn resolve(&self, names: &[&str]) -> Result<Resolution, String> {
        let names: Vec<_> = names.iter().map(|name| QualifiedName::parse(name).unwrap()).collect();
        let fast = lookup(&self.dirs(), &names, &Trust::Any);
        let full = resolve(&Registry::scan(&self.dirs(), &Trust::Any), &names);
        assert_eq!(fast, full);
        let root = self.folder.path().display().to_string();
        fast.map_err(|unresolved| unresolved.to_string().replace(&root, ""))
    }

    fn refusal(&self, names: &[&str]) -> String {
        let line = self.resolve(names).unwrap_err();
        assert!(!line.contains('\n') && line.chars().count() <= 2001, "{line}");
        for phrase in ["ermission denied", "not permitted", "no such file or directory"] {
            assert!(!line.contains(phrase), "{line}");
        }
        line
    }

    fn env(&self, names: &[&str]) -> Vec<String> {
        let parts = self.resolve(names).unwrap().parts;
        parts.into_iter().flat_map(|part| part.edits.env).collect()
    }
}

fn spec(kind: &str, devices: &[(&str, &str)], global: &str) -> String {
    let devices: Vec<_> = devices
        .iter()
        .map(|(name, env)| {
            format!("{{\"name\":\"{name}\",\"containerEdits\":{{\"env\":[\"{env}\"]}}}}")
        })
        .collect();
    let global = if global.is_empty() {
        String::new()
    } else {
        format!(",\"containerEdits\":{{\"env\":[\"{global}\"]}}")
    };
    format!(
        "{{\"cdiVersion\":\"0.5.0\",\"kind\":\"{kind}\",\"devices\":[{}]{global}}}",
        devices.join(",")
    )
}

#[test]
fn global_edits_come_once_before_the_first_device_of_their_file() {
    let tree = Tree::new();
    tree.put("etc/a.json", &spec("v.com/a", &[("x", "X=1"), ("y", "Y=1")], "GA=1"));
    tree.put("etc/b.json", &spec("v.com/b", &[("z", "Z=1")], "GB=1"));
    assert_eq!(
        tree.env(&["v.com/a=y", "v.com/b=z", "v.com/a=x", "v.com/a=y"]),
        ["GA=1", "Y=1", "GB=1", "Z=1", "X=1"]
    );
    let parts = tree.resolve(&["v.com/a=x"]).unwrap().parts;
    assert_eq!(parts[0].origin.file, tree.path("etc/a.json"));
    assert_eq!(parts[0].origin.scope, Scope::Global);
    assert_eq!(parts[1].origin.scope, Scope::Device("x".to_owned()));
    assert!(tree.resolve(&[]).unwrap().parts.is_empty());
}

#[test]
fn the_later_directory_wins() {
    let tree = Tree::new();
    tree.put("etc/z.json", &spec("v.com/c", &[("d", "A=etc"), ("e", "E=etc")], ""));
    tree.put("run/a.json", &spec("v.com/c", &[("d", "A=run")], ""));
    assert_eq!(tree.env(&["v.com/c=d"]), ["A=run"]);
    assert_eq!(tree.env(&["v.com/c=e"]), ["E=etc"]);
}

#[test]
fn a_conflict_counts_only_where_it_has_the_highest_priority() {
    let tree = Tree::new();
    tree.put("etc/a.json", &spec("v.com/c", &[("d", "A=1"), ("e", "E=1")], ""));
    tree.put("etc/b.json", &spec("v.com/c", &[("d", "A=2")], ""));
    let line = tree.refusal(&["v.com/c=d"]);
    assert_eq!(
        line,
        "CONFLICT: device \"v.com/c=d\": defined more than once at the same priority, by \
         /etc/a.json, /etc/b.json; remove all but one; \"divvy devices\" lists what is defined"
    );
    assert_eq!(tree.env(&["v.com/c=e"]), ["E=1"]);
    // A good definition of higher priority is not poisoned …
    tree.put("run/a.json", &spec("v.com/c", &[("d", "A=3")], ""));
    assert_eq!(tree.env(&["v.com/c=d"]), ["A=3"]);
    // … and an ambiguous one is not replaced by one of lower priority.
    let tree = Tree::new();
    tree.put("etc/a.json", &spec("v.com/c", &[("d", "A=1")], ""));
    tree.put("run/a.json", &spec("v.com/c", &[("d", "A=2")], ""));
    tree.put("run/b.json", &spec("v.com/c", &[("d", "A=3")], ""));
    assert!(tree.refusal(&["v.com/c=d"]).starts_with("CONFLICT: "));
}

#[test]
fn unresolved_says_what_was_looked_at() {
    let tree = Tree::new();
    fs::remove_dir(tree.path("etc")).unwrap();
    let devices = [("0", "A=1"), ("1", "A=1"), ("all", "A=1")];
    tree.put("run/a.json", &spec("nvidia.com/gpu", &devices, ""));
    assert_eq!(
        tree.refusal(&["nvidia.com/gpu=9"]),
        "UNRESOLVED: device \"nvidia.com/gpu=9\": not defined in /etc (missing) or /run (1 file \
         read); nearest: nvidia.com/gpu=0, nvidia.com/gpu=1, nvidia.com/gpu=all; \
         \"divvy devices\" lists what is defined"
    );
    tree.put("run/bad.yaml", "cdiVersion: 0.5.0\nkind: v.com/x\ndevices:\n- name: d1\n");
    let line = tree.refusal(&["nvidia.com/gpu=9"]);
    assert!(line.contains("/run (2 files read; rejected: bad.yaml:4:3: device \"d1\""), "{line}");
    let line =
        tree.refusal(&["nvidia.com/gpx=0", "w.com/c=d", "w.com/c=e", "w.com/c=f", "w.com/c=g"]);
    assert!(
        line.contains("devices \"nvidia.com/gpx=0\", \"w.com/c=d\", \"w.com/c=e\" and 2 more: not"),
        "{line}"
    );
    assert!(line.contains("nearest: nvidia.com/gpu=0"), "{line}");
}

#[test]
fn a_rejected_file_that_was_meant_is_named_with_its_reasons() {
    let tree = Tree::new();
    tree.put("run/bad.json", &spec("v.com/c", &[("d", "NOEQUALS")], ""));
    tree.put("run/other.json", &spec("v.com/c", &[("e", "NOEQUALS")], ""));
    let line = tree.refusal(&["v.com/c=d"]);
    assert!(
        line.starts_with(
            "SPEC-INVALID: device \"v.com/c=d\": in a file that was rejected: /run/bad.json:1:"
        ),
        "{line}"
    );
    assert!(!line.contains("other.json"), "{line}");
    let newer = spec("v.com/c", &[("d", "A=1")], "").replace("0.5.0", "9.0.0");
    tree.put("run/bad.json", &newer);
    let line = tree.refusal(&["v.com/c=d"]);
    assert!(line.starts_with("SPEC-VERSION: "), "{line}");
    // It hides nothing.
    tree.put("etc/good.json", &spec("v.com/c", &[("d", "A=good")], ""));
    assert_eq!(tree.env(&["v.com/c=d"]), ["A=good"]);
}

#[test]
fn the_line_is_one_line_and_bounded_whatever_is_there() {
    let tree = Tree::new();
    for n in 0..300 {
        tree.put(&format!("etc/{}\n{n}.json", "x".repeat(200)), "{");
        tree.put(&format!("run/{n}.json"), &spec("v.com/c", &[(&"d".repeat(500), "A=1")], ""));
    }
    let long = format!("v.com/c={}", "d".repeat(499));
    let line = tree.refusal(&[&long]);
    assert!(line.contains("and 297 more"), "{line}");
    tree.refusal(&[&format!("v.com/c={}", "d".repeat(500))]);
}

#[test]
fn files_and_directories_of_others_are_refused_and_hide_nothing() {
    let tree = Tree::new();
    tree.put("etc/a.json", &spec("v.com/c", &[("d", "A=1")], ""));
    tree.put("run/b.json", &spec("w.com/c", &[("e", "E=1")], ""));
    let mode = |path: &str, mode| {
        fs::set_permissions(tree.path(path), fs::Permissions::from_mode(mode)).unwrap();
    };
    let me = rustix::process::geteuid().as_raw();
    let names = |name: &str| [QualifiedName::parse(name).unwrap()];
    let trust = Trust::RootOr(me);
    lookup(&tree.dirs(), &names("v.com/c=d"), &trust).unwrap();
    mode("etc/a.json", 0o666);
    let error = lookup(&tree.dirs(), &names("v.com/c=d"), &trust).unwrap_err();
    assert_eq!(error.code(), "UNTRUSTED");
    assert!(error.to_string().contains("a.json: not trusted: everybody can write it"), "{error}");
    mode("etc/a.json", 0o644);
    mode("etc", 0o777);
    let error = lookup(&tree.dirs(), &names("v.com/c=d"), &trust).unwrap_err();
    assert_eq!(error.code(), "UNTRUSTED");
    assert!(error.to_string().contains("/etc (refused: everybody can write it)"), "{error}");
    lookup(&tree.dirs(), &names("w.com/c=e"), &trust).unwrap();
    // Of this kind everything is trusted: it is a name that is wrong. The text tells of both.
    let error = lookup(&tree.dirs(), &names("w.com/c=x"), &trust).unwrap_err();
    assert_eq!(error.code(), "UNRESOLVED");
    assert!(error.to_string().contains("everybody can write it"), "{error}");
}

#[test]
fn a_record_names_the_file_and_nothing_else_is_looked_at() {
    let path = PathBuf::from("/nowhere/claim.json");
    let text = spec("v.com/c", &[("d", "A=1"), ("e", "E=1")], "G=1");
    let names = |list: &[&str]| -> Vec<_> {
        list.iter().map(|name| QualifiedName::parse(name).unwrap()).collect()
    };
    let found = from_spec(&path, text.as_bytes(), &names(&["v.com/c=e", "v.com/c=e"])).unwrap();
    assert_eq!(found.parts.len(), 2);
    let error = from_spec(&path, text.as_bytes(), &names(&["v.com/c=e", "v.com/c=x"])).unwrap_err();
    assert_eq!(
        error.to_string(),
        "UNRESOLVED: device \"v.com/c=x\": not defined in /nowhere/claim.json; nearest: v.com/c=d, \
         v.com/c=e"
    );
    let error = from_spec(&path, b"{}", &names(&["v.com/c=e"])).unwrap_err();
    assert_eq!(error.code(), "SPEC-INVALID");
    assert!(!error.problems().is_empty());
}

#[test]
fn merging_keeps_each_part_once_in_order() {
    let tree = Tree::new();
    tree.put("etc/a.json", &spec("v.com/a", &[("x", "X=1"), ("y", "Y=1")], "GA=1"));
    let mut first = tree.resolve(&["v.com/a=x"]).unwrap();
    first.merge(tree.resolve(&["v.com/a=y", "v.com/a=x"]).unwrap());
    let env: Vec<_> = first.parts.into_iter().flat_map(|part| part.edits.env).collect();
    assert_eq!(env, ["GA=1", "X=1", "Y=1"]);
}
