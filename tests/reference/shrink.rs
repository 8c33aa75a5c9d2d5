//! Shrinking: the smallest question that still shows a difference.

use serde_json::Value;

use crate::generate::tree::Case;

/// Leaves lines, then bytes, out of `bytes` while `differs`.
pub(crate) fn document(bytes: &[u8], mut differs: impl FnMut(&[u8]) -> bool) -> Vec<u8> {
    let lines: Vec<&[u8]> = bytes.split_inclusive(|&byte| byte == b'\n').collect();
    let lines = list(&lines, |lines| differs(&lines.concat()));
    let bytes = lines.concat();
    if bytes.len() > 4096 { bytes } else { list(&bytes, differs) }
}

/// Leaves elements out while `differs`: half of them, a quarter, … single ones.
pub(crate) fn list<T: Clone>(items: &[T], mut differs: impl FnMut(&[T]) -> bool) -> Vec<T> {
    let mut items = items.to_vec();
    let mut size = items.len().div_ceil(2);
    while size > 0 {
        let mut at = 0;
        while at < items.len() {
            let mut fewer = items.clone();
            fewer.drain(at..(at + size).min(items.len()));
            if differs(&fewer) { items = fewer } else { at += size }
        }
        size = if size == 1 { 0 } else { size.div_ceil(2) };
    }
    items
}

/// Leaves files, devices, parts of the config and lines of files out while `differs`.
pub(crate) fn case(case: &Case, mut differs: impl FnMut(&Case) -> bool) -> Case {
    let mut best = case.clone();
    best.files =
        list(&best.files.clone(), |files| differs(&Case { files: files.to_vec(), ..best.clone() }));
    best.dirs =
        list(&best.dirs.clone(), |dirs| differs(&Case { dirs: dirs.to_vec(), ..best.clone() }));
    best.devices = list(&best.devices.clone(), |devices| {
        differs(&Case { devices: devices.to_vec(), ..best.clone() })
    });
    best.config = value(&best.config.clone(), &mut |config| {
        differs(&Case { config: config.clone(), ..best.clone() })
    });
    for at in 0..best.files.len() {
        let bytes = best.files[at].bytes.clone();
        best.files[at].bytes = document(&bytes, |bytes| {
            let mut other = best.clone();
            other.files[at].bytes = bytes.to_vec();
            differs(&other)
        });
    }
    best
}

/// Leaves members and elements out of a tree while `differs`.
fn value(tree: &Value, differs: &mut dyn FnMut(&Value) -> bool) -> Value {
    let mut best = tree.clone();
    match tree {
        Value::Object(fields) => {
            for name in fields.keys() {
                let mut without = best.clone();
                without.as_object_mut().expect("an object").remove(name);
                if differs(&without) {
                    best = without;
                    continue;
                }
                best[name] = value(&best[name].clone(), &mut |inner| {
                    let mut other = best.clone();
                    other[name] = inner.clone();
                    differs(&other)
                });
            }
        }
        Value::Array(items) => {
            let fewer = list(items, |items| differs(&Value::Array(items.to_vec())));
            best = Value::Array(fewer);
        }
        _ => (),
    }
    best
}
