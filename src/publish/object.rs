//! An object is a slice as the API server has it: with a name, a place in its pool, and a version.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{Slice, Taint};

/// A slice that the API server has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Object {
    /// Its name, made by the server from what it is to begin with.
    pub(super) name: String,
    /// Its UID.
    pub(super) uid: String,
    /// Which of its versions this is.
    pub(super) version: String,
    /// Its pool.
    pub(super) pool: String,
    /// Its pool's generation.
    pub(super) generation: i64,
    /// How many slices its pool has.
    pub(super) count: i64,
    /// What is in it; none where it is nothing that this build writes.
    pub(super) content: Option<Slice>,
    /// What was sent to become this version: the server may keep less of it, or more.
    pub(super) sent: Option<Slice>,
}

/// The pool of a node.
#[derive(Debug, Clone)]
pub(super) struct Pool {
    /// Whose devices they are.
    pub(super) driver: String,
    /// The node's name and so its own.
    pub(super) node: String,
    /// The UID of the Node object, with which the slices end.
    pub(super) node_uid: String,
    /// What changes when slices change together.
    pub(super) generation: i64,
    /// How many slices it has.
    pub(super) count: usize,
}

/// What a slice of ours has beside devices or counters.
const FRAME: [&str; 3] = ["driver", "nodeName", "pool"];

// === impl Object ===

impl Object {
    /// An object of the API server's; none where it has no name.
    pub(super) fn read(value: &Value) -> Option<Self> {
        let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str);
        let number = |pointer: &str| value.pointer(pointer).and_then(Value::as_i64);
        let owned = |pointer: &str| text(pointer).unwrap_or_default().to_owned();
        Some(Self {
            name: text("/metadata/name")?.to_owned(),
            uid: owned("/metadata/uid"),
            version: owned("/metadata/resourceVersion"),
            pool: owned("/spec/pool/name"),
            generation: number("/spec/pool/generation").unwrap_or_default(),
            count: number("/spec/pool/resourceSliceCount").unwrap_or_default(),
            content: value.get("spec").and_then(content),
            sent: None,
        })
    }

    /// Its place among the slices of its pool, which its name begins with.
    pub(super) fn index(&self) -> Option<usize> {
        let (index, _) = self.name.split_once('-')?;
        let digits = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        if index.len() < 5 || !index.bytes().all(digits) {
            return None;
        }
        usize::from_str_radix(index, 16).ok()
    }

    /// True where there is nothing to write.
    pub(super) fn holds(&self, slice: &Slice) -> bool {
        self.content.as_ref() == Some(slice) || self.sent.as_ref() == Some(slice)
    }

    /// True for the same object as it was later. Versions are numbers that rise, where they are numbers.
    pub(super) fn is_older_than(&self, other: &Self) -> bool {
        match (self.version.parse::<u64>(), other.version.parse::<u64>()) {
            (Ok(own), Ok(other)) => own < other,
            _ => self.version != other.version,
        }
    }
}

/// The devices or counters of a `spec`, if there is nothing else.
fn content(spec: &Value) -> Option<Slice> {
    let spec = spec.as_object()?;
    let content =
        |(key, value): &(&String, &Value)| !value.is_null() && !FRAME.contains(&key.as_str());
    let mut rest = spec.iter().filter(content);
    match (rest.next(), rest.next()) {
        (None, _) => Some(Slice::Devices(Vec::new())),
        (Some((key, value)), None) => {
            let one: Map<String, Value> = [(key.clone(), value.clone())].into_iter().collect();
            serde_json::from_value(Value::Object(one)).ok()
        }
        _ => None,
    }
}

// === impl Pool ===

impl Pool {
    /// The object that has this slice at a place of the pool: over the one that is there, or a new one.
    pub(super) fn object(&self, index: usize, slice: &Slice, over: Option<&Object>) -> Value {
        let Self { driver, node, node_uid, generation, count } = self;
        let owner = json!({
            "apiVersion": "v1", "kind": "Node", "name": node, "uid": node_uid, "controller": true,
        });
        let mut metadata = json!({ "ownerReferences": [owner] });
        let mut set = |key: &str, value: &str| {
            if let Some(metadata) = metadata.as_object_mut() {
                metadata.insert(key.to_owned(), value.into());
            }
        };
        match over {
            Some(over) => {
                set("name", &over.name);
                set("uid", &over.uid);
                set("resourceVersion", &over.version);
            }
            // The server cuts it where it is long. The order of names is that of first fit.
            None => set("generateName", &format!("{index:05x}-{driver}-{node}-")),
        }
        let mut spec = json!({
            "driver": driver,
            "nodeName": node,
            "pool": { "name": node, "generation": generation, "resourceSliceCount": count },
        });
        if let (Some(spec), Ok(Value::Object(content))) =
            (spec.as_object_mut(), serde_json::to_value(slice))
        {
            // The server leaves empty lists out.
            spec.extend(content.into_iter().filter(|(_, list)| *list != json!([])));
        }
        json!({
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": metadata,
            "spec": spec,
        })
    }
}

/// The generation of a pool that is there whole.
pub(super) fn whole(pool: &str, there: &[Object]) -> Option<i64> {
    let own = || there.iter().filter(|object| object.pool == pool);
    let newest = own().map(|object| object.generation).max()?;
    let of_newest = || own().filter(|object| object.generation == newest);
    let count = i64::try_from(of_newest().count()).ok()?;
    of_newest().all(|object| object.count == count).then_some(newest)
}

/// A slice with the times since when its taints are there: the server notes the time of one that has none.
pub(super) fn timed<'a>(slice: &Slice, there: impl Iterator<Item = &'a Object>) -> Slice {
    let devices = there.filter_map(|object| object.content.as_ref()).flat_map(Slice::devices);
    let known: BTreeMap<&str, &[Taint]> =
        devices.map(|device| (device.name.as_str(), device.taints.as_slice())).collect();
    let mut slice = slice.clone();
    if let Slice::Devices(devices) = &mut slice {
        for device in devices {
            let Some(known) = known.get(device.name.as_str()) else { continue };
            for taint in &mut device.taints {
                let same = known.iter().find(|known| *known == taint);
                taint.time_added = same.and_then(|same| same.time_added.clone());
            }
        }
    }
    slice
}
