use std::{fs, os::unix::fs::PermissionsExt};

use divvy_hook::record::{Consumer, Origin};

use super::{Entry, Journal, JournalError, Stage, VERSION};
use crate::{
    claim::{Share, Sharing},
    gpu::{Interval, MadePartition, Placement},
    plan::{Planned, Step, Target},
};

fn entry(uid: &str) -> Entry {
    let placement = Placement { start: 0, size: 1 };
    let target =
        Target::Partition { gpu: "GPU-1".to_owned(), profile: "1g.10gb".to_owned(), placement };
    Entry {
        version: VERSION,
        uid: uid.to_owned(),
        namespace: "default".to_owned(),
        name: "c".to_owned(),
        origin: Origin::Local,
        asked: "sha256:x".to_owned(),
        gpus: "sim:/node.toml".to_owned(),
        cdi_dir: "/cdi".into(),
        run_dir: "/run".into(),
        consumers: vec![Consumer {
            kind: "Pod".to_owned(),
            uid: "p".to_owned(),
            name: "pod".to_owned(),
        }],
        boot: "b".to_owned(),
        stage: Stage::Started,
        devices: vec![Planned {
            request: "r".to_owned(),
            pool: "n".to_owned(),
            device: "d".to_owned(),
            target,
            sharing: Sharing::TimeSlicing(Interval::Short),
            admin: false,
            share: Some(Share {
                id: "s".to_owned(),
                consumed: [("memory".to_owned(), "1536Mi".parse().unwrap())].into(),
            }),
        }],
        steps: vec![
            Step::Partition(MadePartition {
                gpu: "GPU-1".to_owned(),
                profile: "1g.10gb".to_owned(),
                placement,
                uuid: Some("MIG-1".to_owned()),
            }),
            Step::TimeSlice {
                gpu: "GPU-1".to_owned(),
                interval: Interval::Short,
                before: Interval::Default,
            },
        ],
    }
}

#[test]
fn an_entry_reads_back_as_it_was_written() {
    let dir = tempfile::tempdir().unwrap();
    let journal = Journal::new(dir.path());
    assert_eq!(journal.entries().unwrap().len(), 0);
    let held = journal.lock().unwrap();
    for uid in ["b", "a"] {
        journal.write(&held, &entry(uid)).unwrap();
    }
    assert_eq!(journal.entry("a").unwrap(), Some(entry("a")));
    let uids: Vec<_> = journal.entries().unwrap().into_iter().map(|e| e.unwrap().uid).collect();
    assert_eq!(uids, ["a", "b"]);
    assert_eq!(entry("a").partition_of(&entry("a").devices[0]), Some("MIG-1"));
    let mode = |name: &str| fs::metadata(dir.path().join(name)).unwrap().permissions().mode();
    assert_eq!((mode("claims") & 0o777, mode("claims/a.json") & 0o777), (0o700, 0o600));
    journal.remove(&held, "a").unwrap();
    journal.remove(&held, "a").unwrap();
    assert_eq!(journal.entry("a").unwrap(), None);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test's own input")]
fn a_damaged_entry_is_an_error_that_names_it_and_hides_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let journal = Journal::new(dir.path());
    let held = journal.lock().unwrap();
    journal.write(&held, &entry("a")).unwrap();
    let good = fs::read_to_string(dir.path().join("claims/a.json")).unwrap();
    for (text, says) in [
        (String::new(), "EOF"),
        (good.replace("\"version\": 1", "\"version\": 2"), "version 2"),
        // Another version is said to be one, whatever its fields are.
        ("{\"version\": 2, \"later\": []}".to_owned(), "version 2"),
        (good.replace("\"stage\"", "\"stagE\""), "stagE"),
        (good.clone(), "UID a"),
    ] {
        fs::write(dir.path().join("claims/x.json"), text).unwrap();
        let error = journal.entry("x").unwrap_err();
        assert!(matches!(error, JournalError::Invalid { .. }), "{error}");
        assert!(error.to_string().contains("claims/x.json"), "{error}");
        assert!(error.to_string().contains(says), "{error}");
        let entries = journal.entries().unwrap();
        assert_eq!(entries.iter().filter(|entry| entry.is_ok()).count(), 1);
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test's own input")]
fn what_is_not_named_as_an_entry_is_a_damaged_one() {
    use std::os::unix::ffi::OsStrExt;
    let dir = tempfile::tempdir().unwrap();
    let journal = Journal::new(dir.path());
    let held = journal.lock().unwrap();
    journal.write(&held, &entry("a")).unwrap();
    for name in [&b"x\n\xff.json"[..], b"a.jsn", b".divvy-x.tmp"] {
        let path = dir.path().join("claims").join(std::ffi::OsStr::from_bytes(name));
        fs::write(&path, "").unwrap();
        let entries = journal.entries().unwrap();
        assert_eq!((entries.len(), entries.iter().filter(|e| e.is_ok()).count()), (2, 1));
        let error = entries.into_iter().find_map(Result::err).unwrap();
        assert_eq!(error.code(), "JOURNAL-INVALID", "{error}");
        fs::remove_file(path).unwrap();
    }
    // What a crash left is none, and is swept away.
    let left = dir.path().join("claims/.divvy-2147483647-0.tmp");
    fs::write(&left, "").unwrap();
    assert_eq!(journal.entries().unwrap().len(), 1);
    journal.sweep(&held);
    assert!(!left.exists());
}

#[test]
fn a_directory_that_others_can_write_is_not_used() {
    let dir = tempfile::tempdir().unwrap();
    let journal = Journal::new(&dir.path().join("state"));
    drop(journal.lock().unwrap());
    for open in ["state", "state/claims"] {
        let path = dir.path().join(open);
        let set = |mode| fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        set(0o777);
        assert_eq!(journal.lock().unwrap_err().code(), "UNTRUSTED", "{open}");
        assert_eq!(journal.entries().unwrap_err().code(), "UNTRUSTED", "{open}");
        set(0o700);
        assert_eq!(journal.entries().unwrap().len(), 0);
    }
}
