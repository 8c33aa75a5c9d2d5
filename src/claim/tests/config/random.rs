//! Random trees of JSON as parameters: nothing panics, what is refused names its place, and what is
//! accepted reads back from the journal.

use serde_json::{Map, Value, json};

use super::*;

const ROUNDS: usize = 3_000;

/// Where a walk starts: all that is known, right.
fn right() -> [Value; 5] {
    let mps = json!({
        "defaultActiveThreadPercentage": 50,
        "defaultPinnedDeviceMemoryLimit": "10Gi",
        "defaultPerDevicePinnedMemoryLimit": {"0": "5Gi", "GPU-1": 6442450944_u64},
        "multiUser": true,
    });
    let (ours, theirs) = ("gpu.divvy.dev/v1alpha1", "resource.nvidia.com/v1beta1");
    [
        json!({"apiVersion": ours, "kind": "GpuConfig", "sharing": {"timeSlicing": {"interval": "Long"}}}),
        json!({"apiVersion": ours, "kind": "MigDeviceConfig", "sharing": {"mps": mps}}),
        json!({"apiVersion": ours, "kind": "GpuConfig", "sharing": {"exclusive": {}}}),
        json!({"apiVersion": theirs, "kind": "GpuConfig",
               "sharing": {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Short"}}}),
        json!({"apiVersion": theirs, "kind": "MigDeviceConfig",
               "sharing": {"strategy": "MPS", "mpsConfig": mps}}),
    ]
}

const WORDS: [&str; 24] = [
    "apiVersion",
    "kind",
    "sharing",
    "strategy",
    "TimeSlicing",
    "MPS",
    "timeSlicingConfig",
    "interval",
    "Default",
    "mpsConfig",
    "defaultActiveThreadPercentage",
    "defaultPinnedDeviceMemoryLimit",
    "defaultPerDevicePinnedMemoryLimit",
    "multiUser",
    "exclusive",
    "timeSlicing",
    "mps",
    "GpuConfig",
    "MigDeviceConfig",
    "",
    "1Gi",
    "0",
    "zzz",
    "\u{0}\u{fffd}\n\"",
];

const NUMBERS: [f64; 10] =
    [0.0, 1.0, -1.0, 50.0, 100.0, 101.0, 0.5, 1_048_576.0, f64::MAX, f64::MIN_POSITIVE];

fn word(random: &mut fastrand::Rng) -> String {
    (*random.choice(&WORDS).unwrap()).to_owned()
}

fn tree(random: &mut fastrand::Rng, depth: u8) -> Value {
    match random.u8(0..if depth == 0 { 5 } else { 8 }) {
        0 => Value::Null,
        1 => Value::from(random.bool()),
        2 => Value::from(*random.choice(&NUMBERS).unwrap()),
        3 => Value::from(random.i64(..)),
        4 => Value::from(word(random)),
        5 => (0..random.u8(0..3)).map(|_| tree(random, depth - 1)).collect(),
        _ => {
            let pairs = (0..random.u8(0..4)).map(|_| (word(random), tree(random, depth - 1)));
            Value::Object(pairs.collect::<Map<_, _>>())
        }
    }
}

/// Changes a value somewhere: another tree in its place, a pair more or less.
fn change(random: &mut fastrand::Rng, value: &mut Value) {
    match value {
        Value::Object(pairs) if !pairs.is_empty() && random.u8(0..6) != 0 => {
            let at = random.usize(0..pairs.len());
            let key = pairs.keys().nth(at).unwrap().clone();
            match random.u8(0..8) {
                0 => drop(pairs.remove(&key)),
                1 => drop(pairs.insert(word(random), tree(random, 2))),
                _ => change(random, pairs.get_mut(&key).unwrap()),
            }
        }
        _ => *value = tree(random, 3),
    }
}

#[test]
fn no_tree_of_json_panics_and_what_is_accepted_reads_back() {
    let mut random = fastrand::Rng::with_seed(3);
    let (mut accepted, mut refused) = (0, 0);
    for _ in 0..ROUNDS {
        let mut parameters = random.choice(right()).unwrap();
        for _ in 0..random.u8(0..4) {
            change(&mut random, &mut parameters);
        }
        let driver = *random.choice(&["gpu.divvy.dev", "gpu.nvidia.com"]).unwrap();
        let text = allocated(&entry(&parameters.to_string()))
            .replace("          driver: gpu.divvy.dev", &format!("          driver: {driver}"));
        match parse(&text) {
            Ok(mut found) => {
                let config = found.claims.remove(0).allocation.unwrap().config;
                let sharing = &config[0].sharing;
                let written = serde_json::to_string(sharing).unwrap();
                assert_eq!(serde_json::from_str::<Sharing>(&written).unwrap(), *sharing);
                let slices = matches!(sharing, Sharing::TimeSlicing(_));
                assert!(!slices || config[0].kind == Kind::Gpu, "{parameters}");
                accepted += 1;
            }
            Err(error) => {
                let (said, code) = (error.to_string(), error.code());
                assert!(said.starts_with("c.yaml:2"), "{said}");
                assert!(said.contains("devices.config[0].opaque"), "{said}");
                assert!(["CONFIG-INVALID", "CLAIM-INVALID"].contains(&code), "{said}");
                refused += 1;
            }
        }
    }
    assert!(accepted > ROUNDS / 10 && refused > ROUNDS / 10, "{accepted}, {refused}");
}
