use super::*;

/// A hierarchy of version 2 in a folder, with these cgroups; what was moved into them is written there.
fn hierarchy(cgroups: &[&Path]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let made = |path: &Path| OpenOptions::new().append(true).create(true).open(path).unwrap();
    made(&root.path().join("cgroup.controllers"));
    for cgroup in cgroups {
        let dir = root.path().join(cgroup);
        fs::create_dir_all(&dir).unwrap();
        made(&dir.join("cgroup.procs"));
    }
    root
}

#[test]
fn a_pid_that_was_given_again_is_moved_back() {
    let mine = Process::of(std::process::id()).unwrap();
    let before = cgroup_of(mine.pid, "/".as_ref());
    assert_eq!(before, None, "the root of all is no hierarchy");
    let root = hierarchy(&[]);
    let before = cgroup_of(mine.pid, root.path()).unwrap();
    let before = before.strip_prefix(root.path()).unwrap().to_owned();
    let root = hierarchy(&["".as_ref(), "divvy/mps-x".as_ref(), &before]);
    let said = |cgroup: &Path| {
        let procs = root.path().join(cgroup).join("cgroup.procs");
        fs::read_to_string(procs).unwrap()
    };
    Cgroups::at(root.path()).adopt("mps-x", mine).unwrap();
    assert_eq!(said("divvy/mps-x".as_ref()), mine.pid.to_string());
    assert_eq!(said(&before), "");
    let ended = Process { start_time: mine.start_time - 1, ..mine };
    let why = Cgroups::at(root.path()).adopt("mps-x", ended).unwrap_err();
    assert!(why.contains("has ended"), "{why}");
    assert_eq!(said(&before), mine.pid.to_string());
}
