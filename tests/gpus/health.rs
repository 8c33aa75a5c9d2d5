//! The health of GPUs: what NVML tells, what it is asked, and what it does to those who ask.

use std::time::{Duration, Instant};

use divvy::gpu::{Checkup, Event, EventKind, FaultKind, Gpus, Recovery, Vitals};
use divvy_fake_nvml::{Health, Rule};

use super::{
    Outcome, Test, named,
    support::{self, Fake, Gpu, eventually, fake, fake_with},
};

const GPUS: &[Gpu] = &[("H100-80GB", true), ("A100-40GB", false), ("T4-16GB", false)];
const UNKNOWN: u32 = 999;

pub(crate) fn tests() -> Vec<Test> {
    named(
        "health",
        &[
            ("XIDs and changes of MIG mode are told, of the GPU that they are of", told),
            ("what the driver knows of a GPU is asked of each", asked),
            ("what one call does not say is not known, and all else is", lacking),
            ("a GPU that cannot be watched is said, and the others are watched", unwatched),
            ("a GPU that hangs keeps no other from being watched and asked", hangs),
            ("a lost GPU is no other's trouble, and is found when it is back", lost),
            ("another load of the driver is known, and watched", reload),
            ("a session ends before another begins, watched or not", sessions),
            ("what is simulated is as what NVML says", same),
        ],
    )
}

/// A fake host whose GPUs are all watched.
fn watched(gpus: &[Gpu]) -> Fake {
    let fake = fake(gpus);
    fake.host.watch().unwrap();
    watch(&fake, gpus.len());
    fake
}

fn watch(fake: &Fake, gpus: usize) {
    eventually("all GPUs to be watched", || {
        assert_eq!(fake.nvml.events(Duration::ZERO).unwrap(), []);
        fake.count("nvmlDeviceRegisterEvents") == gpus
    });
}

/// The next events, that come.
fn next(fake: &Fake) -> Vec<Event> {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        let events = fake.nvml.events(Duration::from_secs(1)).unwrap();
        if !events.is_empty() {
            return events;
        }
        assert!(Instant::now() < end, "nothing was told");
    }
}

fn xid(gpu: &str, xid: u64) -> Event {
    Event { gpu: gpu.to_owned(), kind: EventKind::Xid(xid) }
}

fn checkup(fake: &Fake) -> Checkup {
    fake.nvml.checkup().unwrap()
}

fn told() -> Outcome {
    let fake = watched(GPUS);
    let (first, second) = (fake.uuid(0), fake.uuid(1));
    fake.host.xid(&second, 79).unwrap();
    assert_eq!(next(&fake), [xid(&second, 79)]);
    fake.nvml.set_mig(&first, false).unwrap();
    assert_eq!(next(&fake), [Event { gpu: first.clone(), kind: EventKind::Changed }]);
    for number in 0..3 {
        fake.host.xid(&first, 100 + number).unwrap();
    }
    let mut all = Vec::new();
    while all.len() < 3 {
        all.extend(next(&fake));
    }
    assert_eq!(all, [xid(&first, 100), xid(&first, 101), xid(&first, 102)]);
    // Who has not heard it yet hears it once, and nobody waits who need not.
    assert_eq!(fake.nvml.events(Duration::ZERO).unwrap(), []);
    Outcome::Done
}

fn asked() -> Outcome {
    let fake = fake(GPUS);
    let well = Vitals {
        remap_pending: Some(false),
        remap_failed: Some(false),
        uncorrected: Some(0),
        hot: Some(false),
        braked: Some(false),
        recovery: None,
        nvlinks: Some(18),
        energy: Some(0),
    };
    let vitals = |fake: &Fake| -> Vec<Vitals> {
        let all = checkup(fake);
        assert_eq!(all.faults, []);
        assert!((0..3).all(|index| all.gpus[index].gpu == fake.uuid(index)));
        all.gpus.into_iter().map(|gpu| gpu.vitals).collect()
    };
    let links = |nvlinks| Vitals { nvlinks: Some(nvlinks), ..well.clone() };
    // In MIG mode its links are off.
    let mig = Vitals { nvlinks: None, ..well.clone() };
    // Before Ampere pages are taken out of use: none is replaced, so none fails to be.
    let old = Vitals { remap_failed: None, ..links(0) };
    assert_eq!(vitals(&fake), [mig.clone(), links(12), old.clone()]);
    fake.host
        .change(|state| {
            state.gpus[0].health = Health {
                remap_failed: true,
                slowdowns: 0x40 | 0x4,
                recovery: Some(4),
                energy: 7,
                ..Health::default()
            };
            state.gpus[1].health.uncorrected = 5;
            state.gpus[1].health.links_down = 3;
            state.gpus[1].health.slowdowns = 0x80 | 0x20;
            state.gpus[2].health.remap_pending = true;
        })
        .unwrap();
    let first = Vitals {
        remap_failed: Some(true),
        hot: Some(true),
        recovery: Some(Recovery::DrainAndReset),
        energy: Some(7),
        ..mig
    };
    let second = Vitals { uncorrected: Some(5), braked: Some(true), ..links(9) };
    let third = Vitals { remap_pending: Some(true), ..old };
    assert_eq!(vitals(&fake), [first, second, third]);
    Outcome::Done
}

/// Found by the fake's own list of calls.
fn lacking() -> Outcome {
    let host = fake(&GPUS[1..2]);
    checkup(&host);
    host.host.watch().unwrap();
    let whole = checkup(&host).gpus[0].vitals.clone();
    let calls = host.host.calls().unwrap();
    let mut names: Vec<&str> = calls.iter().filter_map(|call| call.split(' ').next()).collect();
    names.dedup();
    assert!(names.len() > 6, "{names:?}");
    for name in names {
        let rule = Rule { call: name.to_owned(), fail: Some(UNKNOWN), ..Rule::default() };
        host.host.script(&[rule]).unwrap();
        let found = checkup(&host);
        let [gpu] = found.gpus.as_slice() else { panic!("{name}: {found:?}") };
        assert_eq!(gpu.gpu, host.uuid(0), "{name}");
        let said = |vitals: &Vitals| {
            let text = serde_json::to_value(vitals).unwrap();
            text.as_object().unwrap().clone()
        };
        let (said, whole) = (said(&gpu.vitals), said(&whole));
        assert!(said.iter().all(|(key, value)| whole[key] == *value), "{name}: {said:?}");
        assert!(said.len() + 2 >= whole.len(), "{name}: {said:?}");
        host.host.script(&[]).unwrap();
    }
    Outcome::Done
}

fn unwatched() -> Outcome {
    let fake = fake(GPUS);
    let (first, second) = (fake.uuid(0), fake.uuid(1));
    fake.inventory();
    let call = "nvmlDeviceRegisterEvents".to_owned();
    let refused = Rule { call, gpu: Some(first.clone()), fail: Some(3), ..Rule::default() };
    fake.host.script(&[refused]).unwrap();
    let events = next(&fake);
    let [Event { gpu, kind: EventKind::Unwatched(why) }] = events.as_slice() else {
        panic!("{events:?}")
    };
    assert!(*gpu == first && why.contains("nvmlDeviceRegisterEvents answered 3"), "{gpu}: {why}");
    eventually("the other", || {
        fake.host.xid(&second, 48).unwrap();
        fake.nvml.events(Duration::from_millis(50)).unwrap().contains(&xid(&second, 48))
    });
    // Where there can be no set at all, that is said once.
    let fake = support::fake(GPUS);
    let call = "nvmlEventSetCreate".to_owned();
    fake.host.script(&[Rule { call, fail: Some(UNKNOWN), ..Rule::default() }]).unwrap();
    let events = next(&fake);
    assert!(
        matches!(events.as_slice(), [Event { gpu, kind: EventKind::Unwatched(_) }] if gpu.is_empty())
    );
    assert_eq!(fake.nvml.events(Duration::ZERO).unwrap(), []);
    Outcome::Done
}

fn hangs() -> Outcome {
    let fake = fake_with(GPUS, support::SOON);
    let (hung, fine) = (fake.uuid(0), fake.uuid(1));
    fake.inventory();
    let call = "nvmlDeviceRegisterEvents".to_owned();
    let rule = Rule { call, gpu: Some(hung.clone()), hang: true, ..Rule::default() };
    fake.host.script(&[rule]).unwrap();
    eventually("the other to be watched", || {
        fake.host.xid(&fine, 95).unwrap();
        fake.nvml.events(Duration::from_millis(50)).unwrap().contains(&xid(&fine, 95))
    });
    let found = checkup(&fake);
    let [fault] = found.faults.as_slice() else { panic!("{found:?}") };
    assert_eq!(fault.uuid.as_deref(), Some(hung.as_str()));
    assert!(matches!(fault.kind, FaultKind::Silent { .. }), "{fault}");
    assert_eq!(found.gpus.len(), 2);
    fake.host.script(&[]).unwrap();
    eventually("it to answer", || checkup(&fake).faults.is_empty());
    eventually("it to be watched", || {
        fake.host.xid(&hung, 46).unwrap();
        fake.nvml.events(Duration::from_millis(50)).unwrap().contains(&xid(&hung, 46))
    });
    Outcome::Done
}

fn lost() -> Outcome {
    let fake = watched(GPUS);
    fake.host.change(|state| state.gpus[1].lost = true).unwrap();
    let found = checkup(&fake);
    assert_eq!(found.gpus.len(), 2);
    let [fault] = found.faults.as_slice() else { panic!("{found:?}") };
    assert_eq!((fault.uuid.clone(), &fault.kind), (Some(fake.uuid(1)), &FaultKind::Lost));
    // NVML says of a set that some GPU of it is lost, and not which: the set is heard on.
    let call = "nvmlEventSetWait_v2".to_owned();
    let rule = Rule { call, fail: Some(15), times: Some(3), ..Rule::default() };
    fake.host.script(&[rule]).unwrap();
    fake.host.xid(&fake.uuid(0), 48).unwrap();
    assert_eq!(next(&fake), [xid(&fake.uuid(0), 48)]);
    fake.host.change(|state| state.gpus[1].lost = false).unwrap();
    assert_eq!(checkup(&fake).faults, []);
    // One that is taken out is in no list.
    fake.host.change(|state| state.gpus[1].present = false).unwrap();
    let found = checkup(&fake);
    assert_eq!((found.gpus.len(), found.faults.len()), (2, 0));
    Outcome::Done
}

fn reload() -> Outcome {
    let fake = watched(GPUS);
    let before = checkup(&fake).load;
    assert_eq!(checkup(&fake).load, before);
    assert!(before.starts_with("580.65.06"), "{before}");
    // The same version, loaded again.
    fake.host.reload_driver("580.65.06").unwrap();
    let after = checkup(&fake).load;
    assert_ne!(after, before);
    fake.host.watch().unwrap();
    watch(&fake, GPUS.len());
    fake.host.xid(&fake.uuid(2), 62).unwrap();
    assert_eq!(next(&fake), [xid(&fake.uuid(2), 62)]);
    fake.host.change(|state| state.loaded = false).unwrap();
    assert!(fake.nvml.checkup().is_err());
    assert!(fake.nvml.events(Duration::ZERO).is_err());
    fake.host.change(|state| (state.loaded, state.generation) = (true, 9)).unwrap();
    assert_eq!(checkup(&fake).gpus.len(), GPUS.len());
    Outcome::Done
}

fn sessions() -> Outcome {
    let fake = watched(GPUS);
    fake.host.watch().unwrap();
    fake.host.reload_driver("590.10").unwrap();
    checkup(&fake);
    let calls = fake.host.calls().unwrap();
    let at = |call: &str| calls.iter().position(|made| made.starts_with(call));
    assert!(at("nvmlShutdown") < at("nvmlInitWithFlags"), "{calls:?}");
    assert!(at("nvmlShutdown").is_some() && at("nvmlEventSetFree").is_some(), "{calls:?}");
    Outcome::Done
}

/// A simulated node has what a real one has, in the same words.
fn same() -> Outcome {
    let folder = support::folder();
    let sim = support::sim(folder.path(), GPUS);
    let fake = fake(GPUS);
    let (one, other) = (sim.checkup().unwrap(), checkup(&fake));
    assert_eq!(one.gpus.len(), other.gpus.len());
    for (sim, nvml) in one.gpus.iter().zip(&other.gpus) {
        assert_eq!((sim.pci, sim.vitals.nvlinks), (nvml.pci, nvml.vitals.nvlinks));
        let ails = |vitals: &Vitals| {
            let Vitals { remap_pending, uncorrected, hot, braked, .. } = vitals.clone();
            (remap_pending, uncorrected, hot, braked)
        };
        assert_eq!(ails(&sim.vitals), ails(&nvml.vitals));
    }
    assert_eq!(sim.events(Duration::ZERO).unwrap(), []);
    let gpu = sim.inventory().unwrap().gpus[1].uuid.clone();
    let text = format!(
        r#"{{"gpus": {{"{gpu}": {{"lost": true}}}}, "events": [{{"gpu": "{gpu}", "xid": 79}}]}}"#
    );
    support::write(&folder.path().join("node.state.json"), &text);
    assert_eq!(sim.events(Duration::from_secs(20)).unwrap(), [xid(&gpu, 79)]);
    assert_eq!(sim.events(Duration::ZERO).unwrap(), []);
    assert_eq!(sim.checkup().unwrap().faults[0].kind, FaultKind::Lost);
    assert_eq!(sim.inventory().unwrap().faults[0].uuid, Some(gpu));
    Outcome::Done
}
