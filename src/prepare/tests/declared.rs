//! Declared devices are prepared as GPUs are, but for steps: whatever a crash leaves is ended or brought
//! back.

use super::*;
use crate::{declared::DeviceFile, emit};

const DRIVER: &str = "lab.example.com";

const FILE: &str = "
apiVersion: divvy.dev/v1alpha1
kind: HostDevices
driver: lab.example.com
devices:
- name: card
  containerEdits: {deviceNodes: [{path: /dev/card, hostPath: /dev/null}], env: [CARD=a]}
- name: lamp
- name: pool
  capacity: {slots: {value: '4'}}
  allowMultipleAllocations: true
";

/// A folder in the place of a host, with a file of devices.
struct Lab {
    dir: tempfile::TempDir,
    journal: Journal,
    run: RunDir,
    file: DeviceFile,
}

impl Lab {
    #[expect(clippy::disallowed_methods, reason = "a test's own input")]
    fn new() -> Self {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let path = dir.path().join("d.yaml");
        fs::write(&path, FILE).unwrap();
        let file = DeviceFile::open(&path, "n".to_owned()).unwrap();
        let journal = Journal::of_driver(&dir.path().join("state"), DRIVER);
        let run = RunDir::new(dir.path().join("run")).of_driver(DRIVER);
        Self { dir, journal, run, file }
    }

    #[expect(clippy::disallowed_methods, reason = "a test's own input")]
    fn declare(&self, text: &str) {
        fs::write(self.file.path(), text).unwrap();
        self.file.look();
    }

    fn with<T>(&self, boot: &str, act: impl FnOnce(&Node<'_>) -> T) -> T {
        let cdi_dir = self.dir.path().join("cdi");
        let (journal, run, pool) = (&self.journal, &self.run, Pool::Declared(&self.file));
        let (hook, cgroups) = (Path::new(emit::HOOK), Path::new("/"));
        act(&Node {
            pool,
            journal,
            run,
            cdi_dir: &cdi_dir,
            hook,
            cgroups,
            boot,
            metadata: true,
            call: Call::default(),
        })
    }

    fn prepare(&self, claim: &Claim) -> Result<super::super::Prepared, PrepareError> {
        self.with("boot", |node| node.prepare(claim, &[], Origin::Api))
    }

    fn spec(&self, uid: &str) -> std::path::PathBuf {
        self.dir.path().join("cdi").join(emit::spec_name(DRIVER, uid))
    }

    fn entry(&self, uid: &str) -> std::path::PathBuf {
        self.journal.path().join(format!("{uid}.json"))
    }

    #[track_caller]
    fn assert_empty(&self) {
        assert_eq!(self.journal.entries().unwrap().len(), 0);
        assert_eq!(self.run.claims().unwrap().len(), 0);
        assert_eq!(fs::read_dir(self.dir.path().join("cdi")).map_or(0, Iterator::count), 0);
    }

    #[track_caller]
    fn assert_whole(&self, uid: &str) {
        let record = self.run.claim(uid).unwrap().unwrap();
        for spec in record.specs.values() {
            let bytes = fs::read(&spec.path).unwrap();
            assert_eq!(divvy_hook::record::digest(&bytes), spec.digest);
        }
        assert_eq!(self.journal.entry(uid).unwrap().unwrap().stage, Stage::Done);
    }
}

/// A claim that is allocated these devices, each a request; `more` goes to each.
fn claim_of(name: &str, devices: &[&str], more: &str) -> Claim {
    let results: Vec<String> = devices
        .iter()
        .map(|device| format!("{{request: r, driver: {DRIVER}, pool: n, device: {device}{more}}}"))
        .collect();
    let text = format!(
        "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {{name: {name}, uid: {name}}}\nspec: \
         {{devices: {{requests: [{{name: r, exactly: {{deviceClassName: c, count: 9}}}}]}}}}\nstatus: \
         {{allocation: {{devices: {{results: [{{request: r, driver: gpu.divvy.dev, pool: n, device: \
         gpu-0000-1b-00}}, {}]}}}}}}\n",
        results.join(", ")
    );
    Manifests::parse(Path::new("c.yaml"), text.as_bytes(), DRIVER).unwrap().claims.remove(0)
}

#[test]
fn it_gets_what_is_declared_and_nothing_of_another_drivers() {
    let lab = Lab::new();
    let prepared = lab.prepare(&claim_of("a", &["card", "lamp"], "")).unwrap();
    let names: Vec<&str> = prepared.entry.devices.iter().map(|one| one.device.as_str()).collect();
    assert_eq!((names, prepared.fresh), (vec!["card", "lamp"], true));
    lab.assert_whole("a");
    let spec = fs::read_to_string(lab.spec("a")).unwrap();
    for part in [
        "\"kind\":\"lab.example.com/claim\"",
        "\"name\":\"a-card\"",
        "\"hostPath\":\"/dev/null\"",
        "\"CARD=a\"",
        "DIVVY_LAB_EXAMPLE_COM_CARD=card",
        "DIVVY_LAB_EXAMPLE_COM_LAMP=lamp",
    ] {
        assert!(spec.contains(part), "{part} is not in {spec}");
    }
    let again = lab.prepare(&claim_of("a", &["card", "lamp"], "")).unwrap();
    assert!(!again.fresh);
    let entry = fs::read_to_string(lab.entry("a")).unwrap();
    assert!(entry.contains("\"driver\": \"lab.example.com\""), "{entry}");
    assert!(lab.with("boot", |node| node.unprepare("a")).unwrap());
    assert!(!lab.with("boot", |node| node.unprepare("a")).unwrap());
    lab.assert_empty();
}

#[test]
fn what_one_claim_has_no_other_gets() {
    let lab = Lab::new();
    lab.prepare(&claim_of("a", &["card"], "")).unwrap();
    let error = lab.prepare(&claim_of("b", &["lamp", "card"], "")).unwrap_err();
    assert_eq!(error.to_string(), "claim default/b: card is held by claim default/a");
    assert_eq!(error.code(), "OVERLAP");
    let twice = lab.prepare(&claim_of("b", &["lamp", "lamp"], "")).unwrap_err();
    assert!(twice.to_string().contains("is given to request r of the claim already"), "{twice}");
    // Looking on takes nothing away.
    lab.prepare(&claim_of("b", &["card"], ", adminAccess: true")).unwrap();
    let gone = lab.prepare(&claim_of("c", &["none"], "")).unwrap_err();
    assert_eq!(gone.code(), "NO-DEVICE");
    assert!(gone.to_string().contains("no device \"none\"; it has card, lamp, pool"), "{gone}");
    let nothing = lab.prepare(&claim_of("c", &[], "")).unwrap_err();
    assert!(nothing.to_string().ends_with("no device of driver lab.example.com"), "{nothing}");
}

#[test]
fn shares_are_given_up_to_the_capacity() {
    let lab = Lab::new();
    let share = |name: &str, slots: u32| {
        let id = format!("5a1f0000-0000-4000-8000-00000000000{name}");
        claim_of(
            name,
            &["pool"],
            &format!(", shareID: {id}, consumedCapacity: {{slots: '{slots}'}}"),
        )
    };
    lab.prepare(&share("a", 2)).unwrap();
    lab.prepare(&share("b", 1)).unwrap();
    let error = lab.prepare(&share("c", 2)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "claim default/c: pool has 1 of slots left beside other shares, and 2 is consumed of it"
    );
    assert_eq!(lab.prepare(&claim_of("d", &["pool"], "")).unwrap_err().code(), "OVERLAP");
    lab.with("boot", |node| node.unprepare("b")).unwrap();
    lab.prepare(&share("c", 2)).unwrap();
    let spec = fs::read_to_string(lab.spec("c")).unwrap();
    assert!(spec.contains("\"c-pool-5a1f0000\""), "{spec}");
}

#[test]
fn what_is_not_on_the_host_fails_before_a_container_starts() {
    let lab = Lab::new();
    lab.declare(&FILE.replace("/dev/null", "/dev/no-such-card"));
    let error = lab.prepare(&claim_of("a", &["card"], "")).unwrap_err();
    assert_eq!(error.code(), "DEVICE-GONE");
    let said = divvy_cdi::problem::chain(&error);
    assert!(said.contains("card: device node /dev/no-such-card is not there"), "{said}");
    lab.assert_empty();
}

#[test]
fn a_reboot_loses_nothing() {
    let lab = Lab::new();
    lab.prepare(&claim_of("a", &["card"], "")).unwrap();
    let before = fs::read(lab.spec("a")).unwrap();
    for dir in ["run", "cdi"] {
        fs::remove_dir_all(lab.dir.path().join(dir)).unwrap();
    }
    let found = lab.with("next", |node| node.reconcile()).unwrap();
    assert!(matches!(found.as_slice(), [Reconciled::InStep { restored: true, .. }]), "{found:?}");
    assert_eq!(lab.run.claim("a").unwrap().unwrap().boot, "next");
    assert_eq!(fs::read(lab.spec("a")).unwrap(), before);
    let found = lab.with("next", |node| node.reconcile()).unwrap();
    assert!(matches!(found.as_slice(), [Reconciled::InStep { restored: false, .. }]), "{found:?}");
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test's own input")]
fn whatever_a_crash_leaves_is_ended_or_brought_back() {
    let lab = Lab::new();
    let claim = claim_of("a", &["card"], "");
    lab.prepare(&claim).unwrap();
    let whole = fs::read_to_string(lab.entry("a")).unwrap();
    let started = whole.replace("\"stage\": \"done\"", "\"stage\": \"started\"");
    assert_ne!(started, whole);
    // After each of the writes: entry; spec; record.
    for (spec, record) in [(false, false), (true, false), (true, true)] {
        for next_prepares in [false, true] {
            lab.prepare(&claim).unwrap();
            fs::write(lab.entry("a"), &started).unwrap();
            if !record {
                lab.run.remove_claim("a").unwrap();
            }
            if !spec {
                fs::remove_file(lab.spec("a")).unwrap();
            }
            match next_prepares {
                true => assert!(lab.prepare(&claim).unwrap().fresh),
                false => {
                    let found = lab.with("boot", |node| node.reconcile()).unwrap();
                    assert!(matches!(found.as_slice(), [Reconciled::Ended(_)]), "{found:?}");
                    lab.assert_empty();
                }
            }
        }
    }
    lab.assert_whole("a");
    // An entry that is damaged is made anew from the record.
    fs::write(lab.entry("a"), "{").unwrap();
    let found = lab.with("boot", |node| node.reconcile()).unwrap();
    assert!(matches!(found.as_slice(), [Reconciled::Damaged { entry: Some(_), .. }]), "{found:?}");
    lab.assert_whole("a");
    // Without it nothing is left.
    fs::write(lab.entry("a"), "{").unwrap();
    lab.run.remove_claim("a").unwrap();
    lab.with("boot", |node| node.reconcile()).unwrap();
    lab.assert_empty();
}

#[test]
fn what_is_declared_no_more_stays_its_claims_as_long_as_it_works() {
    let lab = Lab::new();
    lab.prepare(&claim_of("a", &["card"], "")).unwrap();
    let without = FILE.replace("- name: card\n", "- name: other\n");
    lab.declare(&without);
    let found = lab.with("boot", |node| node.reconcile()).unwrap();
    assert!(matches!(found.as_slice(), [Reconciled::InStep { restored: false, .. }]), "{found:?}");
    lab.assert_whole("a");
    assert_eq!(lab.prepare(&claim_of("b", &["card"], "")).unwrap_err().code(), "NO-DEVICE");
    // Nothing tells any more what it was.
    fs::remove_file(lab.spec("a")).unwrap();
    let found = lab.with("boot", |node| node.reconcile()).unwrap();
    let [Reconciled::Failed(error)] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!(error.code(), "NO-DEVICE");
    lab.declare(FILE);
    lab.with("boot", |node| node.reconcile()).unwrap();
    lab.assert_whole("a");
}

#[test]
fn a_claim_of_another_state_directory_is_seen_by_its_spec() {
    let (lab, mut other) = (Lab::new(), Lab::new());
    lab.prepare(&claim_of("a", &["card"], "")).unwrap();
    other.journal = Journal::of_driver(&lab.dir.path().join("elsewhere"), DRIVER);
    other.run = lab.run.clone();
    let there = |other: &Lab| {
        let cdi_dir = lab.dir.path().join("cdi");
        other.with("boot", |node| {
            let node = Node { cdi_dir: &cdi_dir, ..*node };
            node.prepare(&claim_of("b", &["card"], ""), &[], Origin::Api).unwrap_err()
        })
    };
    let with_record = there(&other);
    assert_eq!(with_record.code(), "OVERLAP", "{with_record}");
    lab.run.remove_claim("a").unwrap();
    let without = there(&other);
    assert!(without.to_string().contains("card is held by claim a ("), "{without}");
}

#[test]
fn by_hand_a_name_is_one_drivers() {
    let lab = Lab::new();
    let sim = World::new();
    lab.with("boot", |node| node.prepare(&claim_of("c", &["card"], ""), &[], Origin::Local))
        .unwrap();
    let run = RunDir::new(lab.run.path());
    assert_eq!(run.local_claim("default", "c").unwrap().unwrap().driver.name, DRIVER);
    let gpus = sim.sim();
    let cdi_dir = lab.dir.path().join("cdi");
    let error = sim.with(&gpus, |node| {
        Node { run: &run, cdi_dir: &cdi_dir, ..*node }.prepare(&claim(), &[], Origin::Local)
    });
    let error = error.unwrap_err();
    assert_eq!(error.code(), "CLAIM-PREPARED");
    assert!(error.to_string().contains("on devices of driver lab.example.com"), "{error}");
    lab.with("boot", |node| node.unprepare("c")).unwrap();
    assert!(run.local_claim("default", "c").unwrap().is_none());
}
