//! Deviations of directories and injections.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use serde_json::{Map, Value, json};

use super::document;
use crate::{
    compare::{caught, same},
    divvy,
    generate::tree::{Case, File},
    go::Go,
    model::Answer,
};

/// A device that stands where one was taken out, so that its file stays.
const REMOVED: &str = "removed";

/// A question without what is judged differently.
pub(crate) struct Rewritten {
    pub(crate) case: Case,
    /// The deviations that made a change necessary.
    pub(crate) used: BTreeSet<&'static str>,
    /// What we reject besides, below the root.
    rejected: BTreeSet<String>,
}

/// Priority, file and place in its list of devices.
type Place = (usize, usize, usize);

/// What both are to answer the same to.
pub(crate) fn rewrite(library: &mut Go, case: &Case) -> Rewritten {
    let mut rewritten =
        Rewritten { case: case.clone(), used: BTreeSet::new(), rejected: BTreeSet::new() };
    rewritten.documents(library);
    rewritten.directories();
    rewritten.priority();
    rewritten.once();
    rewritten
}

/// The deviation that explains why an injection is answered differently.
pub(crate) fn explain(before: &Value, go: &Answer, ours: &Answer) -> Option<&'static str> {
    let in_user_namespace = before["linux"]["namespaces"]
        .as_array()
        .is_some_and(|list| list.iter().any(|namespace| namespace["type"] == "user"));
    match (go, ours) {
        (Answer::Accepts(_), Answer::Refuses(text)) => {
            let codes = [
                ("DEVICE-CHANGED: ", "host-node"),
                ("DEVICE-GONE: ", "host-node"),
                ("CONFLICT: network interfaces ", "net-name"),
            ];
            let code = codes.iter().find(|(code, _)| text.starts_with(code));
            match code {
                _ if in_user_namespace && text.starts_with("USERNS-MODE: ") => {
                    Some("user-namespace")
                }
                Some((_, id)) => Some(id),
                None => None,
            }
        }
        (Answer::Accepts(go), Answer::Accepts(ours)) => {
            if once(go, before) == once(ours, before) {
                return Some("already-there");
            }
            if !in_user_namespace {
                return None;
            }
            let (go, ours) = (typed(go), typed(ours));
            if once(&go, before) == once(&ours, before) {
                return Some("bind-type");
            }
            let (go, ours) = nodes_apart(&go, &ours);
            (once(&go, before) == once(&ours, before)).then_some("user-namespace")
        }
        _ => None,
    }
}

/// A config in which nothing is there twice, and nothing's place depends on whether it was there.
fn once(config: &Value, before: &Value) -> Value {
    let mut config = config.clone();
    if let Some(Value::Object(hooks)) = config.get_mut("hooks") {
        for list in hooks.values_mut().filter_map(Value::as_array_mut) {
            let mut seen = BTreeSet::new();
            list.retain(|hook| seen.insert(hook.to_string()));
        }
    }
    if let Some(Value::Array(rules)) = config.pointer_mut("/linux/resources/devices") {
        *rules = in_force(rules);
    }
    // Of mounts at one destination the last one is what the container sees.
    let there = before["mounts"].as_array().cloned().unwrap_or_default();
    if let Some(Value::Array(mounts)) = config.get_mut("mounts") {
        let of =
            |list: &[Value], at: &Value| list.iter().filter(|m| m["destination"] == *at).count();
        let all = mounts.clone();
        let mut index = 0;
        mounts.retain(|mount| {
            index += 1;
            let at = &mount["destination"];
            of(&there, at) < 2 || of(&all[index..], at) == 0
        });
    }
    for pointer in ["/linux/devices", "/mounts"] {
        let there = before.pointer(pointer).and_then(Value::as_array);
        if let (Some(there), Some(Value::Array(list))) = (there, config.pointer_mut(pointer)) {
            // An older engine leaves out what comes from the host.
            let is = |old: &Value, new: &Value| {
                let (old, new) = (old.as_object(), new.as_object());
                let mut fields = old.into_iter().flatten();
                old.is_some_and(|old| old.contains_key("path") || Some(old) == new)
                    && fields.all(|(key, value)| new.is_some_and(|new| new.get(key) == Some(value)))
            };
            for item in list.iter_mut() {
                if let Some(old) = there.iter().find(|old| is(old, item)) {
                    *item = old.clone();
                }
            }
            let (mut old, new): (Vec<_>, Vec<_>) =
                list.drain(..).partition(|item| there.contains(item));
            old.sort_by_key(Value::to_string);
            list.extend(old);
            list.extend(new);
        }
    }
    prune(&mut config);
    config
}

/// Empty objects are what is left when nothing had to be added.
fn prune(tree: &mut Value) {
    if let Value::Object(fields) = tree {
        fields.values_mut().for_each(prune);
        let empty = |value: &Value| {
            value.as_object().is_some_and(Map::is_empty)
                || value.as_array().is_some_and(Vec::is_empty)
        };
        fields.retain(|name, value| name == "intelRdt" || !empty(value));
    }
}

/// The device rules up to the last denial as they are; behind it what they allow.
fn in_force(rules: &[Value]) -> Vec<Value> {
    let start = rules.iter().rposition(|rule| rule["allow"] == json!(false)).map_or(0, |at| at + 1);
    let mut allowed: BTreeMap<String, BTreeSet<char>> = BTreeMap::new();
    for rule in &rules[start..] {
        let key = json!([rule["type"], rule["major"], rule["minor"]]).to_string();
        allowed.entry(key).or_default().extend(rule["access"].as_str().unwrap_or_default().chars());
    }
    let rest = allowed.iter().map(|(key, access)| json!([key, access.iter().collect::<String>()]));
    rules[..start].iter().cloned().chain(rest).collect()
}

/// The config with a type for each bind mount.
fn typed(config: &Value) -> Value {
    let mut config = config.clone();
    let mounts = config.get_mut("mounts").and_then(Value::as_array_mut);
    for mount in mounts.into_iter().flatten() {
        let mut options = mount["options"].as_array().into_iter().flatten();
        let binds = options.any(|option| option == "bind" || option == "rbind");
        if binds && mount.get("type").is_none() {
            mount["type"] = json!("bind");
        }
    }
    config
}

/// Both configs without the device nodes that only Go makes, and without the mounts in their
/// place.
fn nodes_apart(go: &Value, ours: &Value) -> (Value, Value) {
    let paths = |config: &Value| -> BTreeSet<String> {
        let devices = config.pointer("/linux/devices").and_then(Value::as_array);
        let devices = devices.into_iter().flatten();
        devices.filter_map(|device| device["path"].as_str()).map(str::to_owned).collect()
    };
    let apart: BTreeSet<String> = paths(go).difference(&paths(ours)).cloned().collect();
    let without = |config: &Value| {
        let mut config = config.clone();
        for (pointer, key) in [("/linux/devices", "path"), ("/mounts", "destination")] {
            if let Some(Value::Array(list)) = config.pointer_mut(pointer) {
                list.retain(|item| !item[key].as_str().is_some_and(|path| apart.contains(path)));
                // One more mount brings all of them in order.
                list.sort_by_key(Value::to_string);
            }
        }
        config
    };
    (without(go), without(ours))
}

/// A tree as JSON that Go takes: what YAML allows only escaped is escaped.
fn text(tree: &Value) -> Vec<u8> {
    let mut out = String::new();
    for c in tree.to_string().chars() {
        match c {
            '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{feff}' => {
                out.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            c => out.push(c),
        }
    }
    out.into_bytes()
}

// === impl Rewritten ===

impl Rewritten {
    /// What Go lists, as we would: with what we reject besides, without what stands in for others.
    pub(crate) fn listing(&self, listed: Answer, root: &Path) -> Answer {
        let Answer::Accepts(mut listed) = listed else { return listed };
        let devices = listed["devices"].as_array_mut().expect("a list");
        devices.retain(|name| {
            !name.as_str().is_some_and(|name| name.contains(&format!("={REMOVED}")))
        });
        let rejected = listed["rejected"].as_array().expect("a list").iter();
        let mut rejected: BTreeSet<String> =
            rejected.filter_map(Value::as_str).map(str::to_owned).collect();
        rejected.extend(self.rejected.iter().map(|path| root.join(path).display().to_string()));
        listed["rejected"] = json!(rejected);
        Answer::Accepts(listed)
    }

    /// Files that only one takes: what we take as plain JSON, what we refuse as nonsense.
    fn documents(&mut self, library: &mut Go) {
        for File { bytes, .. } in &mut self.case.files {
            let (go, ours) = (library.parse(bytes), caught(|| divvy::parse(bytes)));
            if same(&go, &ours) {
                continue;
            }
            let Some(id) = document::explain(library, bytes, &go, &ours) else { continue };
            self.used.insert(id);
            *bytes = match ours {
                Answer::Accepts(spec) => text(&spec),
                _ => b"nonsense".to_vec(),
            };
        }
    }

    /// A directory that is none, and one that is there twice.
    fn directories(&mut self) {
        let dirs = self.case.dirs.clone();
        for (index, dir) in self.case.dirs.iter_mut().enumerate() {
            if *dir == "file" {
                self.used.insert("every-directory");
                self.rejected.insert("file".to_owned());
                *dir = "missing";
            } else if dirs[index + 1..].contains(dir) {
                self.used.insert("same-directory");
                *dir = "missing";
            }
        }
    }

    /// Definitions in conflict below the one that counts.
    fn priority(&mut self) {
        let mut definitions: BTreeMap<[String; 2], Vec<Place>> = BTreeMap::new();
        let mut trees = BTreeMap::new();
        for (index, File { path, bytes }) in self.case.files.iter().enumerate() {
            let (dir, name) = path.split_once('/').expect("in a directory");
            let Some(priority) = self.case.dirs.iter().position(|known| *known == dir) else {
                continue;
            };
            let Answer::Accepts(tree) = caught(|| divvy::parse(bytes)) else { continue };
            if !name.ends_with(".yaml") && !name.ends_with(".json") {
                continue;
            }
            for (place, device) in tree["devices"].as_array().into_iter().flatten().enumerate() {
                let key = [tree["kind"].to_string(), device["name"].to_string()];
                definitions.entry(key).or_default().push((priority, index, place));
            }
            trees.insert(index, tree);
        }
        for places in definitions.values() {
            let top = places.iter().map(|(priority, ..)| *priority).max().unwrap_or_default();
            let count = |wanted| places.iter().filter(|(priority, ..)| *priority == wanted).count();
            if count(top) != 1 {
                continue;
            }
            for (priority, index, place) in
                places.iter().filter(|(priority, ..)| count(*priority) > 1)
            {
                self.used.insert("priority");
                self.rejected.insert(self.case.files[*index].path.clone());
                let tree = trees.get_mut(index).expect("has devices");
                tree["devices"][*place]["name"] =
                    json!(format!("{REMOVED}-{priority}-{index}-{place}"));
                self.case.files[*index].bytes = text(tree);
            }
        }
    }

    /// Devices named twice.
    fn once(&mut self) {
        let mut seen = BTreeSet::new();
        let count = self.case.devices.len();
        self.case.devices.retain(|name| seen.insert(name.clone()));
        if self.case.devices.len() < count {
            self.used.insert("once");
        }
    }
}
