//! Pools that this node does not have yet: shared devices, taints, attributes that differ.

use std::collections::BTreeMap;

use super::manifests;
use crate::{
    allocate::{AllocateError, Allocated, Pool, choose},
    claim::{Share, Sharing},
    gpu::fixture::node,
    plan::{Held, Target},
    publish::{Attribute, Capacity, Device, Effect, RequestPolicy, Taint, Valid},
    quantity::Quantity,
};

fn of(text: &str) -> Quantity {
    text.parse().unwrap()
}

fn device(name: &str, room: &str) -> Device {
    let capacity = Capacity { value: of("10Gi"), request_policy: None };
    let attributes = [
        ("name", Attribute::String(name.to_owned())),
        ("room.example.com/room", Attribute::String(room.to_owned())),
    ];
    Device {
        name: name.to_owned(),
        attributes: attributes.map(|(name, value)| (name.to_owned(), value)).into(),
        capacity: BTreeMap::from([("memory".to_owned(), capacity)]),
        consumes_counters: Vec::new(),
        taints: Vec::new(),
        allow_multiple_allocations: false,
    }
}

fn pool(devices: Vec<Device>) -> Pool {
    Pool {
        driver: "gpu.divvy.dev".to_owned(),
        name: "n".to_owned(),
        devices,
        counters: BTreeMap::new(),
        taken: BTreeMap::new(),
        consumed: BTreeMap::new(),
    }
}

fn from(pool: &Pool, devices: &str) -> Result<Allocated, AllocateError> {
    let manifests = manifests(devices);
    choose(&manifests.claims[0], &manifests.classes, pool)
}

fn names(pool: &Pool, devices: &str) -> Vec<String> {
    let allocated = from(pool, devices).unwrap_or_else(|error| panic!("{error}"));
    allocated.results.into_iter().map(|chosen| chosen.device).collect()
}

fn request(more: &str) -> String {
    format!("requests: [{{name: r, exactly: {{deviceClassName: any{more}}}}}]")
}

#[test]
fn constraints_hold_for_the_devices_of_the_requests_they_name() {
    let rooms = [("a", "1"), ("b", "2"), ("c", "1"), ("d", "2"), ("e", "2")];
    let pool = pool(rooms.map(|(name, room)| device(name, room)).to_vec());
    let with = |count: u32, constraint: &str| {
        format!("{}\n    constraints: [{constraint}]", request(&format!(", count: {count}")))
    };
    let same = "{matchAttribute: room.example.com/room}";
    assert_eq!(names(&pool, &with(2, same)), ["a", "c"]);
    assert_eq!(names(&pool, &with(3, same)), ["b", "d", "e"]);
    let error = from(&pool, &with(4, same)).unwrap_err().to_string();
    assert!(error.contains("with another room.example.com/room than"), "{error}");
    let distinct = "{distinctAttribute: room.example.com/room, requests: [r]}";
    assert_eq!(names(&pool, &with(2, distinct)), ["a", "b"]);
    assert!(from(&pool, &with(3, distinct)).is_err());
    // A name without a domain is in the driver's.
    assert_eq!(names(&pool, &with(2, "{distinctAttribute: gpu.divvy.dev/name}")), ["a", "b"]);
    let error = from(&pool, &with(1, "{matchAttribute: a.b/c}")).unwrap_err().to_string();
    assert!(error.contains("5 without attribute a.b/c"), "{error}");
}

#[test]
fn taints_are_tolerated_by_key_value_and_effect() {
    let mut tainted = device("a", "1");
    let taint =
        |effect| Taint { key: "k".to_owned(), value: "v".to_owned(), effect, time_added: None };
    for (effect, tolerations, fits) in [
        (Effect::None, "", true),
        (Effect::NoSchedule, "", false),
        (Effect::NoExecute, "", false),
        (Effect::NoSchedule, "{operator: Exists}", true),
        (Effect::NoSchedule, "{key: k, operator: Exists}", true),
        (Effect::NoSchedule, "{key: k, value: v}", true),
        (Effect::NoSchedule, "{key: k, value: w}", false),
        (Effect::NoSchedule, "{key: l, operator: Exists}", false),
        (Effect::NoSchedule, "{key: k, value: v, effect: NoExecute}", false),
        (Effect::NoExecute, "{key: k, value: v, effect: NoExecute, tolerationSeconds: 3}", true),
    ] {
        tainted.taints = vec![taint(effect)];
        let asked = request(&format!(", tolerations: [{tolerations}]"));
        match from(&pool(vec![tainted.clone()]), &asked) {
            Ok(_) => assert!(fits, "{effect:?} {tolerations}"),
            Err(error) => {
                assert!(!fits, "{error}");
                let says = format!("1 device: 1 tainted k=v:{effect:?} (a)");
                assert!(error.to_string().contains(&says), "{error}");
            }
        }
    }
}

fn shared(valid: Valid) -> Pool {
    let mut device = device("a", "1");
    device.allow_multiple_allocations = true;
    let policy = RequestPolicy { default: of("2Gi"), valid };
    let capacity = Capacity { value: of("10Gi"), request_policy: Some(policy) };
    device.capacity.insert("memory".to_owned(), capacity);
    pool(vec![device])
}

fn range() -> Valid {
    Valid::ValidRange { min: of("1Gi"), max: Some(of("8Gi")), step: Some(of("2Gi")) }
}

#[test]
fn what_is_asked_of_a_shared_device_is_rounded_up() {
    let values = || Valid::ValidValues(vec![of("2Gi"), of("4Gi")]);
    for (valid, asked, consumed) in [
        (range(), "", Some("3Gi")),
        (range(), "1Gi", Some("1Gi")),
        (range(), "1500Mi", Some("3Gi")),
        (range(), "7Gi", Some("7Gi")),
        (range(), "8Gi", None),
        (values(), "", Some("2Gi")),
        (values(), "3Gi", Some("4Gi")),
        (values(), "5Gi", None),
    ] {
        let capacity = match asked {
            "" => String::new(),
            asked => format!(", capacity: {{requests: {{memory: {asked}}}}}"),
        };
        let allocated = from(&shared(valid), &request(&capacity));
        let found = allocated.map(|allocated| {
            allocated.results[0].share.as_ref().unwrap().consumed["memory"].to_string()
        });
        assert_eq!(found.as_deref().ok(), consumed, "{asked}: {found:?}");
    }
}

#[test]
fn a_shared_device_is_had_until_it_is_used_up() {
    let asked =
        |count: u32| request(&format!(", count: {count}, capacity: {{requests: {{memory: 3Gi}}}}"));
    let mut pool = shared(range());
    let allocated = from(&pool, &asked(3)).unwrap();
    let ids: std::collections::BTreeSet<_> =
        allocated.results.iter().map(|chosen| chosen.share.as_ref().unwrap().id.clone()).collect();
    assert_eq!(ids.len(), 3);
    assert_eq!(from(&pool, &asked(3)).unwrap(), allocated, "the same each time");
    let error = from(&pool, &asked(4)).unwrap_err().to_string();
    assert!(error.contains("4 asked for"), "{error}");
    let used = BTreeMap::from([("memory".to_owned(), of("5Gi"))]);
    pool.consumed.insert("a".to_owned(), used);
    assert!(from(&pool, &asked(1)).is_ok());
    let error = from(&pool, &asked(2)).unwrap_err().to_string();
    assert!(error.contains("with too little memory"), "{error}");
    // Looking on takes no share.
    let admin = from(&pool, &request(", adminAccess: true")).unwrap();
    assert_eq!(admin.results[0].share, None);
    let given = allocated.allocation();
    assert_eq!(given.results[1].share, allocated.results[1].share);
}

#[test]
fn what_other_claims_have_of_a_shared_device_is_consumed() {
    let inventory = node(&[]);
    let held = |claim: &str, share: Option<&str>| Held {
        switched: false,
        claim: claim.to_owned(),
        target: Target::Gpu { gpu: "GPU-0".to_owned() },
        share: share.map(|memory| Share {
            id: claim.to_owned(),
            consumed: BTreeMap::from([("gpu.divvy.dev/memory".to_owned(), of(memory))]),
        }),
        sharing: Sharing::Exclusive,
    };
    let taken = |held: &[Held], multiple: bool| {
        let mut pool = shared(range());
        pool.devices[0].name = "gpu-0000-1b-00".to_owned();
        pool.devices[0].allow_multiple_allocations = multiple;
        pool.hold(&inventory, held);
        let asked = ", capacity: {requests: {memory: 7Gi}}";
        from(&pool, &request(asked)).map_err(|error| error.to_string())
    };
    assert!(taken(&[held("a", Some("1Gi")), held("b", Some("2Gi"))], true).is_ok());
    let full = taken(&[held("a", Some("2Gi")), held("b", Some("2Gi"))], true).unwrap_err();
    assert!(full.contains("with too little memory"), "{full}");
    // A device that only one may have is taken by a share, and one that is held whole by that.
    for (held, multiple) in [(held("a", Some("1Gi")), false), (held("a", None), true)] {
        let error = taken(&[held], multiple).unwrap_err();
        assert!(error.contains("held by claim a"), "{error}");
    }
}

#[test]
fn an_undeclared_capacity_is_had_nowhere() {
    let pool = pool(vec![device("a", "1")]);
    let asked = |what: &str| request(&format!(", capacity: {{requests: {{{what}}}}}"));
    assert_eq!(names(&pool, &asked("memory: 10Gi")), ["a"]);
    assert_eq!(names(&pool, &asked("gpu.divvy.dev/memory: 10Gi")), ["a"]);
    for (what, says) in
        [("memory: 11Gi", "too little memory"), ("cores: 1", "without capacity cores")]
    {
        let error = from(&pool, &asked(what)).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
}

#[test]
fn a_search_that_would_not_end_is_given_up() {
    let devices: Vec<Device> =
        (0..30).map(|at| device(&format!("d{at}"), &format!("{}", at % 15))).collect();
    let claim = format!(
        "{}\n    constraints: [{{distinctAttribute: room.example.com/room}}]",
        request(", count: 16")
    );
    let error = from(&pool(devices), &claim).unwrap_err();
    assert_eq!(error.code(), "NO-DEVICE");
    assert!(error.to_string().contains("after 200000 tries"), "{error}");
}
