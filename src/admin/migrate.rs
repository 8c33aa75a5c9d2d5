//! `divvy migrate`: manifests of Dynamic Resource Allocation in the forms of earlier years, as v1 has
//! them.
//!
//! What each version had stands here as read in Kubernetes' API of those releases: v1alpha1 (1.26)
//! and v1alpha2 (1.27 to 1.30) are the classic form, v1alpha3 (1.31) and later the structured one.

mod class;
mod classic;
mod parameter;
mod pod;
mod slice;

use std::{collections::BTreeMap, path::PathBuf};

use divvy_cdi::doc::{self, Node, Value, position};

use super::{Answer, Exit, Failure, document, prepare, tell};
use crate::claim::{
    NVIDIA_DRIVER,
    served::{self, Note, V1},
    tree, wrong_with,
};

/// Print manifests of earlier versions of Dynamic Resource Allocation in today's form.
///
/// Reads ResourceClaims, templates, classes and slices of every version since v1alpha1, and pods
/// that use them or ask for nvidia.com/gpu. Prints resource.k8s.io/v1 on standard output, and on
/// standard error what each field meant and what replaced it. Other objects pass through.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  divvy migrate old.yaml > new.yaml
  divvy migrate --driver gpu.divvy.dev claims.yaml pod.yaml
  kubectl get resourceclaims -o yaml | divvy migrate -")]
pub(super) struct Migrate {
    /// The manifests, YAML or JSON; - is stdin
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// The DRA driver whose devices are meant, where the manifest names none or another
    #[arg(long, value_name = "NAME")]
    driver: Option<String>,
}

/// Manifests on the way from one form to the other.
#[derive(Debug, Default)]
struct Migration {
    /// The driver that was asked for.
    driver: Option<String>,
    /// The driver of each class, by its name.
    classes: BTreeMap<String, String>,
    /// Selectors out of ResourceClaimParameters, by the name of these.
    parameters: BTreeMap<String, Vec<(String, u32)>>,
    /// What was changed.
    notes: Vec<Note>,
}

/// Where a manifest names no driver that there can be: NVIDIA's own.
const NVIDIA: &str = NVIDIA_DRIVER;

const CLASSIC: [&str; 2] = ["resource.k8s.io/v1alpha1", "resource.k8s.io/v1alpha2"];

// === impl Migrate ===

impl Migrate {
    pub(super) fn run(&self) -> Result<Answer, Failure> {
        if let Some(driver) = &self.driver
            && let Some(wrong) = wrong_with(driver)
        {
            let line = format!("--driver {driver:?} {wrong}: it is a DNS name, such as {NVIDIA}");
            return Err(Failure::new("USAGE", line));
        }
        let mut files = Vec::new();
        for file in &self.files {
            files.push((file.display().to_string(), prepare::bytes(file)?));
        }
        let mut trees = Vec::new();
        let mut migration = Migration { driver: self.driver.clone(), ..Migration::default() };
        for (file, bytes) in &files {
            let documents = doc::read_all(bytes).map_err(|error| {
                let at = error.at.map_or(String::new(), |at| format!(":{}:{}", at.line, at.column));
                Failure::new("CLAIM-INVALID", format!("{file}{at}: {error}"))
            })?;
            let objects: Vec<Node<'_>> = documents.into_iter().flat_map(flat).collect();
            objects.iter().for_each(|object| migration.look(object));
            trees.push((file, bytes, objects));
        }
        let mut printed = Vec::new();
        for (file, bytes, objects) in trees {
            for object in objects {
                printed.extend(migration.object(object));
            }
            let mut notes = std::mem::take(&mut migration.notes);
            notes.sort_by_key(|note| note.at);
            for Note { at, path, text } in notes {
                let at = position(bytes, at);
                tell(&format!("{file}:{}:{}: {path}: {text}\n", at.line, at.column));
            }
        }
        let (text, json) = (document::yaml(&printed), document::json(&printed));
        Ok(Answer { text, json, exit: Exit::Ok })
    }
}

fn flat(mut document: Node<'_>) -> Vec<Node<'_>> {
    let is_list = tree::text_at(&document, "kind") == Some("List");
    let items = if is_list { tree::take(&mut document, "items") } else { None };
    match items.map(|items| items.value) {
        Some(Value::Seq(items)) => items,
        _ => vec![document],
    }
}

// === impl Migration ===

impl Migration {
    fn note(&mut self, at: u32, path: impl Into<String>, text: impl Into<String>) {
        self.notes.push(Note { at, path: path.into(), text: text.into() });
    }

    /// Sees what other objects will refer to.
    fn look(&mut self, object: &Node<'_>) {
        let version = tree::text_at(object, "apiVersion").unwrap_or_default();
        let named = tree::get(object, "metadata").and_then(|data| tree::text_at(data, "name"));
        let (Some(kind), Some(name)) = (tree::text_at(object, "kind"), named) else { return };
        match kind {
            "ResourceClass" | "DeviceClass" if CLASSIC.contains(&version) => {
                let driver = self.driver_of(class::driver_name(object).unwrap_or_default());
                self.classes.insert(name.to_owned(), driver);
            }
            "ResourceClass" | "DeviceClass" => {
                let driver = self.driver.clone().unwrap_or_else(|| NVIDIA.to_owned());
                self.classes.insert(name.to_owned(), driver);
            }
            "ResourceClaimParameters" => {
                let selectors = parameter::selectors(object, self.driver.as_deref());
                self.parameters.insert(name.to_owned(), selectors);
            }
            _ => {}
        }
    }

    /// The driver that a name of a manifest means: itself where it can be one.
    fn driver_of(&self, name: &str) -> String {
        match &self.driver {
            Some(driver) => driver.clone(),
            None if name.is_empty() || wrong_with(name).is_some() => NVIDIA.to_owned(),
            None => name.to_owned(),
        }
    }

    /// What an object is in today's form.
    fn object<'a>(&mut self, object: Node<'a>) -> Vec<Node<'a>> {
        let at = object.at;
        let version = tree::text_at(&object, "apiVersion").unwrap_or_default().to_owned();
        let kind = tree::text_at(&object, "kind").unwrap_or_default().to_owned();
        if version == V1 {
            self.note(at, kind, "is in today's form already");
            return vec![object];
        }
        if CLASSIC.contains(&version.as_str()) {
            return self.classic(object, &version, &kind);
        }
        if version.starts_with("resource.k8s.io/") {
            return self.structured(object, &kind);
        }
        match kind.as_str() {
            "Pod" => self.pod(object),
            "Deployment" | "StatefulSet" | "DaemonSet" | "Job" | "ReplicaSet" => {
                self.workload(object)
            }
            _ => vec![object],
        }
    }

    /// v1alpha3 and later: what served APIs had, and v1 has not.
    fn structured<'a>(&mut self, mut object: Node<'a>, kind: &str) -> Vec<Node<'a>> {
        if kind == "PodSchedulingContext" {
            self.note(object.at, kind, "gone since 1.32: the scheduler allocates by itself");
            return Vec::new();
        }
        for key in ["controller", "suitableNodes"] {
            let spec = tree::get_mut(&mut object, "spec");
            if let Some(old) = spec.and_then(|spec| tree::take(spec, key)) {
                let text =
                    "of the classic form, with a controller for each driver: gone since 1.32";
                self.note(old.at, format!("spec.{key}"), text);
            }
        }
        vec![served::upgrade(object, &mut self.notes)]
    }

    fn classic<'a>(&mut self, object: Node<'a>, version: &str, kind: &str) -> Vec<Node<'a>> {
        let at = object.at;
        let old = |since: &str| format!("{version} became {V1}: {since}");
        match kind {
            "ResourceClaim" => {
                self.note(at, "apiVersion", old("the classic form ended with Kubernetes 1.31"));
                vec![self.claim(object)]
            }
            "ResourceClaimTemplate" => {
                self.note(at, "apiVersion", old("the classic form ended with Kubernetes 1.31"));
                vec![self.template(object)]
            }
            "ResourceClass" | "DeviceClass" => {
                self.note(at, "apiVersion", old("classes are DeviceClasses since 1.31"));
                vec![self.class(object, kind)]
            }
            "ResourceSlice" => {
                self.note(at, "apiVersion", old("slices say pool and devices since 1.31"));
                vec![self.slice(object)]
            }
            "ResourceClaimParameters" | "ResourceClassParameters" => {
                let text = "gone since 1.31: selectors stand in the claim, or in its class, itself";
                self.note(at, kind, text);
                Vec::new()
            }
            "PodScheduling" | "PodSchedulingContext" => {
                self.note(at, kind, "gone since 1.32: the scheduler allocates by itself");
                Vec::new()
            }
            other => {
                self.note(
                    at,
                    other,
                    format!("{version} has no such kind; passed through as it is"),
                );
                vec![object]
            }
        }
    }
}
