//! Partitions that somebody else made, and the switch of MIG mode.

use super::*;
use crate::gpu::Policy;

fn claim_of(name: &str, device: &str) -> Claim {
    let text = format!(
        "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {{name: {name}}}\n\
         spec: {{devices: {{requests: [{{name: r, exactly: {{deviceClassName: c}}}}]}}}}\n\
         status: {{allocation: {{devices: {{results: [{{request: r, driver: gpu.divvy.dev, \
         pool: n, device: {device}}}]}}}}}}\n"
    );
    Manifests::parse(Path::new("c.yaml"), text.as_bytes(), "gpu.divvy.dev")
        .unwrap()
        .claims
        .remove(0)
}

const PART: &str = "gpu-0000-43-00-1g10gb-2";

impl World {
    fn allowing(&self, switch: bool, adopt: bool) -> Sim {
        self.sim().allowing(Policy { switch_mig: switch, adopt_mig: adopt, shares: false })
    }

    /// Somebody else makes the partition that [`PART`] names.
    fn make_part(&self) -> MadePartition {
        let gpu = self.sim().inventory().unwrap().gpus[1].uuid.clone();
        let (profile, placement) = ("1g.10gb".to_owned(), Placement { start: 2, size: 1 });
        let made = self.sim().create_partition(&gpu, &profile, placement).unwrap();
        MadePartition { gpu, profile, placement, uuid: Some(made.uuid) }
    }

    fn prepare(&self, gpus: &Sim, claim: &Claim) -> Result<super::super::Prepared, PrepareError> {
        self.with(gpus, |node| node.prepare(claim, &[], Origin::Local))
    }

    fn end(&self, claim: &Claim) {
        assert!(self.with(&self.sim(), |node| node.unprepare(&claim.uid)).unwrap());
    }

    fn specs(&self) -> String {
        let specs = fs::read_dir(self.dir.path().join("cdi")).unwrap();
        specs.map(|spec| fs::read_to_string(spec.unwrap().path()).unwrap()).collect()
    }

    fn parts(&self, gpu: usize) -> Vec<String> {
        let gpus = self.sim().inventory().unwrap().gpus;
        gpus[gpu].partitions().iter().map(|partition| partition.uuid.clone()).collect()
    }

    fn in_mig_mode(&self, gpu: usize) -> bool {
        matches!(self.sim().inventory().unwrap().gpus[gpu].mig, crate::gpu::Mig::On(_))
    }
}

#[test]
fn somebody_elses_partition_is_given_and_stays() {
    let (world, claim) = (World::new(), claim_of("c", PART));
    let uuid = world.make_part().uuid.unwrap();
    world.prepare(&world.sim(), &claim).unwrap();
    assert!(world.specs().contains(&uuid));
    let found = world.with(&world.sim(), |node| node.reconcile()).unwrap();
    assert!(matches!(found.as_slice(), [Reconciled::InStep { restored: false, .. }]), "{found:?}");
    world.end(&claim);
    assert_eq!(world.parts(1), [uuid]);
    assert_eq!(world.specs(), "");
}

#[test]
fn an_adopted_partition_goes_with_its_claim() {
    let (world, claim) = (World::new(), claim_of("c", PART));
    let uuid = world.make_part().uuid.unwrap();
    world.prepare(&world.allowing(false, true), &claim).unwrap();
    assert!(world.specs().contains(&uuid));
    world.end(&claim);
    world.assert_empty("ended");
}

#[test]
fn what_somebody_made_anew_at_its_place_is_found_and_what_is_gone_is_not_given() {
    let (world, claim) = (World::new(), claim_of("c", PART));
    let made = world.make_part();
    world.prepare(&world.sim(), &claim).unwrap();
    world.sim().destroy_partition(&made).unwrap();
    for _ in 0..2 {
        let found = world.with(&world.sim(), |node| node.reconcile()).unwrap();
        let [Reconciled::Failed(error)] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!(error.code(), "NO-DEVICE", "{error}");
        assert_eq!(world.specs(), "");
    }
    let again = world.make_part().uuid.unwrap();
    let found = world.with(&world.sim(), |node| node.reconcile()).unwrap();
    assert!(matches!(found.as_slice(), [Reconciled::InStep { restored: true, .. }]), "{found:?}");
    assert!(world.specs().contains(&again));
    world.end(&claim);
    assert_eq!(world.parts(1), [again]);
}

#[test]
fn mig_mode_is_switched_for_the_first_claim_and_back_after_the_last() {
    let claims =
        ["0", "1"].map(|at| claim_of(&format!("c{at}"), &format!("gpu-0000-1b-00-1g10gb-{at}")));
    // Whichever ends first.
    for last in [0, 1] {
        let world = World::new();
        assert_eq!(world.prepare(&world.sim(), &claims[0]).unwrap_err().code(), "NO-DEVICE");
        for claim in &claims {
            world.prepare(&world.allowing(true, false), claim).unwrap();
            assert!(world.in_mig_mode(0));
        }
        world.end(&claims[1 - last]);
        assert!(world.in_mig_mode(0), "the other is still there");
        world.end(&claims[last]);
        assert!(!world.in_mig_mode(0));
        world.assert_empty("ended");
    }
}

#[test]
fn a_switch_that_any_call_or_crash_interrupts_is_undone() {
    let claim = claim_of("c", "gpu-0000-1b-00-1g10gb-0");
    for how in [How::Error, How::Crash] {
        for after in [false, true] {
            for fails in 1.. {
                let world = World::new();
                let sim = world.allowing(true, false);
                let gpus = Faulty { sim, how, ..Faulty::new(&world, fails, after) };
                let act = || world.with(&gpus, |node| node.prepare(&claim, &[], Origin::Local));
                let prepared = std::panic::catch_unwind(std::panic::AssertUnwindSafe(act));
                if gpus.calls.load(Relaxed) < fails {
                    assert!(fails > 4, "the claim makes more calls than that");
                    break;
                }
                world.with(&world.sim(), |node| node.reconcile()).unwrap();
                if matches!(prepared, Ok(Ok(_))) {
                    world.end(&claim);
                }
                world.assert_empty(&format!("{how:?} {fails} {after}"));
                assert!(!world.in_mig_mode(0), "{how:?} {fails} {after}");
            }
        }
    }
}
