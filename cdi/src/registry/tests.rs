use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use super::{Registry, Standing, State};
use crate::{file::Trust, problem::Severity};

const GOOD: &str = "{\"cdiVersion\":\"0.5.0\",\"kind\":\"v.com/c\",\"devices\":[{\"name\":\"NAME\",\
                    \"containerEdits\":{\"env\":[\"A=1\"]}}]}";

fn good(name: &str) -> String {
    GOOD.replace("NAME", name)
}

fn put(path: PathBuf, text: &str) {
    #[allow(clippy::disallowed_methods, reason = "a fresh folder of this test")]
    fs::write(path, text).unwrap();
}

fn mkfifo(path: &Path) {
    rustix::fs::mknodat(
        rustix::fs::CWD,
        path,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o644),
        0,
    )
    .unwrap();
}

fn devices(registry: &Registry) -> Vec<String> {
    registry.devices().map(|definition| definition.name.device().to_owned()).collect()
}

fn problems(registry: &Registry, root: &Path) -> Vec<String> {
    let root = format!("{}/", root.display());
    registry.problems().iter().map(|problem| problem.to_string().replace(&root, "")).collect()
}

#[test]
fn only_spec_files_of_the_directory_itself_count() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    for name in [
        "a.json",
        "b.yaml",
        ".json",
        ".hidden.yaml",
        "x.YAML",
        "x.yml",
        "x.yaml~",
        "spec.1.tmp",
        "json",
        "x.json.bak",
    ] {
        let device: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
        put(dir.join(name), &good(&device));
    }
    fs::create_dir_all(dir.join("dir.json")).unwrap();
    fs::create_dir_all(dir.join("sub")).unwrap();
    put(dir.join("sub/s.yaml"), &good("sub"));
    let registry = Registry::scan(&[dir.to_owned()], &Trust::Any);
    assert_eq!(devices(&registry), ["ajson", "byaml", "hiddenyaml", "json"]);
    assert!(registry.problems().is_empty(), "{:?}", registry.problems());
    assert_eq!(registry.directories()[0].state, State::Read { files: 4 });
    let order: Vec<_> = registry
        .specs()
        .iter()
        .map(|file| file.path.file_name().unwrap().to_str().unwrap())
        .collect();
    assert_eq!(order, [".hidden.yaml", ".json", "a.json", "b.yaml"]);
}

#[test]
fn nothing_bad_hides_what_is_good() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("etc");
    fs::create_dir(&dir).unwrap();
    put(dir.join("good.json"), &good("d"));
    put(dir.join("bad.json"), "{\"a\":\n]");
    put(dir.join("big.json"), &" ".repeat((4 << 20) + 1));
    put(dir.join("empty.yaml"), "");
    mkfifo(&dir.join("fifo.json"));
    symlink(dir.join("fifo.json"), dir.join("to-fifo.json")).unwrap();
    symlink("nowhere", dir.join("dangling.json")).unwrap();
    symlink(".", dir.join("folder.json")).unwrap();
    symlink("loop.json", dir.join("loop.json")).unwrap();
    put(folder.path().join("linked"), &good("l"));
    symlink("../linked", dir.join("link.yaml")).unwrap();
    let not_a_dir = folder.path().join("linked");
    let missing = folder.path().join("missing");
    let dirs = [not_a_dir, missing, PathBuf::new(), dir];
    let registry = Registry::scan(&dirs, &Trust::Any);
    assert_eq!(devices(&registry), ["d", "l"]);
    let found = problems(&registry, folder.path());
    for expected in [
        "etc/big.json: larger than the limit of 4194304 bytes",
        "etc/dangling.json: no such file",
        "etc/fifo.json: is a FIFO, not a regular file",
        "etc/folder.json: is a directory, not a regular file",
        "etc/loop.json: cannot read: too many symbolic links",
        "etc/to-fifo.json: is a FIFO, not a regular file",
        "linked: is no directory",
        ": an empty path names no directory",
    ] {
        assert!(found.iter().any(|line| line == expected), "{expected}: {found:#?}");
    }
    assert!(found.iter().any(|line| line.starts_with("etc/bad.json:2:1: ")), "{found:#?}");
    assert!(found.iter().any(|line| line.starts_with("etc/empty.yaml")), "{found:#?}");
    assert_eq!(registry.directories()[1].state, State::Missing);
}

#[test]
fn a_directory_that_is_named_twice_counts_at_its_last_place() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["a", "b"] {
        fs::create_dir(folder.path().join(name)).unwrap();
        put(
            folder.path().join(name).join("x.json"),
            &good("d").replace("A=1", &format!("A={name}")),
        );
    }
    symlink("a", folder.path().join("link")).unwrap();
    let path = |name: &str| folder.path().join(name);
    let registry = Registry::scan(&[path("a"), path("b"), path("link")], &Trust::Any);
    assert_eq!(registry.directories()[0].state, State::Same(path("link")));
    assert_eq!(registry.specs().len(), 2);
    let found: Vec<_> = registry.definitions().collect();
    assert_eq!(found[0].file.path, path("link/x.json"));
    assert_eq!(found[0].standing, Standing::Usable);
    assert_eq!(found[1].standing, Standing::Shadowed(&path("link/x.json")));
}

#[test]
fn a_conflict_is_told_at_each_of_its_files() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["a.json", "b.json", "c.json"] {
        put(folder.path().join(name), &good("d"));
    }
    put(folder.path().join("e.json"), &good("e"));
    let registry = Registry::scan(&[folder.path().to_owned()], &Trust::Any);
    assert_eq!(devices(&registry), ["e"]);
    assert!(
        registry.problems().iter().all(|p| p.code == "CONFLICT" && p.severity == Severity::Error)
    );
    let root = format!("{}/", folder.path().display());
    assert_eq!(
        problems(&registry, folder.path()),
        [
            "a.json: device \"v.com/c=d\": is defined by b.json, c.json too, so that neither counts",
            "b.json: device \"v.com/c=d\": is defined by a.json, c.json too, so that neither counts",
            "c.json: device \"v.com/c=d\": is defined by a.json, b.json too, so that neither counts",
        ],
        "{root}"
    );
    let conflict = registry.definitions().next().unwrap();
    assert!(matches!(&conflict.standing, Standing::Conflict(others) if others.len() == 2));
}
