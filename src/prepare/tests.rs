//! Every call on the GPUs goes wrong once: what is left is the claim, whole, or nothing.

mod declared;
mod foreign;
mod mig;
mod random;

use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use divvy_hook::record::{Consumer, Origin, RunDir};

use super::{Node, PrepareError, Reconciled};
use crate::{
    claim::{Claim, Manifests},
    gpu::{
        ComputeMode, Files, Gpu, GpuError, Gpus, Interval, Inventory, MadePartition, Partition,
        PciAddress, Placement, sim::Sim,
    },
    journal::{Call, Journal, Stage},
    pool::Pool,
};

const NODE: &str =
    "node = \"n\"\n[[gpu]]\nmodel = \"H100-80GB\"\n[[gpu]]\nmodel = \"H100-80GB\"\nmig = true\n";

/// Two partitions and a time-sliced GPU: every kind of step, one of them twice.
const CLAIM: &str = "
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: c}
spec:
  devices:
    requests:
    - {name: a, exactly: {deviceClassName: mig.gpu.divvy.dev, count: 2}}
    - {name: b, exactly: {deviceClassName: gpu.divvy.dev}}
    config:
    - requests: [b]
      opaque:
        driver: gpu.divvy.dev
        parameters: {apiVersion: gpu.divvy.dev/v1alpha1, kind: GpuConfig, sharing: {timeSlicing: {interval: Long}}}
";

/// A simulated node whose call number `fails` goes wrong, before or after it took effect.
#[derive(Debug)]
struct Faulty {
    sim: Sim,
    calls: AtomicUsize,
    fails: usize,
    after: bool,
    how: How,
    /// UUID of what somebody else made.
    foreign: Mutex<Option<String>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    Error,
    /// The process ends there, as far as anybody can see.
    Crash,
    /// Where it makes a partition, somebody else makes the same a moment before.
    Raced,
}

struct World {
    dir: tempfile::TempDir,
    journal: Journal,
    run: RunDir,
}

// === impl Faulty ===

impl Faulty {
    fn new(world: &World, fails: usize, after: bool) -> Self {
        let (sim, calls, foreign) = (world.sim(), AtomicUsize::new(0), Mutex::new(None));
        Self { sim, calls, fails, after, how: How::Error, foreign }
    }

    fn crashing(world: &World, fails: usize, after: bool) -> Self {
        Self { how: How::Crash, ..Self::new(world, fails, after) }
    }

    fn raced(world: &World, fails: usize) -> Self {
        Self { how: How::Raced, ..Self::new(world, fails, false) }
    }

    fn call<T>(&self, call: impl FnOnce(&Sim) -> Result<T, GpuError>) -> Result<T, GpuError> {
        self.calls.fetch_add(1, Relaxed);
        if self.calls.load(Relaxed) != self.fails || self.how == How::Raced {
            return call(&self.sim);
        }
        if self.after {
            call(&self.sim)?;
        }
        match self.how {
            How::Error => {
                Err(GpuError::NoPartition { gpu: "?".to_owned(), partition: "?".to_owned() })
            }
            How::Crash => std::panic::resume_unwind(Box::new("crash")),
            How::Raced => unreachable!(),
        }
    }
}

impl Gpus for Faulty {
    fn address(&self) -> &str {
        self.sim.address()
    }

    fn inventory_of(&self, only: Option<&BTreeSet<PciAddress>>) -> Result<Inventory, GpuError> {
        self.call(|sim| sim.inventory_of(only))
    }

    fn create_partition(&self, gpu: &str, p: &str, at: Placement) -> Result<Partition, GpuError> {
        if self.how == How::Raced && self.calls.load(Relaxed) + 1 == self.fails {
            let made = self.sim.create_partition(gpu, p, at);
            *self.foreign.lock().unwrap() = made.ok().map(|partition| partition.uuid);
        }
        // By contract nothing is left when making fails, so it never fails after the fact.
        let before = !self.after || self.calls.load(Relaxed) + 1 != self.fails;
        if before || self.how == How::Crash {
            return self.call(|sim| sim.create_partition(gpu, p, at));
        }
        self.calls.fetch_add(1, Relaxed);
        self.sim.create_partition(gpu, p, at)
    }

    fn destroy_partition(&self, made: &MadePartition) -> Result<(), GpuError> {
        self.call(|sim| sim.destroy_partition(made))
    }

    fn time_slice(&self, gpu: &str) -> Result<Interval, GpuError> {
        self.call(|sim| sim.time_slice(gpu))
    }

    fn set_time_slice(&self, gpu: &str, interval: Interval) -> Result<(), GpuError> {
        self.call(|sim| sim.set_time_slice(gpu, interval))
    }

    fn set_compute_mode(&self, gpu: &str, mode: ComputeMode) -> Result<(), GpuError> {
        self.call(|sim| sim.set_compute_mode(gpu, mode))
    }

    fn set_mig(&self, gpu: &str, on: bool) -> Result<(), GpuError> {
        self.call(|sim| sim.set_mig(gpu, on))
    }

    fn mps_control(&self) -> Result<crate::program::Program, GpuError> {
        self.sim.mps_control()
    }

    fn device_files(&self, gpu: &Gpu, partition: Option<&str>) -> Result<Files, GpuError> {
        self.call(|sim| sim.device_files(gpu, partition))
    }

    fn display_files(&self, gpu: &Gpu) -> Result<Files, GpuError> {
        self.call(|sim| sim.display_files(gpu))
    }

    fn driver_files(&self) -> Result<Files, GpuError> {
        self.call(Sim::driver_files)
    }
}

// === impl World ===

impl World {
    #[expect(clippy::disallowed_methods, reason = "a test's own input")]
    fn new() -> Self {
        // In memory where that can be had: thousands of syncs are not what is tested.
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        fs::write(dir.path().join("node.toml"), NODE).unwrap();
        let (journal, run) =
            (Journal::new(&dir.path().join("state")), RunDir::new(dir.path().join("run")));
        Self { dir, journal, run }
    }

    fn sim(&self) -> Sim {
        Sim::open(&self.dir.path().join("node.toml")).unwrap()
    }

    fn with<T>(&self, gpus: &dyn Gpus, act: impl FnOnce(&Node<'_>) -> T) -> T {
        let cdi_dir = self.dir.path().join("cdi");
        let (journal, run) = (&self.journal, &self.run);
        let (hook, cgroups) = (Path::new(crate::emit::HOOK), Path::new("/"));
        let pool = Pool::Gpus(gpus);
        act(&Node {
            pool,
            journal,
            run,
            cdi_dir: &cdi_dir,
            hook,
            cgroups,
            boot: "boot",
            call: Call::default(),
            metadata: false,
        })
    }

    /// What was made on the GPUs is gone, and so is `/run`. New partitions have new UUIDs.
    fn reboot(&self) {
        let sim = self.sim();
        for gpu in sim.inventory().unwrap().gpus {
            sim.set_time_slice(&gpu.uuid, Interval::Default).unwrap();
            for there in gpu.partitions() {
                let (gpu, profile) = (gpu.uuid.clone(), there.profile.clone());
                let (placement, uuid) = (there.placement, Some(there.uuid.clone()));
                sim.destroy_partition(&MadePartition { gpu, profile, placement, uuid }).unwrap();
            }
        }
        let run = self.dir.path().join("run");
        if run.exists() {
            fs::remove_dir_all(run).unwrap();
        }
    }

    /// Nothing of any claim is on the machine.
    #[track_caller]
    fn assert_empty(&self, when: &str) {
        for gpu in self.sim().inventory().unwrap().gpus {
            assert_eq!(gpu.partitions(), [], "{when}");
            assert_eq!(self.sim().time_slice(&gpu.uuid).unwrap(), Interval::Default, "{when}");
        }
        assert_eq!(self.journal.entries().unwrap().len(), 0, "{when}");
        assert_eq!(self.run.claims().unwrap().len(), 0, "{when}");
        let specs = fs::read_dir(self.dir.path().join("cdi")).map_or(0, Iterator::count);
        assert_eq!(specs, 0, "{when}");
    }

    /// The claim is there, whole.
    #[track_caller]
    fn assert_whole(&self, when: &str) {
        let inventory = self.sim().inventory().unwrap();
        let time_slice = self.sim().time_slice(&inventory.gpus[0].uuid).unwrap();
        assert_eq!(time_slice, Interval::Long, "{when}");
        assert_eq!(inventory.gpus[1].partitions().len(), 2, "{when}");
        let record = self.run.local_claim("default", "c").unwrap().unwrap();
        assert_eq!(record.specs.len(), 3, "{when}");
        for spec in record.specs.values() {
            let bytes = fs::read(&spec.path).unwrap();
            assert_eq!(divvy_hook::record::digest(&bytes), spec.digest, "{when}");
        }
        let entry = self.journal.entry(&record.uid).unwrap().unwrap();
        assert_eq!(entry.stage, Stage::Done, "{when}");
        for made in inventory.gpus[1].partitions() {
            let spec = record.specs.values().next().unwrap();
            assert!(fs::read_to_string(&spec.path).unwrap().contains(&made.uuid), "{when}");
        }
    }
}

fn claim() -> Claim {
    Manifests::parse(Path::new("c.yaml"), CLAIM.as_bytes(), "gpu.divvy.dev")
        .unwrap()
        .claims
        .remove(0)
}

#[test]
fn a_prepare_whose_any_call_fails_leaves_nothing() {
    for after in [false, true] {
        for fails in 1.. {
            let world = World::new();
            let gpus = Faulty::new(&world, fails, after);
            let prepared = world.with(&gpus, |node| node.prepare(&claim(), &[], Origin::Local));
            if gpus.calls.load(Relaxed) < fails {
                assert!(fails > 8, "the claim makes more calls than that");
                break;
            }
            let when = format!("call {fails} failed (after: {after})");
            match prepared {
                Ok(_) => world.assert_whole(&when),
                Err(_) => world.assert_empty(&when),
            }
            world.with(&world.sim(), |node| node.prepare(&claim(), &[], Origin::Local)).unwrap();
            world.assert_whole(&when);
        }
    }
}

#[test]
fn an_unprepare_whose_any_call_fails_goes_on_and_can_be_repeated() {
    for fails in 1..=3 {
        let world = World::new();
        let claim = claim();
        world.with(&world.sim(), |node| node.prepare(&claim, &[], Origin::Local)).unwrap();
        let gpus = Faulty::new(&world, fails, false);
        let error = world.with(&gpus, |node| node.unprepare(&claim.uid)).unwrap_err();
        let PrepareError::Left { left, .. } = &error else { panic!("{error}") };
        assert_eq!(left.len(), 1, "{error}");
        assert_eq!(gpus.calls.load(Relaxed), 3, "it went on");
        assert!(world.run.claims().unwrap().is_empty());
        // The next round of the daemon ends it.
        let found = world.with(&world.sim(), |node| node.reconcile()).unwrap();
        assert!(matches!(found.as_slice(), [Reconciled::Ended(_)]), "{found:?}");
        world.assert_empty("ended by the next round");
    }
}

#[test]
fn bringing_back_whose_any_call_fails_keeps_the_claim_and_works_the_next_time() {
    for fails in 1.. {
        let world = World::new();
        world.with(&world.sim(), |node| node.prepare(&claim(), &[], Origin::Local)).unwrap();
        world.reboot();
        let gpus = Faulty::new(&world, fails, false);
        let found = world.with(&gpus, |node| node.reconcile()).unwrap();
        if gpus.calls.load(Relaxed) < fails {
            assert!(fails > 7, "bringing back makes more calls than that");
            break;
        }
        assert!(matches!(found.as_slice(), [Reconciled::Failed(_)]), "call {fails}: {found:?}");
        let found = world.with(&world.sim(), |node| node.reconcile()).unwrap();
        assert!(matches!(found.as_slice(), [Reconciled::InStep { restored: true, .. }]));
        world.assert_whole(&format!("call {fails} failed"));
        world.with(&world.sim(), |node| node.unprepare(&claim().uid)).unwrap();
        world.assert_empty("ended");
    }
}

#[test]
fn a_claim_of_the_api_is_not_reachable_by_name() {
    let world = World::new();
    world.with(&world.sim(), |node| node.prepare(&claim(), &[], Origin::Api)).unwrap();
    assert!(world.run.local_claim("default", "c").unwrap().is_none());
    assert!(world.run.claim(&claim().uid).unwrap().is_some());
    // Nor is it taken over by somebody who knows its UID.
    let local = world.with(&world.sim(), |node| node.prepare(&claim(), &[], Origin::Local));
    assert_eq!(local.unwrap_err().code(), "CLAIM-PREPARED");
    assert!(world.run.local_claim("default", "c").unwrap().is_none());
}

#[test]
fn a_directory_that_others_can_write_is_refused_before_anything_is_done() {
    use std::os::unix::fs::PermissionsExt;
    for name in ["cdi", "run", "state/claims"] {
        let world = World::new();
        let dir = world.dir.path().join(name);
        fs::create_dir_all(&dir).unwrap();
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o777)).unwrap();
        let prepared = world.with(&world.sim(), |node| node.prepare(&claim(), &[], Origin::Local));
        assert_eq!(prepared.unwrap_err().code(), "UNTRUSTED", "{name}");
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).unwrap();
        world.assert_empty(name);
    }
}

/// Runs `act` on a node that crashes at call `fails`; false when it makes fewer calls.
fn crash(world: &World, fails: usize, after: bool, act: impl FnOnce(&Node<'_>)) -> bool {
    let gpus = Faulty::crashing(world, fails, after);
    let act = std::panic::AssertUnwindSafe(|| world.with(&gpus, act));
    let crashed = std::panic::catch_unwind(act).is_err();
    assert_eq!(crashed, gpus.calls.load(Relaxed) == fails);
    crashed
}

#[test]
fn a_crash_at_any_call_of_a_prepare_is_ended_by_the_next_round() {
    for after in [false, true] {
        for fails in 1.. {
            let world = World::new();
            let prepare = |node: &Node<'_>| drop(node.prepare(&claim(), &[], Origin::Local));
            if !crash(&world, fails, after, prepare) {
                assert!(fails > 8, "the claim makes more calls than that");
                break;
            }
            world.with(&world.sim(), |node| node.reconcile()).unwrap();
            world.assert_empty(&format!("crashed at call {fails} (after: {after})"));
        }
    }
}

#[test]
fn a_crash_at_any_call_of_an_unprepare_is_gone_on_with() {
    for after in [false, true] {
        for fails in 1..=3 {
            let world = World::new();
            world.with(&world.sim(), |node| node.prepare(&claim(), &[], Origin::Local)).unwrap();
            let unprepare = |node: &Node<'_>| drop(node.unprepare(&claim().uid));
            assert!(crash(&world, fails, after, unprepare));
            // Whoever comes next: the same command, or another claim's.
            assert!(world.with(&world.sim(), |node| node.unprepare(&claim().uid)).unwrap());
            world.assert_empty(&format!("crashed at call {fails} (after: {after})"));
        }
    }
}

#[test]
fn a_crash_while_bringing_back_loses_nothing() {
    for after in [false, true] {
        for fails in 1.. {
            let world = World::new();
            world.with(&world.sim(), |node| node.prepare(&claim(), &[], Origin::Local)).unwrap();
            world.reboot();
            if !crash(&world, fails, after, |node| drop(node.reconcile())) {
                assert!(fails > 7, "bringing back makes more calls than that");
                break;
            }
            let when = format!("crashed at call {fails} (after: {after})");
            let found = world.with(&world.sim(), |node| node.reconcile()).unwrap();
            assert!(matches!(found.as_slice(), [Reconciled::InStep { .. }]), "{when}: {found:?}");
            world.assert_whole(&when);
            world.with(&world.sim(), |node| node.unprepare(&claim().uid)).unwrap();
            world.assert_empty(&when);
        }
    }
}

#[test]
fn consumers_are_recorded_as_they_come_and_go() {
    let world = World::new();
    let consumer = |name: &str| Consumer {
        kind: "Pod".to_owned(),
        uid: format!("uid-{name}"),
        name: name.to_owned(),
    };
    let mut claim = claim();
    for consumers in [vec![consumer("a")], vec![consumer("a"), consumer("b")], vec![]] {
        claim.consumers = consumers;
        world.with(&world.sim(), |node| node.prepare(&claim, &[], Origin::Api)).unwrap();
        let record = world.run.claim(&claim.uid).unwrap().unwrap();
        assert_eq!(record.consumers, claim.consumers);
    }
}
