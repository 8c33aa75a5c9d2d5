//! A class named its driver; now it selects devices, its driver's among them.

use divvy_cdi::doc::{Node, Value};

use super::{
    Migration,
    classic::{NONE, selector},
};
use crate::claim::{served::V1, tree, wrong_with};

/// The driver that a classic class names, at the top as v1alpha2 had it or below `spec`.
pub(super) fn driver_name<'n>(object: &'n Node<'_>) -> Option<&'n str> {
    let below = || tree::get(object, "spec").and_then(|spec| tree::text_at(spec, "driverName"));
    tree::text_at(object, "driverName").or_else(below)
}

// === impl Migration ===

impl Migration {
    pub(super) fn class<'a>(&mut self, mut object: Node<'a>, kind: &str) -> Node<'a> {
        let at = object.at;
        tree::put(&mut object, "apiVersion", tree::text(at, V1));
        let text = match kind {
            "DeviceClass" => {
                "v1alpha2 had no DeviceClass: its classes were ResourceClasses, without a spec"
            }
            _ => "a ResourceClass became a DeviceClass",
        };
        self.note(at, "kind", text);
        tree::put(&mut object, "kind", tree::text(at, "DeviceClass"));
        let mut spec = tree::take(&mut object, "spec").unwrap_or_else(|| tree::map(at, NONE));
        let path =
            |below: bool, key: &str| if below { format!("spec.{key}") } else { key.to_owned() };
        let mut old = |spec: &mut Node<'a>, key: &str| {
            let top = tree::take(&mut object, key).map(|node| (path(false, key), node));
            top.or_else(|| tree::take(spec, key).map(|node| (path(true, key), node)))
        };
        let named = old(&mut spec, "driverName");
        let parameters = old(&mut spec, "parameters");
        let reference = old(&mut spec, "parametersRef");
        let nodes = old(&mut spec, "suitableNodes");
        let structured = old(&mut spec, "structuredParameters");
        let name = match &named {
            Some((_, Node { value: Value::Str(name), .. })) => name.to_string(),
            _ => String::new(),
        };
        let driver = self.driver_of(&name);
        let mut selectors =
            vec![selector(at, format!("device.driver == {}", super::parameter::quoted(&driver)))];
        if let Some((path, node)) = named {
            self.driver_note(node.at, path, &name, &driver);
            if name.ends_with("/gpu") {
                let whole = format!("device.attributes[\"{driver}\"].type == \"gpu\"");
                selectors.push(selector(node.at, whole));
            }
        }
        if let Some((path, node)) = parameters {
            selectors.extend(self.parameters(&node, &path, &driver));
        }
        let gone = [
            (
                reference,
                "gone: the object was of a kind that its driver alone knew; write how devices \
              are set up as spec.config[].opaque",
            ),
            (
                nodes,
                "gone: devices are where slices say they are, and a selector chooses among them",
            ),
            (structured, "gone: all parameters are structured now"),
        ];
        for (old, text) in gone {
            if let Some((path, node)) = old {
                self.note(node.at, path, text);
            }
        }
        self.unknown(&spec, "spec");
        let spec = tree::map(at, [("selectors", tree::list(at, selectors))]);
        tree::put(&mut object, "spec", spec);
        object
    }

    pub(super) fn driver_note(&mut self, at: u32, path: String, name: &str, driver: &str) {
        let text = match wrong_with(name) {
            None if name == driver => format!("devices of driver {driver}, as a selector"),
            None => format!("devices of driver {driver} in its place, as --driver says"),
            Some(_) => format!(
                "{name} is the name of an extended resource of a device plugin, and can be no driver's; \
                 read as driver {driver}, as a selector for whole GPUs (--driver names another)"
            ),
        };
        self.note(at, path, text);
    }
}
