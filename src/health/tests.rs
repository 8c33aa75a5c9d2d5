//! The rules by which what is known of GPUs changes, and what is made of it.

mod keeper;
mod random;

use super::{
    Book, Cause, GpuHealth, Known,
    xid::{Demand, demand, meaning},
};
use crate::{
    gpu::{Checked, Checkup, Event, EventKind, Fault, FaultKind, PciAddress, Recovery, Vitals},
    publish::Effect,
};

fn pci(bus: u8) -> PciAddress {
    PciAddress { domain: 0, bus, device: 0, function: 0 }
}

fn gpu(bus: u8, vitals: Vitals) -> Checked {
    Checked { gpu: format!("GPU-{bus}"), pci: pci(bus), vitals: vitals.or_well() }
}

fn all(gpus: Vec<Checked>) -> Checkup {
    Checkup { load: "580 1".to_owned(), gpus, faults: Vec::new() }
}

fn well() -> Checkup {
    all(vec![gpu(1, Vitals::default()), gpu(2, Vitals::default())])
}

fn xid(bus: u8, xid: u64) -> Event {
    Event { gpu: format!("GPU-{bus}"), kind: EventKind::Xid(xid) }
}

fn causes(book: &Book, bus: u8, now: u64) -> Vec<Cause> {
    let found = book.gpus().find(|(at, _)| *at == pci(bus).to_string());
    found.map(|(_, record)| record.causes(now)).unwrap_or_default()
}

/// One that knows both GPUs, and an XID of the first.
fn struck(number: u64) -> Book {
    let mut book = Book::new("boot");
    book.observe(100, &well());
    book.hear(101, &xid(1, number));
    book
}

#[test]
fn an_xid_is_of_its_gpu_alone_and_stays() {
    let mut book = struck(79);
    for now in [101, 200, 1_000_000] {
        assert_eq!(causes(&book, 1, now), [Cause::Xid(79)]);
        assert_eq!(causes(&book, 2, now), []);
        book.observe(now, &well());
    }
    book.hear(102, &xid(1, 48));
    book.hear(103, &xid(1, 79));
    book.hear(103, &xid(9, 79));
    assert_eq!(causes(&book, 1, 103), [Cause::Xid(48), Cause::Xid(79)]);
    assert_eq!(book.gpus().count(), 2, "what was never seen is none");
}

#[test]
fn what_an_application_did_ails_no_gpu() {
    for number in [13, 31, 32, 43, 45, 63, 68, 69, 92, 94, 109, 137, 144, 150, 154] {
        assert_eq!(causes(&struck(number), 1, 500), [], "XID {number}");
        assert!(demand(number) < Demand::Reset);
    }
    // One that no catalogue has may be anything.
    for number in [46, 48, 54, 62, 64, 74, 79, 95, 110, 119, 120, 140, 143, 151, 158, 4711] {
        assert_eq!(causes(&struck(number), 1, 500), [Cause::Xid(number)]);
    }
    for number in 0..200 {
        let says = Cause::Xid(number).to_string();
        assert!(says.contains(&format!("XID {number}, ")) && says.contains(": "), "{says}");
        assert_eq!(meaning(number).is_some(), says.find("not in the catalogue").is_none());
    }
}

#[test]
fn an_xid_ends_with_a_reset_however_that_shows() {
    let with = |vitals: Vitals| all(vec![gpu(1, vitals), gpu(2, Vitals::default())]);
    let energy = |energy| with(Vitals { energy: Some(energy), ..Vitals::default() });
    let asks = |recovery| with(Vitals { recovery: Some(recovery), ..Vitals::default() });
    let lost = |kind| Checkup {
        faults: vec![Fault { pci: pci(1), uuid: Some("GPU-1".to_owned()), kind }],
        ..all(vec![gpu(2, Vitals::default())])
    };
    // Another load of the driver.
    let mut book = struck(95);
    book.observe(110, &Checkup { load: "580 2".to_owned(), ..well() });
    assert_eq!(causes(&book, 1, 110), []);
    // A counter that grows, and then has begun anew.
    let mut book = struck(95);
    for (used, ill) in [(1000, true), (1001, true), (5000, true), (20, false)] {
        book.observe(110, &energy(used));
        assert_eq!(!causes(&book, 1, 110).is_empty(), ill, "at {used}");
    }
    // What the driver asked for, it asks for no more; that it asks for nothing yet says nothing.
    let mut book = struck(95);
    book.observe(110, &asks(Recovery::Nothing));
    assert_eq!(causes(&book, 1, 110), [Cause::Xid(95)]);
    book.observe(110, &asks(Recovery::Reset));
    assert_eq!(causes(&book, 1, 110), [Cause::Xid(95), Cause::Recovery(Recovery::Reset)]);
    book.observe(110, &asks(Recovery::Nothing));
    assert_eq!(causes(&book, 1, 110), []);
    // It was lost, or gone, and is back. That it did not answer for a while says nothing.
    let silent = FaultKind::Silent { call: "nvmlDeviceGetName" };
    for (away, ill) in [
        (lost(FaultKind::Lost), false),
        (all(vec![gpu(2, Vitals::default())]), false),
        (lost(silent), true),
    ] {
        let mut book = struck(95);
        book.observe(110, &away);
        assert!(causes(&book, 1, 110).contains(&Cause::Xid(95)));
        assert_eq!(causes(&book, 1, 110).len(), 2);
        book.observe(120, &well());
        assert_eq!(!causes(&book, 1, 120).is_empty(), ill);
    }
}

#[test]
fn what_the_driver_says_holds_as_long_as_it_says_so() {
    let mut book = Book::new("boot");
    let mut see = |vitals: Vitals| {
        book.observe(100, &all(vec![gpu(1, vitals)]));
        causes(&book, 1, 100)
    };
    let mut vitals = Vitals { remap_pending: Some(true), ..Vitals::default() };
    assert_eq!(see(vitals.clone()), [Cause::RemapPending]);
    vitals.uncorrected = Some(3);
    vitals.remap_failed = Some(true);
    let three = [Cause::RemapFailed, Cause::RemapPending, Cause::Uncorrected];
    assert_eq!(see(vitals), three);
    let silent = Vitals { nvlinks: Some(0), ..Vitals::default() };
    book.observe(100, &all(vec![Checked { vitals: silent, ..gpu(1, Vitals::default()) }]));
    assert_eq!(causes(&book, 1, 100), three, "that nobody says it is not that it is not so");
    book.observe(100, &well());
    assert_eq!(causes(&book, 1, 100), []);
}

#[test]
fn heat_counts_when_it_lasts_and_so_does_its_end() {
    let mut book = Book::new("boot");
    let mut see = |now, hot| {
        book.observe(now, &all(vec![gpu(1, Vitals { hot: Some(hot), ..Vitals::default() })]));
        !causes(&book, 1, now).is_empty()
    };
    // For a moment, then for long; up and down while it cools.
    for (now, hot, ill) in [
        (100, true, false),
        (105, false, false),
        (110, true, false),
        (119, true, false),
        (120, true, true),
        (125, false, true),
        (160, true, true),
        (170, false, true),
        (229, false, true),
        (230, false, false),
        (235, true, false),
    ] {
        assert_eq!(see(now, hot), ill, "at {now}");
    }
}

#[test]
fn links_that_were_up_are_missed_and_no_others() {
    let mut book = Book::new("boot");
    for (now, up, ill) in [(100, 0, false), (105, 18, false), (110, 17, false), (120, 17, true)] {
        book.observe(now, &all(vec![gpu(1, Vitals { nvlinks: Some(up), ..Vitals::default() })]));
        assert_eq!(!causes(&book, 1, now).is_empty(), ill, "at {now}");
    }
    book.observe(121, &all(vec![gpu(1, Vitals { nvlinks: Some(18), ..Vitals::default() })]));
    assert_eq!(causes(&book, 1, 121), []);
}

#[test]
fn another_gpu_in_the_same_place_is_well() {
    let mut book = struck(79);
    let other = Checked { gpu: "GPU-new".to_owned(), ..gpu(1, Vitals::default()) };
    book.observe(110, &all(vec![other, gpu(2, Vitals::default())]));
    assert_eq!(causes(&book, 1, 110), []);
    book.hear(111, &xid(1, 79));
    assert_eq!(causes(&book, 1, 111), [], "of the one before");
}

#[test]
fn taints_say_what_ails_and_do_no_more_than_that_asks_for() {
    let all = vec![
        Cause::Xid(48),
        Cause::Xid(95),
        Cause::Recovery(Recovery::DrainAndReset),
        Cause::RemapPending,
        Cause::Hot,
    ];
    let health = |gpu: &str, causes| GpuHealth { pci: pci(1), gpu: Some(gpu.to_owned()), causes };
    let mut known = Known::nothing(Effect::NoExecute);
    known.gpus = vec![
        health("GPU-1", all),
        health("GPU-2", Vec::new()),
        health("GPU-3", vec![Cause::Lost]),
        health("GPU-4", (1000..1040).map(Cause::Xid).collect()),
    ];
    let taints = known.taints();
    assert_eq!(taints.keys().collect::<Vec<_>>(), ["GPU-1", "GPU-4"]);
    let shown = |gpu: &str| -> Vec<(String, String, Effect)> {
        let taint = |taint: &crate::publish::Taint| {
            let name = taint.key.strip_prefix("gpu.divvy.dev/").unwrap();
            (name.to_owned(), taint.value.clone(), taint.effect)
        };
        taints[gpu].iter().map(taint).collect()
    };
    let row = |name: &str, value: &str, effect| (name.to_owned(), value.to_owned(), effect);
    assert_eq!(
        shown("GPU-1"),
        [
            row("xid", "48.95", Effect::NoExecute),
            row("recovery", "drain-and-reset", Effect::NoSchedule),
            row("memory-remap-pending", "", Effect::NoSchedule),
            row("thermal-slowdown", "", Effect::NoSchedule),
        ]
    );
    let (_, value, _) = &shown("GPU-4")[0];
    assert!(value.starts_with("1000.1001.") && value.len() <= 63, "{value}");
    let says = known.of("GPU-1").unwrap().says().unwrap();
    assert!(says.starts_with("XID 48, double bit ECC error: end what uses it"), "{says}");
    assert_eq!(says.lines().count(), 1);
    assert_eq!(known.of("GPU-2").unwrap().says(), None);
}
