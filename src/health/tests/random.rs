//! Whatever happens to GPUs, in whatever order: no taint without a cause, and no cause without a taint.

use std::collections::BTreeSet;

use super::{all, pci, xid};
use crate::{
    gpu::{Checked, Checkup, Fault, FaultKind, Recovery, Vitals},
    health::{
        Book, Cause,
        xid::{Demand, demand},
    },
};

/// A GPU as it truly is.
#[derive(Debug, Clone, Default)]
struct Truth {
    vitals: Vitals,
    /// Reported since the last reset.
    xids: BTreeSet<u64>,
    away: Option<Away>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Away {
    Gone,
    Lost,
    Silent,
    Failed,
}

const GPUS: u8 = 3;

impl Truth {
    fn reset(&mut self) {
        let failed = self.vitals.remap_failed;
        *self = Self {
            vitals: Vitals { remap_failed: failed, ..Vitals::default() }.or_well(),
            ..Self::default()
        };
        (self.vitals.energy, self.vitals.nvlinks) = (Some(10), Some(18));
    }

    /// What is to be known of it.
    fn causes(&self) -> BTreeSet<Cause> {
        let Vitals {
            remap_failed, remap_pending, uncorrected, hot, braked, recovery, nvlinks, ..
        } = &self.vitals;
        let mut causes: BTreeSet<Cause> = self.xids.iter().map(|xid| Cause::Xid(*xid)).collect();
        causes.extend(self.away.map(|away| match away {
            Away::Gone => Cause::Gone,
            Away::Lost => Cause::Lost,
            Away::Silent => Cause::Silent,
            Away::Failed => Cause::Failed,
        }));
        causes.extend(recovery.filter(|action| *action != Recovery::Nothing).map(Cause::Recovery));
        for (cause, holds) in [
            (Cause::RemapFailed, *remap_failed == Some(true)),
            (Cause::RemapPending, *remap_pending == Some(true)),
            (Cause::Uncorrected, uncorrected.is_some_and(|count| count > 0)),
            (Cause::Hot, *hot == Some(true)),
            (Cause::Braked, *braked == Some(true)),
            (Cause::LinksDown, nvlinks.is_some_and(|up| up < 18)),
        ] {
            causes.extend(holds.then_some(cause));
        }
        causes
    }
}

fn checkup(load: u64, truth: &[Truth]) -> Checkup {
    let mut checkup = Checkup { load: load.to_string(), ..all(Vec::new()) };
    for (bus, truth) in (1..).zip(truth) {
        let fault = |kind| Fault { pci: pci(bus), uuid: Some(format!("GPU-{bus}")), kind };
        match truth.away {
            None => checkup.gpus.push(Checked {
                gpu: format!("GPU-{bus}"),
                pci: pci(bus),
                vitals: truth.vitals.clone(),
            }),
            Some(Away::Gone) => {}
            Some(Away::Lost) => checkup.faults.push(fault(FaultKind::Lost)),
            Some(Away::Silent) => checkup.faults.push(fault(FaultKind::Silent { call: "c" })),
            Some(Away::Failed) => {
                checkup.faults.push(fault(FaultKind::Failed { why: "w".to_owned() }));
            }
        }
    }
    checkup
}

/// Something happens to a GPU that answers.
fn happens(random: &mut fastrand::Rng, truth: &mut Truth) {
    let flag = |random: &mut fastrand::Rng| Some(random.bool());
    match random.u8(0..9) {
        0 => truth.vitals.remap_pending = flag(random),
        1 => truth.vitals.remap_failed = Some(true),
        2 => truth.vitals.uncorrected = Some(random.u64(0..3)),
        3 => truth.vitals.hot = flag(random),
        4 => truth.vitals.braked = flag(random),
        5 => truth.vitals.nvlinks = Some(random.u32(16..19)),
        // Once it asks, only a reset ends that.
        6 => truth.vitals.recovery = Some(Recovery::Reset),
        7 => truth.reset(),
        _ => {
            let away = [Away::Gone, Away::Lost, Away::Silent, Away::Failed];
            truth.away = Some(away[random.usize(0..away.len())]);
        }
    }
    truth.vitals.energy = truth.vitals.energy.map(|energy| energy + random.u64(0..5));
}

/// From away it comes back as what it was, or reset.
fn returns(truth: &mut Truth) {
    match truth.away.take() {
        Some(Away::Gone | Away::Lost) => truth.reset(),
        _ => truth.vitals.energy = truth.vitals.energy.map(|energy| energy + 1),
    }
}

#[test]
fn what_is_known_is_what_is_so() {
    for seed in 0..300 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut truth = vec![Truth::default(); usize::from(GPUS)];
        truth.iter_mut().for_each(Truth::reset);
        let (mut book, mut load, mut now) = (Book::new("boot"), 1, 1000);
        book.observe(now, &checkup(load, &truth));
        for step in 0..60 {
            let bus = random.u8(1..=GPUS);
            let all_answer = truth.iter().all(|one| one.away.is_none());
            let one = &mut truth[usize::from(bus - 1)];
            match random.u8(0..10) {
                0 if all_answer => {
                    load += 1;
                    truth.iter_mut().for_each(Truth::reset);
                }
                1..=3 if one.away.is_none() => {
                    let number = [13, 31, 48, 63, 79, 94, 95, 109, 119][random.usize(0..9)];
                    book.hear(now, &xid(bus, number));
                    // Nothing is reported of a GPU that has done nothing since its reset.
                    one.vitals.energy = one.vitals.energy.map(|energy| energy + 100);
                    if demand(number) >= Demand::Reset {
                        one.xids.insert(number);
                    }
                }
                _ if one.away.is_some() => returns(one),
                _ => happens(&mut random, one),
            }
            // What takes its time has had it.
            for _ in 0..2 {
                now += 61;
                book.observe(now, &checkup(load, &truth));
            }
            // A restart forgets nothing, and invents nothing.
            let kept = serde_json::to_string(&book).unwrap();
            assert_eq!(serde_json::from_str::<Book>(&kept).unwrap(), book);
            for (bus, one) in (1..).zip(&truth) {
                let found = super::causes(&book, bus, now).into_iter().collect::<BTreeSet<_>>();
                // What is away says nothing of what it had before, so that is as it was.
                assert_eq!(found, one.causes(), "seed {seed}, step {step}, GPU {bus}: {one:?}");
            }
        }
    }
}
