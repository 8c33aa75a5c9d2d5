//! What was heard is kept until somebody takes it, within bounds.

use super::{Duration, Event, EventKind, Heard, MOST};

#[test]
fn what_is_said_for_ever_keeps_out_nothing_that_is_said_once() {
    let heard = Heard::default();
    let xid = |xid| Event { gpu: "GPU-1".to_owned(), kind: EventKind::Xid(xid) };
    let storm = || (0..MOST * 3).for_each(|_| heard.tell(xid(13)));
    heard.tell(xid(79));
    storm();
    heard.tell(xid(31));
    storm();
    heard.tell(xid(48));
    let events = heard.take(Duration::ZERO);
    assert!(events.len() <= MOST, "{}", events.len());
    for once in [79, 31, 48] {
        assert_eq!(events.iter().filter(|event| **event == xid(once)).count(), 1, "XID {once}");
    }
    assert_eq!(heard.take(Duration::ZERO), []);
    // Nor is a flood of what is never the same kept.
    (0..5 * MOST).for_each(|number| heard.tell(xid(u64::try_from(number).unwrap())));
    let flood = heard.take(Duration::ZERO).len();
    assert!((MOST / 2..=MOST).contains(&flood), "{flood}");
}
