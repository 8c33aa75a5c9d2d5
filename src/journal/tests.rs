use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::PermissionsExt,
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};

use divvy_hook::record::{Consumer, Origin};

use super::{Call, Entry, Journal, Listed, Stage, VERSION, Work};
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
        driver: "gpu.divvy.dev".to_owned(),
        metadata: None,
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
            existing: None,
            display: false,
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

fn open(work: &Work<'_>, uid: &str) -> Entry {
    let mut claimed = work.claim(uid).unwrap();
    claimed.write(&entry(uid)).unwrap();
    entry(uid)
}

#[test]
fn an_entry_reads_back_as_it_was_written() {
    let dir = tempfile::tempdir().unwrap();
    let journal = Journal::new(dir.path());
    assert_eq!(journal.entries().unwrap().len(), 0);
    let work = journal.work("b", Call::default()).unwrap();
    for uid in ["b", "a"] {
        open(&work, uid);
    }
    assert_eq!(journal.entry("a").unwrap(), Some(entry("a")));
    let uids: Vec<_> = journal.entries().unwrap().into_iter().map(|e| e.unwrap().uid).collect();
    assert_eq!(uids, ["a", "b"]);
    assert_eq!(entry("a").partition_of(&entry("a").devices[0]), Some("MIG-1"));
    let mode = |name: &str| fs::metadata(dir.path().join(name)).unwrap().permissions().mode();
    assert_eq!((mode("claims") & 0o777, mode("claims/a.json") & 0o777), (0o700, 0o600));
    let mut claimed = work.claim("a").unwrap();
    claimed.remove(&entry("a")).unwrap();
    claimed.remove(&entry("a")).unwrap();
    assert_eq!(journal.entry("a").unwrap(), None);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test's own input")]
fn a_damaged_entry_is_an_error_that_names_it_and_hides_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let journal = Journal::new(dir.path());
    open(&journal.work("b", Call::default()).unwrap(), "a");
    let good = fs::read_to_string(dir.path().join("claims/a.json")).unwrap();
    for (text, says) in [
        (String::new(), "EOF"),
        (good.replace("\"version\": 1", "\"version\": 2"), "version 2"),
        // Another version is said to be one, whatever its fields are.
        ("{\"version\": 2, \"later\": []}".to_owned(), "version 2"),
        ("{\"version\": 0}".to_owned(), "version 0"),
        (good.replace("\"stage\"", "\"stagE\""), "stagE"),
        (good.clone(), "UID a"),
    ] {
        fs::write(dir.path().join("claims/x.json"), text).unwrap();
        let error = journal.entry("x").unwrap_err();
        let code = if says == "version 2" { "JOURNAL-NEWER" } else { "JOURNAL-INVALID" };
        assert_eq!(error.code(), code);
        assert!(error.to_string().contains("claims/x.json"), "{error}");
        assert!(error.to_string().contains(says), "{error}");
        let entries = journal.entries().unwrap();
        assert_eq!(entries.iter().filter(|entry| entry.is_ok()).count(), 1);
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test's own input")]
fn what_is_not_named_as_an_entry_is_a_stray_and_is_kept_when_it_goes() {
    use std::os::unix::ffi::OsStrExt;
    let dir = tempfile::tempdir().unwrap();
    let journal = Journal::new(dir.path());
    open(&journal.work("b", Call::default()).unwrap(), "a");
    for (number, name) in
        [&b"x\n\xff.jsn"[..], b"a.jsn", b".divvy-x.tmp", b".json"].iter().enumerate()
    {
        let path = dir.path().join("claims").join(std::ffi::OsStr::from_bytes(name));
        for again in ["", "1"] {
            fs::write(&path, again).unwrap();
            let listed = journal.listing().unwrap();
            assert_eq!(listed, [Listed::Claim("a".to_owned()), Listed::Stray(path.clone())]);
            assert_eq!(journal.entries().unwrap().iter().filter(|entry| entry.is_err()).count(), 1);
            let kept = journal.set_aside(&path).unwrap();
            assert_eq!(fs::read_to_string(kept).unwrap(), again);
        }
        let kept = fs::read_dir(dir.path().join("damaged")).unwrap().count();
        assert_eq!(kept, 2 * (number + 1));
    }
}

#[test]
fn the_index_knows_who_may_hold_a_gpu_from_before_the_entry_until_after_it() {
    let dir = tempfile::tempdir().unwrap();
    let journal = Journal::new(dir.path());
    let work = journal.work("b", Call::default()).unwrap();
    let gpus = BTreeSet::from(["GPU-1".to_owned()]);
    let held = |gpus: Option<&BTreeSet<String>>| {
        work.claim("other").unwrap().held_by_others(gpus).unwrap()
    };
    assert_eq!(held(None), []);
    open(&work, "a");
    assert_eq!(held(None), entry("a").held().collect::<Vec<_>>());
    assert_eq!(held(Some(&gpus)), held(None));
    assert_eq!(held(Some(&BTreeSet::from(["GPU-2".to_owned()]))), []);
    assert_eq!(
        work.claim("a").unwrap().held_by_others(None).unwrap(),
        [],
        "its own is not others'"
    );
    work.claim("a").unwrap().remove(&entry("a")).unwrap();
    assert_eq!(held(None), []);
    // Neither a link nor a lock stays of it.
    for lies in ["index/b/gpus/GPU-1/a", "locks/claims/a", "index/b/names/default/c"] {
        assert!(fs::symlink_metadata(dir.path().join(lies)).is_err(), "{lies}");
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test's own input")]
fn another_boot_makes_its_own_index_out_of_the_entries() {
    let dir = tempfile::tempdir().unwrap();
    let journal = Journal::new(dir.path());
    open(&journal.work("b", Call::default()).unwrap(), "a");
    fs::write(dir.path().join("claims/x.json"), "{").unwrap();
    let work = journal.work("c", Call::default()).unwrap();
    assert!(!dir.path().join("index/b").exists());
    let mut other = work.claim("other").unwrap();
    assert_eq!(other.take_name("default", "c").unwrap().as_deref(), Some("a"));
    // One that cannot be read may hold whatever there is.
    let error = other.held_by_others(Some(&BTreeSet::from(["GPU-9".to_owned()]))).unwrap_err();
    assert!(error.to_string().contains("x.json"), "{error}");
    fs::remove_file(dir.path().join("claims/x.json")).unwrap();
    assert_eq!(other.held_by_others(None).unwrap().len(), 1);
}

#[test]
fn whoever_comes_as_the_index_is_made_waits_for_nobody_at_work() {
    for _ in 0..100 {
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal::new(dir.path());
        let until = Some(Instant::now() + Duration::from_secs(10));
        let all_at_work = Barrier::new(8);
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let work = journal.work("b", Call { until, ..Call::default() });
                    all_at_work.wait();
                    work.unwrap();
                });
            }
        });
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test's own input")]
fn what_lies_in_the_place_of_the_index_is_named_with_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let journal = Journal::new(dir.path());
    let says = |error: super::JournalError, path: &str| {
        let (text, path, index) =
            (error.to_string(), dir.path().join(path), dir.path().join("index"));
        assert_eq!(error.code(), "STATE-DIR", "{text}");
        let says = format!("{}: is not what the journal's index has", path.display());
        assert!(text.starts_with(&says), "{text}");
        assert!(text.contains(&format!("remove {}, it is made anew", index.display())), "{text}");
    };
    fs::write(dir.path().join("index"), "").unwrap();
    says(journal.work("b", Call::default()).unwrap_err(), "index");
    fs::remove_file(dir.path().join("index")).unwrap();
    // A file of a boot's name is made a folder.
    fs::create_dir(dir.path().join("index")).unwrap();
    fs::write(dir.path().join("index/b"), "").unwrap();
    let work = journal.work("b", Call::default()).unwrap();
    let gpus = dir.path().join("index/b/gpus");
    fs::create_dir_all(gpus.join("GPU-1/a")).unwrap();
    let mut claimed = work.claim("a").unwrap();
    says(claimed.write(&entry("a")).unwrap_err(), "index/b/gpus/GPU-1/a");
    fs::remove_dir_all(&gpus).unwrap();
    fs::create_dir_all(gpus.join("GPU-1")).unwrap();
    let (fifo, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU);
    rustix::fs::mknodat(rustix::fs::CWD, gpus.join("GPU-1/a"), fifo, mode, 0).unwrap();
    says(claimed.write(&entry("a")).unwrap_err(), "index/b/gpus/GPU-1/a");
    fs::remove_dir_all(gpus.join("GPU-1")).unwrap();
    fs::write(gpus.join("GPU-1"), "").unwrap();
    let of = BTreeSet::from(["GPU-1".to_owned()]);
    says(claimed.held_by_others(Some(&of)).unwrap_err(), "index/b/gpus/GPU-1");
    fs::create_dir_all(dir.path().join("index/b/names/default/c")).unwrap();
    says(claimed.take_name("default", "c").unwrap_err(), "index/b/names/default/c");
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test's own input")]
fn who_is_not_known_is_seen_as_their_specs_come_and_go() {
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let journal = Journal::new(dir.path());
    let work = journal.work("b", Call::default()).unwrap();
    let cdi = dir.path().join("cdi");
    let strangers = || Vec::from_iter(journal.strangers(&cdi, "gpu.divvy.dev").unwrap()).join(" ");
    let spec = |uid: &str| cdi.join(crate::emit::spec_name("gpu.divvy.dev", uid));
    assert_eq!(strangers(), "", "no directory yet");
    fs::create_dir(&cdi).unwrap();
    fs::write(spec("x"), "").unwrap();
    assert_eq!(strangers(), "x");
    fs::write(spec("y"), "").unwrap();
    fs::write(cdi.join("other.json"), "").unwrap();
    assert_eq!(strangers(), "x y");
    // As divvy writes them.
    fs::write(cdi.join(".z"), "").unwrap();
    fs::rename(cdi.join(".z"), spec("z")).unwrap();
    fs::remove_file(spec("x")).unwrap();
    assert_eq!(strangers(), "y z");
    open(&work, "y");
    assert_eq!(strangers(), "z", "y is ours");
    // More than the system keeps for a watcher: 16384 unless it is told otherwise.
    for _ in 0..6000 {
        fs::write(spec("many"), "").unwrap();
        fs::remove_file(spec("many")).unwrap();
    }
    fs::write(spec("many"), "").unwrap();
    assert_eq!(strangers(), "many z");
    fs::rename(&cdi, dir.path().join("away")).unwrap();
    fs::create_dir(&cdi).unwrap();
    assert_eq!(strangers(), "");
    fs::write(spec("w"), "").unwrap();
    assert_eq!(strangers(), "w");
}

#[test]
fn a_name_is_one_claims_from_before_its_entry() {
    let dir = tempfile::tempdir().unwrap();
    let journal = Journal::new(dir.path());
    let work = journal.work("b", Call::default()).unwrap();
    let (mut first, mut second) = (work.claim("1").unwrap(), work.claim("2").unwrap());
    assert_eq!(first.take_name("default", "c").unwrap(), None);
    assert_eq!(first.take_name("default", "c").unwrap(), None);
    assert_eq!(second.take_name("default", "c").unwrap().as_deref(), Some("1"));
    assert_eq!(second.take_name("other", "c").unwrap(), None);
    drop(first);
    assert_eq!(second.take_name("default", "c").unwrap(), None);
}

#[test]
fn claims_on_different_gpus_do_not_wait_for_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let journal = Journal::new(dir.path());
    let work = journal.work("b", Call::default()).unwrap();
    let set = |gpus: &[&str]| gpus.iter().map(|&gpu| gpu.to_owned()).collect::<BTreeSet<_>>();
    let mut one = work.claim("1").unwrap();
    one.lock_gpus(&set(&["GPU-1", "GPU-2"])).unwrap();
    assert!(work.attempt_claim("1").unwrap().is_none());
    let mut two = work.claim("2").unwrap();
    two.lock_gpus(&set(&["GPU-3"])).unwrap();
    assert!(!two.attempt_gpus(&set(&["GPU-2", "GPU-3"])).unwrap());
    one.lock_gpus(&set(&["GPU-1"])).unwrap();
    assert!(two.attempt_gpus(&set(&["GPU-2", "GPU-3"])).unwrap());
    assert!(journal.alone().unwrap().is_none());
    drop((one, two));
    drop(work);
    assert!(journal.alone().unwrap().is_some());
}
