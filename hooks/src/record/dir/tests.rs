use std::{
    collections::BTreeMap,
    os::unix::fs::{PermissionsExt as _, symlink},
};

use rustix::fs::{CWD, Mode};

use super::*;
use crate::record::{DeviceRef, Driver, SpecRef, Stamp};

fn claim(uid: &str, origin: Origin) -> ClaimRecord {
    let (name, path) = (format!("gpu.divvy.dev/claim={uid}-gpu0"), PathBuf::from("/x.json"));
    let digest = crate::record::digest(b"");
    ClaimRecord {
        version: VERSION,
        origin,
        uid: uid.into(),
        namespace: "ml".into(),
        name: "train".into(),
        driver: Driver { name: "gpu.divvy.dev".into(), version: "0.1.0".into() },
        boot: "b".into(),
        requests: BTreeMap::from([("gpu".into(), vec![name.clone()])]),
        specs: BTreeMap::from([(name, SpecRef { path, digest })]),
        consumers: Vec::new(),
        stamp: None,
    }
}

fn pod(uid: &str) -> PodRecord {
    let (name, path) = ("gpu.divvy.dev/claim=u-gpu0".into(), PathBuf::from("/x.json"));
    let device = DeviceRef { name, path, digest: crate::record::digest(b"") };
    PodRecord {
        version: VERSION,
        uid: uid.into(),
        namespace: "ml".into(),
        name: "pod".into(),
        boot: "b".into(),
        containers: BTreeMap::from([("main".into(), vec![device])]),
    }
}

fn dir() -> (tempfile::TempDir, RunDir) {
    let temp = tempfile::tempdir().unwrap();
    let run = RunDir::new(temp.path().join("run/divvy"));
    (temp, run)
}

#[test]
fn what_is_written_is_read() {
    let (_temp, run) = dir();
    let (api, local) = (claim("u-1", Origin::Api), claim("u-2", Origin::Local));
    assert!(run.claim("u-1").unwrap().is_none());
    assert!(run.claims().unwrap().is_empty());
    run.write_claim(&api).unwrap();
    run.write_claim(&local).unwrap();
    run.write_pod(&pod("p-1")).unwrap();
    assert_eq!(run.claim("u-1").unwrap().unwrap(), api);
    assert_eq!(run.pod("p-1").unwrap().unwrap(), pod("p-1"));
    let all: Vec<_> = run.claims().unwrap().into_iter().map(|(_, claim)| claim.unwrap()).collect();
    assert_eq!(all, [api, local]);
    for (path, mode) in [("", 0o755), ("claims", 0o755), ("claims/u-1.json", 0o644)] {
        let found = std::fs::metadata(run.path().join(path)).unwrap().permissions().mode();
        assert_eq!(found & 0o7777, mode, "{path}");
    }
}

#[test]
fn only_a_claim_prepared_by_hand_has_a_name() {
    let (_temp, run) = dir();
    run.write_claim(&claim("u-1", Origin::Api)).unwrap();
    assert!(run.local_claim("ml", "train").unwrap().is_none());
    run.write_claim(&claim("u-2", Origin::Local)).unwrap();
    assert_eq!(run.local_claim("ml", "train").unwrap().unwrap().uid, "u-2");
    // Rubbish is in nobody's way.
    std::fs::copy("/proc/self/cmdline", run.path().join("local/file")).unwrap();
    std::fs::create_dir(run.path().join("local/ml/dir")).unwrap();
    symlink("nowhere", run.path().join("local/link")).unwrap();
    assert!(run.remove_claim("u-2").unwrap());
    std::fs::remove_dir(run.path().join("local/ml/dir")).unwrap();
    assert!(!run.remove_claim("u-2").unwrap());
    assert!(run.local_claim("ml", "train").unwrap().is_none());
    assert!(!run.path().join("local/ml").exists());
}

#[test]
fn a_name_that_points_at_a_claim_of_the_api_is_refused() {
    let (_temp, run) = dir();
    run.write_claim(&claim("u-2", Origin::Local)).unwrap();
    run.write_claim(&claim("u-1", Origin::Api)).unwrap();
    let link = run.path().join("local/ml/train");
    std::fs::remove_file(&link).unwrap();
    symlink("../../claims/u-1.json", &link).unwrap();
    let error = run.local_claim("ml", "train").unwrap_err();
    assert!(matches!(error, RecordError::Misplaced { what: "origin", .. }), "{error}");
    std::fs::remove_file(&link).unwrap();
    symlink("../../pods/u-1.json", &link).unwrap();
    assert_eq!(run.local_claim("ml", "train").unwrap_err().code(), "RECORD-INVALID");
}

#[test]
fn hostile_names_never_become_a_path() {
    let (_temp, run) = dir();
    for uid in ["", ".", "..", "../x", "a/b", "a\0b", "-x", &"a".repeat(254), "a b", "ä"] {
        assert_eq!(run.claim(uid).unwrap_err().code(), "RECORD-INVALID", "{uid:?}");
        assert_eq!(run.pod(uid).unwrap_err().code(), "RECORD-INVALID", "{uid:?}");
        assert_eq!(run.remove_claim(uid).unwrap_err().code(), "RECORD-INVALID", "{uid:?}");
        assert_eq!(run.local_claim(uid, "x").unwrap_err().code(), "RECORD-INVALID", "{uid:?}");
        assert_eq!(run.local_claim("x", uid).unwrap_err().code(), "RECORD-INVALID", "{uid:?}");
    }
}

#[test]
fn a_directory_that_others_can_write_is_refused_by_name() {
    let (_temp, run) = dir();
    run.write_pod(&pod("p-1")).unwrap();
    for path in [run.path().join("pods"), run.path().to_owned()] {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777)).unwrap();
        for result in [run.pod("p-1"), run.pod("absent")] {
            let error = result.unwrap_err();
            assert_eq!(error.code(), "UNTRUSTED");
            assert!(error.to_string().contains(&*path.to_string_lossy()), "{error}");
        }
        assert_eq!(run.write_pod(&pod("p-1")).unwrap_err().code(), "UNTRUSTED");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
}

#[test]
fn any_bytes_as_a_record_are_a_clear_error() {
    let (_temp, run) = dir();
    run.write_claim(&claim("u-0", Origin::Api)).unwrap();
    let path = run.path().join("claims/u.json");
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let version = r#"{"version":2,"requests":7}"#;
    for (bytes, code) in [
        ("", "RECORD-INVALID"),
        ("\0\u{1}", "RECORD-INVALID"),
        ("[]", "RECORD-INVALID"),
        (r#"{"version":-1}"#, "RECORD-INVALID"),
        (&deep, "RECORD-INVALID"),
        (version, "RECORD-VERSION"),
    ] {
        file::replace(&path, bytes.as_bytes(), 0o644, Durability::Volatile).unwrap();
        let error = run.claim("u").unwrap_err();
        assert_eq!(error.code(), code, "{error}");
        assert!(error.to_string().contains("u.json"), "{error}");
    }
    let other = serde_json::to_vec(&claim("u-9", Origin::Api)).unwrap();
    file::replace(&path, &other, 0o644, Durability::Volatile).unwrap();
    assert!(matches!(run.claim("u").unwrap_err(), RecordError::Misplaced { .. }));
    // The bad one hides no other.
    assert_eq!(run.claims().unwrap().iter().filter(|(_, claim)| claim.is_ok()).count(), 1);
}

#[test]
fn fifos_loops_and_huge_files_are_errors() {
    let (_temp, run) = dir();
    run.write_pod(&pod("p-1")).unwrap();
    let pods = run.path().join("pods");
    fs::mknodat(CWD, pods.join("fifo.json"), fs::FileType::Fifo, Mode::from_raw_mode(0o644), 0)
        .unwrap();
    symlink("loop.json", pods.join("loop.json")).unwrap();
    std::fs::File::create_new(pods.join("huge.json")).unwrap().set_len(1 << 40).unwrap();
    for uid in ["fifo", "loop", "huge"] {
        assert_eq!(run.pod(uid).unwrap_err().code(), "UNREADABLE", "{uid}");
    }
}

#[test]
fn a_stamp_may_be_missing_and_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let run = RunDir::new(dir.path());
    run.write_claim(&claim("u", Origin::Api)).unwrap();
    let text = std::fs::read_to_string(run.claim_path("u")).unwrap();
    assert!(!text.contains("stamp"), "as earlier builds write it: {text}");
    let mig = vec!["GPU-1 1g.10gb 4 MIG-2".to_owned()];
    let stamp = Some(Stamp { driver: "580.65.06".to_owned(), mig, entry: "{}".to_owned() });
    let stamped = ClaimRecord { stamp, ..claim("u", Origin::Api) };
    run.write_claim(&stamped).unwrap();
    assert_eq!(run.claim("u").unwrap(), Some(stamped));
}
