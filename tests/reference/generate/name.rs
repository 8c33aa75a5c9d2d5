//! Names and request annotations: near misses of good ones.

use std::collections::BTreeMap;

use fastrand::Rng;

use super::{once_in, pick, some};

/// A text that is about a qualified name.
pub(crate) fn name(rng: &mut Rng) -> String {
    const VENDORS: &[&str] = &["v", "v.com", "vendor.com", "V-1", "a_b", "1v", "v-", ""];
    const CLASSES: &[&str] = &["c", "cc", "c.d", "C_1", "1c", "c.", ""];
    const DEVICES: &[&str] = &["d", "0", "a:b", "0000:3b:00.0", "GPU-1", "all", "-a", "a@b", ""];
    let mut name = format!("{}/{}={}", pick(rng, VENDORS), pick(rng, CLASSES), pick(rng, DEVICES));
    if once_in(rng, 3) {
        const ODD: &[&str] =
            &["=", "/", " ", "é", "\u{0}", ".", "-", "_", ":", ",", "\n", "\u{1F600}", "A"];
        let at = rng.usize(..=name.len());
        name.insert_str(at, pick(rng, ODD));
    }
    if once_in(rng, 6) {
        let mut chars: Vec<char> = name.chars().collect();
        chars.remove(rng.usize(..chars.len()));
        name = chars.into_iter().collect();
    }
    name
}

/// Annotations, some of which request something.
pub(crate) fn annotations(rng: &mut Rng) -> BTreeMap<String, String> {
    const KEYS: &[&str] = &[
        "cdi.k8s.io/x",
        "cdi.k8s.io/",
        "cdi.k8s.io/a/b",
        "CDI.k8s.io/x",
        "cdi.k8s.io.x/y",
        "other",
    ];
    const SEPARATORS: &[&str] = &[",", ",", ",", ", ", ",,", ";"];
    // One key that counts at most: Go's order of several is random.
    let key = pick(rng, KEYS).to_owned();
    let good = |rng: &mut Rng| pick(rng, &["v.com/c=a", "v.com/c=b", "w/c=0"]).to_owned();
    let entry = |rng: &mut Rng| if once_in(rng, 8) { name(rng) } else { good(rng) };
    let separator = pick(rng, SEPARATORS);
    BTreeMap::from([(key, some(rng, 3, entry).join(separator)), ("a".to_owned(), "b".to_owned())])
}

/// Plugin and device id of an annotation key.
pub(crate) fn plugin_and_device(rng: &mut Rng) -> (String, String) {
    const PARTS: &[&str] =
        &["v", "vendor.class", "a/b", "_", "-", "d", "é", " ", "x.y", "0", "", "+"];
    let mut part = |most: usize| some(rng, most, |rng| pick(rng, PARTS)).concat();
    let (plugin, mut device) = (part(2), part(4));
    if once_in(rng, 5) {
        device = "d".repeat(58 + rng.usize(..8));
    }
    (plugin, device)
}
