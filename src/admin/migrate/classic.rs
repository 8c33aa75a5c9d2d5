//! A classic claim named a class and the parameters of a driver's own kind; its driver's controller
//! chose the devices. Now it says what it wants of devices, and the scheduler chooses.

use divvy_cdi::doc::{Node, Value};

use super::{Migration, NVIDIA, parameter};
use crate::claim::{served::V1, tree};

// === impl Migration ===

impl Migration {
    pub(super) fn claim<'a>(&mut self, mut object: Node<'a>) -> Node<'a> {
        let at = object.at;
        tree::put(&mut object, "apiVersion", tree::text(at, V1));
        if let Some(status) = tree::take(&mut object, "status") {
            let text = "the old allocation means nothing to today's scheduler: it allocates anew";
            self.note(status.at, "status", text);
        }
        let spec = tree::take(&mut object, "spec").unwrap_or_else(|| tree::map(at, NONE));
        let spec = self.claim_spec(spec, "spec");
        tree::put(&mut object, "spec", spec);
        object
    }

    pub(super) fn template<'a>(&mut self, mut object: Node<'a>) -> Node<'a> {
        let at = object.at;
        tree::put(&mut object, "apiVersion", tree::text(at, V1));
        if let Some(outer) = tree::get_mut(&mut object, "spec")
            && let Some(spec) = tree::take(outer, "spec")
        {
            let spec = self.claim_spec(spec, "spec.spec");
            tree::put(outer, "spec", spec);
        }
        object
    }

    /// `spec.devices` for what a classic spec said.
    fn claim_spec<'a>(&mut self, mut spec: Node<'a>, path: &str) -> Node<'a> {
        let at = spec.at;
        let class = tree::take(&mut spec, "resourceClassName");
        let (name, class_at) = match &class {
            Some(Node { at, value: Value::Str(name) }) => (name.to_string(), *at),
            _ => (NVIDIA.to_owned(), at),
        };
        let driver = self.classes.get(&name).cloned();
        let there = match &driver {
            Some(_) => String::new(),
            None => {
                format!("; a DeviceClass {name} must be in the cluster, and is not among these")
            }
        };
        let text = format!("the class is named by each request, as deviceClassName{there}");
        self.note(class_at, format!("{path}.resourceClassName"), text);
        let driver = driver.or(self.driver.clone()).unwrap_or_else(|| NVIDIA.to_owned());
        let mut selectors = Vec::new();
        if let Some(parameters) = tree::take(&mut spec, "parameters") {
            selectors = self.parameters(&parameters, &format!("{path}.parameters"), &driver);
        }
        if let Some(reference) = tree::take(&mut spec, "parametersRef") {
            selectors.extend(self.reference(&reference, &format!("{path}.parametersRef")));
        }
        if let Some(mode) = tree::take(&mut spec, "allocationMode") {
            let text = "gone: a claim is allocated when a pod that uses it is scheduled";
            self.note(mode.at, format!("{path}.allocationMode"), text);
        }
        self.unknown(&spec, path);
        let mut exactly = tree::map(class_at, [("deviceClassName", tree::text(class_at, name))]);
        if !selectors.is_empty() {
            tree::put(&mut exactly, "selectors", tree::list(at, selectors));
        }
        let request = tree::map(at, [("name", tree::text(at, "req-0")), ("exactly", exactly)]);
        let devices = tree::map(at, [("requests", tree::list(at, [request]))]);
        tree::map(at, [("devices", devices)])
    }

    /// `parameters`, which articles show, as selectors.
    pub(super) fn parameters<'a>(
        &mut self,
        parameters: &Node<'a>,
        path: &str,
        driver: &str,
    ) -> Vec<Node<'a>> {
        let text = "no API that Kubernetes served ever had this field: v1alpha2 had parametersRef, the \
                    name of an object of the driver's own kind; read as what it says";
        self.note(parameters.at, path, text);
        let Value::Map(entries) = &parameters.value else { return Vec::new() };
        let mut selectors = Vec::new();
        for entry in entries {
            let at = entry.node.at;
            let path = format!("{path}.{}", entry.key);
            let value = match &entry.node.value {
                Value::Str(text) | Value::Number(text) => text.as_ref(),
                Value::Bool(_, text) => text,
                _ => {
                    self.note(at, path, "left out: it is no single value, and no selector says it");
                    continue;
                }
            };
            let selected = parameter::selector(&entry.key, value, driver);
            self.note(at, path, selected.why);
            selectors.push(selector(at, selected.expression));
        }
        selectors
    }

    /// The selectors of the parameters that a claim refers to, where they are among the manifests.
    fn reference<'a>(&mut self, reference: &Node<'a>, path: &str) -> Vec<Node<'a>> {
        let kind = tree::text_at(reference, "kind").unwrap_or("an object").to_owned();
        let name = tree::text_at(reference, "name").unwrap_or_default().to_owned();
        let found = match kind.as_str() {
            "ResourceClaimParameters" => self.parameters.get(&name).cloned(),
            _ => None,
        };
        let text = match &found {
            Some(_) => format!("the selectors of {kind} {name} stand in the claim itself"),
            None => format!(
                "gone: {kind} {name} was of a kind that its driver alone knew; write what it asked for \
                 as selectors, and how devices are set up as config[].opaque"
            ),
        };
        self.note(reference.at, path, text);
        let found = found.unwrap_or_default().into_iter();
        found.map(|(expression, _)| selector(reference.at, expression)).collect()
    }

    /// Says of each field that is left that nobody ever defined it.
    pub(super) fn unknown(&mut self, left: &Node<'_>, path: &str) {
        let Value::Map(entries) = &left.value else { return };
        for entry in entries {
            let text = "left out: no API that Kubernetes served ever had this field here";
            self.note(entry.at, format!("{path}.{}", entry.key), text);
        }
    }
}

pub(super) const NONE: [(&str, Node<'static>); 0] = [];

/// An item of `selectors`.
pub(super) fn selector<'a>(at: u32, expression: String) -> Node<'a> {
    let cel = tree::map(at, [("expression", tree::text(at, expression))]);
    tree::map(at, [("cel", cel)])
}
