//! `divvy allocate`: shows which devices claims would be given.

use std::path::PathBuf;

use divvy_cdi::doc::{Node, Value};

use super::{Answer, Exit, Failure, Places, claim_name, devices, document, prepare, tell};
use crate::{
    allocate::{Allocated, Chosen, Merged, Source},
    claim::{Sharing, Toleration, objects, tree},
    plan::Held,
};

/// Print the claims of a file with the devices that they would be given on this node.
///
/// Nothing is changed. The claims are printed as a scheduler would leave them, with
/// status.allocation: what Kubernetes' allocator gives on a cluster of this node alone, beside what
/// is prepared already. Each claim leaves to the next what it does not take.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  divvy allocate --gpus sim:node.toml -f claims.yaml
  divvy allocate --gpus nvml -f claims.yaml --name team-a/training -o json
  divvy allocate --devices fpgas.yaml -f claims.yaml
  divvy allocate --gpus nvml -f claims.yaml | divvy prepare --gpus nvml -f -")]
pub(super) struct Allocate {
    /// The manifests, YAML or JSON; - is stdin
    #[arg(short, long, value_name = "FILE")]
    file: PathBuf,
    /// Only the claim of this name, [namespace/]name
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
}

// === impl Allocate ===

impl Allocate {
    pub(super) fn run(&self, places: &Places<'_>) -> Result<Answer, Failure> {
        let name = self.name.as_deref();
        name.map(claim_name).transpose()?;
        let bytes = prepare::bytes(&self.file)?;
        let opened = places.pool()?;
        let driver = opened.pool().driver();
        let manifests = prepare::parse(&self.file, &bytes, driver)?;
        let written = objects(&bytes).into_iter().filter(is_claim);
        let mut held = devices::held(&places.journal(driver)?)?;
        let stock = opened.pool().look().map_err(|error| Failure::of(error.code(), &error))?;
        let mut printed = Vec::new();
        let wanted = |title: &str, own: &str| name.is_none_or(|name| name == title || name == own);
        for (claim, mut object) in manifests.claims.iter().zip(written) {
            if !wanted(&claim.title(), &claim.name) {
                continue;
            }
            if claim.allocation.is_some() {
                tell(&format!("claim {}: is allocated already\n", claim.title()));
                printed.push(object);
                continue;
            }
            let allocated = stock
                .allocate(claim, &manifests.classes, &held)
                .map_err(|error| Failure::of(error.code(), &error))?;
            for chosen in allocated.results.iter().filter(|chosen| !chosen.admin) {
                held.extend(stock.target(&chosen.device).map(|target| Held {
                    claim: claim.title(),
                    target,
                    share: chosen.share.clone(),
                    // Nothing is prepared beside it here.
                    switched: false,
                    sharing: Sharing::default(),
                }));
            }
            let allocation = allocation(&allocated, &object, &bytes);
            if tree::get(&object, "status").is_none_or(|status| status.value == Value::Null) {
                tree::put(&mut object, "status", tree::map(0, NONE));
            }
            if let Some(status) = tree::get_mut(&mut object, "status") {
                tree::put(status, "allocation", allocation);
            }
            printed.push(object);
        }
        if printed.is_empty() {
            // The error that names what the file has.
            prepare::only(prepare::parse(&self.file, &bytes, driver)?, &self.file, name)?;
        }
        let (text, json) = (document::yaml(&printed), document::json(&printed));
        Ok(Answer { text, json, exit: Exit::Ok })
    }
}

const NONE: [(&str, Node<'static>); 0] = [];

fn is_claim(object: &Node<'_>) -> bool {
    let is = |key, wanted: fn(&str) -> bool| tree::text_at(object, key).is_some_and(wanted);
    is("kind", |kind| kind == "ResourceClaim")
        && is("apiVersion", |version| version.starts_with("resource.k8s.io/"))
}

/// `status.allocation`, as Kubernetes has it.
fn allocation<'a>(allocated: &Allocated, claim: &Node<'a>, bytes: &'a [u8]) -> Node<'a> {
    let results = allocated.results.iter().map(|chosen| result(chosen, allocated));
    let mut devices = tree::map(0, [("results", tree::list(0, results))]);
    let config: Vec<Node<'a>> =
        allocated.config.iter().filter_map(|merged| configured(merged, claim, bytes)).collect();
    if !config.is_empty() {
        tree::put(&mut devices, "config", tree::list(0, config));
    }
    let node = tree::list(0, [text(&allocated.pool)]);
    let field = [("key", text("metadata.name")), ("operator", text("In")), ("values", node)];
    let fields = tree::list(0, [tree::map(0, field)]);
    let terms = tree::list(0, [tree::map(0, [("matchFields", fields)])]);
    let selector = tree::map(0, [("nodeSelectorTerms", terms)]);
    tree::map(0, [("devices", devices), ("nodeSelector", selector)])
}

fn result<'a>(chosen: &Chosen, of: &Allocated) -> Node<'a> {
    let mut result = tree::map(
        0,
        [
            ("request", text(&chosen.request)),
            ("driver", text(&of.driver)),
            ("pool", text(&of.pool)),
            ("device", text(&chosen.device)),
        ],
    );
    if chosen.admin {
        tree::put(&mut result, "adminAccess", Node { at: 0, value: Value::Bool(true, "true") });
    }
    if !chosen.tolerations.is_empty() {
        let tolerations = tree::list(0, chosen.tolerations.iter().map(toleration));
        tree::put(&mut result, "tolerations", tolerations);
    }
    if let Some(share) = &chosen.share {
        tree::put(&mut result, "shareID", text(&share.id));
        let amounts = share.consumed.iter();
        let consumed = amounts.map(|(name, amount)| (name.clone(), text(&amount.to_string())));
        tree::put(&mut result, "consumedCapacity", tree::map(0, consumed));
    }
    result
}

fn toleration<'a>(toleration: &Toleration) -> Node<'a> {
    let mut node = tree::map(0, NONE);
    if !toleration.key.is_empty() {
        tree::put(&mut node, "key", text(&toleration.key));
    }
    let operator = if toleration.value.is_some() { "Equal" } else { "Exists" };
    tree::put(&mut node, "operator", text(operator));
    if let Some(value) = toleration.value.as_ref().filter(|value| !value.is_empty()) {
        tree::put(&mut node, "value", text(value));
    }
    if let Some(effect) = toleration.effect {
        tree::put(&mut node, "effect", text(&format!("{effect:?}")));
    }
    node
}

/// A configuration as its source has it, which may be another driver's.
fn configured<'a>(merged: &Merged, claim: &Node<'a>, bytes: &'a [u8]) -> Option<Node<'a>> {
    let (source, entries) = match &merged.source {
        Source::Claim => {
            let devices = tree::get(tree::get(claim, "spec")?, "devices")?;
            ("FromClaim", tree::get(devices, "config")?.clone())
        }
        Source::Class(name) => {
            let class = objects(bytes).into_iter().find(|object| is_class(object, name))?;
            ("FromClass", tree::get(tree::get(&class, "spec")?, "config")?.clone())
        }
    };
    let Value::Seq(mut entries) = entries.value else { return None };
    if merged.index >= entries.len() {
        return None;
    }
    let mut entry = entries.swap_remove(merged.index);
    let opaque = tree::take(&mut entry, "opaque")?;
    let mut configured = tree::map(0, [("source", text(source))]);
    if !merged.requests.is_empty() {
        let requests = tree::list(0, merged.requests.iter().map(|name| text(name)));
        tree::put(&mut configured, "requests", requests);
    }
    tree::put(&mut configured, "opaque", opaque);
    Some(configured)
}

fn is_class(object: &Node<'_>, name: &str) -> bool {
    let own = tree::get(object, "metadata").and_then(|metadata| tree::text_at(metadata, "name"));
    tree::text_at(object, "kind") == Some("DeviceClass") && own == Some(name)
}

fn text<'a>(text: &str) -> Node<'a> {
    tree::text(0, text.to_owned())
}
