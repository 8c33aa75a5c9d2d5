//! A slice of 1.30 was one of several resource models; now it is a pool's devices.

use std::borrow::Cow;

use divvy_cdi::doc::{Entry, Node, Value};

use super::{
    Migration,
    classic::NONE,
    parameter::{Kind, identifier, known},
};
use crate::{
    claim::{served::V1, tree},
    publish::normalized,
};

// === impl Migration ===

impl Migration {
    pub(super) fn slice<'a>(&mut self, mut object: Node<'a>) -> Node<'a> {
        let at = object.at;
        tree::put(&mut object, "apiVersion", tree::text(at, V1));
        let text = "slices are published by drivers, and overwritten by them: this is what theirs would be";
        self.note(at, "kind", text);
        let mut old = tree::take(&mut object, "spec").unwrap_or_else(|| tree::map(at, NONE));
        let below = !matches!(&old.value, Value::Map(entries) if entries.is_empty());
        if below {
            let text = "v1alpha2 had no spec here: its fields stood at the top";
            self.note(old.at, "spec", text);
        }
        let mut take =
            |key: &str| tree::take(&mut object, key).or_else(|| tree::take(&mut old, key));
        let (node, named) = (take("nodeName"), take("driverName"));
        let model = match take("resourceModel") {
            Some(mut model) => {
                let text = "v1alpha2 had no such field: namedResources stood beside driverName";
                self.note(model.at, "spec.resourceModel", text);
                tree::take(&mut model, "namedResources")
            }
            None => take("namedResources"),
        };
        let text = |node: &Option<Node<'a>>| match node {
            Some(Node { value: Value::Str(text), .. }) => text.to_string(),
            _ => String::new(),
        };
        let (node_name, old_name) = (text(&node), text(&named));
        let driver = self.driver_of(&old_name);
        if let Some(named) = &named {
            self.note(named.at, "driverName", "driver, since 1.31");
            self.driver_note(named.at, "driverName".to_owned(), &old_name, &driver);
        }
        let mut devices = Vec::new();
        if let Some(mut model) = model {
            let text = "instances of a model became devices, their quantities capacities";
            self.note(model.at, "namedResources", text);
            for instance in tree::items_mut(&mut model, "instances") {
                devices.push(self.device(instance));
            }
        }
        self.unknown(&old, "spec");
        let number = |text: &'static str| Node { at, value: Value::Number(Cow::Borrowed(text)) };
        let pool = tree::map(
            at,
            [
                ("name", tree::text(at, node_name.clone())),
                ("generation", number("1")),
                ("resourceSliceCount", number("1")),
            ],
        );
        let spec = tree::map(
            at,
            [
                ("driver", tree::text(at, driver)),
                ("nodeName", tree::text(at, node_name)),
                ("pool", pool),
                ("devices", tree::list(at, devices)),
            ],
        );
        tree::put(&mut object, "spec", spec);
        object
    }

    fn device<'a>(&mut self, instance: &mut Node<'a>) -> Node<'a> {
        let at = instance.at;
        let name = tree::take(instance, "name").unwrap_or_else(|| tree::text(at, "device"));
        let (mut attributes, mut capacity) = (Vec::new(), Vec::new());
        for attribute in tree::items_mut(instance, "attributes") {
            let name = tree::text_at(attribute, "name").unwrap_or_default().to_owned();
            let at = attribute.at;
            let Value::Map(entries) = &mut attribute.value else { continue };
            let Some(value) = entries.iter().position(|entry| entry.key != "name") else {
                continue;
            };
            let Entry { key, node, .. } = entries.remove(value);
            let text = tree_text(&node);
            let (id, kind, sure) = known(&name, &text);
            let id = if sure { id } else { identifier(&name) };
            let (list, value, what) = match (key.as_ref(), kind, normalized(&text)) {
                ("quantity", ..) => (&mut capacity, tree::map(at, [("value", node)]), "a capacity"),
                ("string" | "version", Kind::Version, Some(version)) => {
                    let version = tree::text(at, version.to_string());
                    (&mut attributes, tree::map(at, [("version", version)]), "a semantic version")
                }
                ("stringSlice" | "intSlice", ..) => {
                    let key = if key == "intSlice" { "ints" } else { "strings" };
                    let values = match tree::get(&node, key) {
                        Some(values) => values.clone(),
                        None => node,
                    };
                    (&mut attributes, tree::map(at, [(key, values)]), "a list (alpha since 1.36)")
                }
                _ => (&mut attributes, tree::map(at, [(key, node)]), "an attribute of its type"),
            };
            self.note(
                at,
                format!("attributes[{name}]"),
                format!("{id}, {what}: names are C identifiers"),
            );
            list.push((id, value));
        }
        let mut device = tree::map(at, [("name", name)]);
        for (key, values) in [("attributes", attributes), ("capacity", capacity)] {
            if !values.is_empty() {
                tree::put(&mut device, key, tree::map(at, values));
            }
        }
        device
    }
}

fn tree_text(node: &Node<'_>) -> String {
    match &node.value {
        Value::Str(text) | Value::Number(text) => text.to_string(),
        _ => String::new(),
    }
}
