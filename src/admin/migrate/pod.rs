//! A pod names its claims; before claims there were, it asked a device plugin for a number of GPUs.

use divvy_cdi::doc::{Entry, Node, Value};

use super::{Migration, NVIDIA, classic::selector};
use crate::claim::{served::V1, tree};

/// What device plugins of NVIDIA's GPUs were asked for.
const GPU: &str = "nvidia.com/gpu";
const MIG: &str = "nvidia.com/mig-";

// === impl Migration ===

impl Migration {
    pub(super) fn pod<'a>(&mut self, mut object: Node<'a>) -> Vec<Node<'a>> {
        let name = name(&object);
        let spec = tree::get_mut(&mut object, "spec");
        let mut objects = spec.map_or_else(Vec::new, |spec| self.pod_spec(spec, &name, "spec"));
        objects.push(object);
        objects
    }

    pub(super) fn workload<'a>(&mut self, mut object: Node<'a>) -> Vec<Node<'a>> {
        let name = name(&object);
        let spec =
            tree::get_mut(&mut object, "spec").and_then(|spec| tree::get_mut(spec, "template"));
        let spec = spec.and_then(|template| tree::get_mut(template, "spec"));
        let mut objects =
            spec.map_or_else(Vec::new, |spec| self.pod_spec(spec, &name, "spec.template.spec"));
        objects.push(object);
        objects
    }

    /// Changes a pod's spec; gives the templates that it now names.
    fn pod_spec<'a>(&mut self, spec: &mut Node<'a>, pod: &str, path: &str) -> Vec<Node<'a>> {
        for (index, claim) in tree::items_mut(spec, "resourceClaims").iter_mut().enumerate() {
            let Some(source) = tree::take(claim, "source") else { continue };
            let path = format!("{path}.resourceClaims[{index}].source");
            self.note(source.at, path, "what it names stands beside name since 1.31");
            if let (Value::Map(entries), Value::Map(inside)) = (&mut claim.value, source.value) {
                entries.extend(inside);
            }
        }
        let (mut templates, mut claims) = (Vec::new(), Vec::new());
        for (index, container) in tree::items_mut(spec, "containers").iter_mut().enumerate() {
            let path = format!("{path}.containers[{index}].resources");
            for template in self.container(container, pod, &path) {
                let name = name(&template);
                let claim = name.strip_prefix(&format!("{pod}-")).unwrap_or(&name).to_owned();
                claims.push(tree::map(
                    template.at,
                    [
                        ("name", tree::text(template.at, claim)),
                        ("resourceClaimTemplateName", tree::text(template.at, name)),
                    ],
                ));
                templates.push(template);
            }
        }
        if templates.is_empty() {
            return templates;
        }
        self.node_selector(spec, path);
        let mut all = match tree::take(spec, "resourceClaims").map(|claims| claims.value) {
            Some(Value::Seq(all)) => all,
            _ => Vec::new(),
        };
        all.extend(claims);
        let at = spec.at;
        tree::put(spec, "resourceClaims", tree::list(at, all));
        templates
    }

    /// Takes out what a container asks device plugins for, and makes templates that ask for as much.
    fn container<'a>(&mut self, container: &mut Node<'a>, pod: &str, path: &str) -> Vec<Node<'a>> {
        let own = tree::text_at(container, "name").unwrap_or("container").to_owned();
        let Some(resources) = tree::get_mut(container, "resources") else { return Vec::new() };
        let (mut templates, mut claims) = (Vec::new(), Vec::new());
        for (name, count, at) in taken(resources) {
            let what = name.strip_prefix(MIG).unwrap_or("gpu").replace(['.', '+'], "");
            let claim = format!("{own}-{what}");
            let text = format!(
                "{name} was served by a device plugin, without a say which; a claim of {count} in its \
                 place, ResourceClaimTemplate {pod}-{claim}. (Kubernetes 1.36 and later serve pods as \
                 they are where a DeviceClass has extendedResourceName: {name}.)"
            );
            self.note(at, format!("{path}.limits[{name}]"), text);
            templates.push(self.request(&format!("{pod}-{claim}"), &name, &count, at));
            claims.push(tree::map(at, [("name", tree::text(at, claim))]));
        }
        if !claims.is_empty() {
            let at = resources.at;
            let mut all = match tree::take(resources, "claims").map(|claims| claims.value) {
                Some(Value::Seq(all)) => all,
                _ => Vec::new(),
            };
            all.extend(claims);
            tree::put(resources, "claims", tree::list(at, all));
        }
        templates
    }

    fn request<'a>(&self, name: &str, resource: &str, count: &str, at: u32) -> Node<'a> {
        let driver = self.driver.clone().unwrap_or_else(|| NVIDIA.to_owned());
        let profile = resource.strip_prefix(MIG);
        // The classes that the drivers' own charts make.
        let class = match (profile, driver.as_str()) {
            (Some(_), NVIDIA) => "mig.nvidia.com".to_owned(),
            (Some(_), driver) => format!("mig.{driver}"),
            (None, driver) => driver.to_owned(),
        };
        let mut exactly = tree::map(at, [("deviceClassName", tree::text(at, class))]);
        if let Some(profile) = profile {
            let profile = super::parameter::quoted(&profile.replace(".me", "+me"));
            let expression = format!("device.attributes[\"{driver}\"].profile == {profile}");
            tree::put(&mut exactly, "selectors", tree::list(at, [selector(at, expression)]));
        }
        if count != "1" {
            let count = Node { at, value: Value::Number(count.to_owned().into()) };
            tree::put(&mut exactly, "count", count);
        }
        let request = tree::map(at, [("name", tree::text(at, "gpu")), ("exactly", exactly)]);
        let devices = tree::map(at, [("requests", tree::list(at, [request]))]);
        let spec = tree::map(at, [("spec", tree::map(at, [("devices", devices)]))]);
        tree::map(
            at,
            [
                ("apiVersion", tree::text(at, V1)),
                ("kind", tree::text(at, "ResourceClaimTemplate")),
                ("metadata", tree::map(at, [("name", tree::text(at, name.to_owned()))])),
                ("spec", spec),
            ],
        )
    }

    /// A label that says where a plugin's devices are.
    fn node_selector(&mut self, spec: &mut Node<'_>, path: &str) {
        let Some(Value::Map(entries)) = tree::get_mut(spec, "nodeSelector").map(|n| &mut n.value)
        else {
            return;
        };
        let at = entries.iter().position(|entry| entry.key.starts_with("nvidia.com/gpu"));
        let Some(Entry { key, at, .. }) = at.map(|at| entries.remove(at)) else { return };
        let empty = entries.is_empty();
        let text = "not needed: the scheduler knows which nodes have the devices that are claimed";
        self.note(at, format!("{path}.nodeSelector[{key}]"), text);
        if empty {
            tree::take(spec, "nodeSelector");
        }
    }
}

/// Takes a container's resources of device plugins out of its limits and requests.
fn taken(resources: &mut Node<'_>) -> Vec<(String, String, u32)> {
    let mut found: Vec<(String, String, u32)> = Vec::new();
    for key in ["limits", "requests"] {
        let Some(Value::Map(entries)) = tree::get_mut(resources, key).map(|node| &mut node.value)
        else {
            continue;
        };
        entries.retain(|entry| {
            let count = match &entry.node.value {
                Value::Number(text) | Value::Str(text) => text.to_string(),
                _ => return true,
            };
            let ours = (entry.key == GPU || entry.key.starts_with(MIG))
                && count.bytes().all(|digit| digit.is_ascii_digit())
                && count != "0";
            if ours && found.iter().all(|(name, ..)| *name != entry.key) {
                found.push((entry.key.to_string(), count, entry.at));
            }
            !ours
        });
        if entries.is_empty() {
            tree::take(resources, key);
        }
    }
    found
}

fn name(object: &Node<'_>) -> String {
    let metadata = tree::get(object, "metadata");
    metadata.and_then(|data| tree::text_at(data, "name")).unwrap_or("pod").to_owned()
}
