use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::{Reference, event::Events, status::Object};
use crate::claim::DRIVER;

fn pod(uid: &str) -> Value {
    json!({"kind": "Pod", "name": "p".repeat(253), "uid": uid})
}

#[test]
fn an_object_gets_no_more_events_than_client_go_would_give_it() {
    let mut events = Events::of(DRIVER, &"n".repeat(253));
    let start = Instant::now();
    let mut sent = |why: &str, uid: &str, after: u64| {
        events.next(&pod(uid), why, start + Duration::from_secs(after))
    };
    let first = sent("why", "a", 0).expect("the first is sent");
    assert!(first.series.is_none() && first.name.len() <= 253, "{first:?}");
    let second = sent("why", "a", 60).expect("the second too");
    assert_eq!(
        (&second.name, &second.series.unwrap()["series"]["count"]),
        (&first.name, &json!(2))
    );
    for other in 2..25 {
        assert!(sent(&format!("why {other}"), "a", 61).is_some(), "{other}");
    }
    assert!(sent("why", "a", 62).is_none());
    assert!(sent("why", "b", 62).is_some(), "another object has its own");
    // One in five minutes, and then the same is another event.
    let later = sent("why", "a", 302).expect("one more");
    assert_eq!(later.series.unwrap()["series"]["count"], 4);
    assert!(sent("why", "a", 303).is_none());
    let anew = sent("why", "a", 800).expect("one more");
    assert!(anew.series.is_none() && anew.name != first.name);
    let made = events.made(&anew, "team", &pod("a"), &"é".repeat(2000));
    assert!(made["note"].as_str().unwrap().len() <= 1024);
    assert!(made["reportingInstance"].as_str().unwrap().len() <= 128);
}

#[test]
fn a_condition_is_since_when_it_is_so() {
    let claim = Reference { namespace: "n".into(), name: "c".into(), uid: "u".into() };
    let text = |devices: Value| {
        json!({
            "metadata": {"uid": "u"},
            "status": {
                "allocation": {"devices": {"results": [
                    {"request": "a", "driver": "gpu.divvy.dev", "pool": "n", "device": "d", "shareID": "s"},
                    {"request": "b", "driver": "gpu.divvy.dev", "pool": "n", "device": "d", "shareID": "s"},
                    {"request": "a", "driver": "x.example.com", "pool": "n", "device": "e"},
                ]}},
                "reservedFor": [{"resource": "pods", "name": "p", "uid": "1"}, {"resource": "x", "name": "y", "uid": "2"}],
                "devices": devices,
            },
        })
        .to_string()
    };
    let told = |status: &str, message: &str| {
        json!([{"driver": "gpu.divvy.dev", "pool": "n", "device": "d", "shareID": "s", "conditions": [
            {"type": "Other", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
            {"type": "Ready", "status": status, "reason": "r", "message": message,
             "lastTransitionTime": "2026-02-02T00:00:00Z"},
        ]}])
    };
    let read = |devices: Value| Object::read(&text(devices), &claim).unwrap();
    let since = |status: &Value| {
        status.pointer("/status/devices/0/conditions/0/lastTransitionTime").unwrap().clone()
    };
    assert_eq!(read(told("True", "")).status(&claim, DRIVER, None), None);
    let fails = read(told("True", "")).status(&claim, DRIVER, Some("why")).unwrap();
    assert_ne!(since(&fails), "2026-02-02T00:00:00Z");
    assert_eq!(fails.pointer("/status/devices/0/shareID"), Some(&json!("s")));
    assert_eq!(fails.pointer("/status/devices/1"), None, "another driver's is not ours to say");
    let other = read(told("True", "")).status(&claim, "x.example.com", Some("why")).unwrap();
    assert_eq!(other.pointer("/status/devices/0/device"), Some(&json!("e")));
    assert_eq!(other.pointer("/status/devices/1"), None, "and the other way round");
    let otherwise = read(told("False", "another")).status(&claim, DRIVER, Some("why")).unwrap();
    assert_eq!(since(&otherwise), "2026-02-02T00:00:00Z");
    assert_eq!(read(told("False", "why")).status(&claim, DRIVER, Some("why")), None);
    let pods: Vec<_> = read(json!([])).pods().map(|pod| pod.uid.clone()).collect();
    assert_eq!(pods, ["1"]);
    // Another of its name; and what was never allocated.
    let other = Reference { uid: "v".into(), ..claim.clone() };
    assert!(Object::read(&text(json!([])), &other).is_none());
    let bare = Object::read(&json!({"metadata": {"uid": "u"}}).to_string(), &claim).unwrap();
    assert_eq!(bare.status(&claim, DRIVER, Some("why")), None);
}
