//! A manifest is a file of Kubernetes objects; of these, claims and device classes are read.
//!
//! Fields that Kubernetes defines and divvy has no use for are passed over; fields that would change
//! what is given are read or refused, and so is a field that nobody defined.

use std::{collections::BTreeSet, path::Path};

use divvy_cdi::doc::{self, Node, Value};
use divvy_hook::record::Consumer;
use serde::Serialize;

use super::{
    Allocation, Claim, ClaimError, ConfigEntry, Configured, Given, Manifest, Request, Selector,
    Share, Wants, ask, covers,
    field::Field,
    local_uid,
    name::{named, uid, wrong_with},
    schema, served, tree,
};

/// The most bytes that a manifest may have.
pub const MAX_BYTES: usize = 4 << 20;

/// What a file holds.
#[derive(Debug, Default)]
pub struct Manifests {
    /// The claims, in the order of the file, at least one.
    pub claims: Vec<Claim>,
    /// The device classes.
    pub classes: Vec<Class>,
}

/// A device class: what devices there are for those who name it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Class {
    /// Its name.
    pub name: String,
    /// CEL expressions that all must hold.
    pub selectors: Vec<Selector>,
    /// Configuration of its devices.
    pub config: Vec<ConfigEntry>,
}

/// The most items of a list of a claim or class, as Kubernetes has it. An allocation's
/// configuration holds that of the classes and of the claim.
pub(super) const MAX_ITEMS: usize = 32;
const MAX_ALLOCATED_CONFIG: usize = 2 * MAX_ITEMS;
const MAX_CONSUMERS: usize = 256;

const API_GROUP: &str = "resource.k8s.io/";

/// The annotation of a claim that a template made.
const POD_CLAIM: &str = "resource.kubernetes.io/pod-claim-name";

// === impl Manifests ===

impl Manifests {
    /// The claims and classes among the bytes of a file, in any form that Kubernetes served, as far as
    /// they are this driver's.
    ///
    /// # Errors
    /// On the first thing that is wrong in each object, all of them; and without any claim.
    pub fn parse(file: &Path, bytes: &[u8], driver: &str) -> Result<Self, ClaimError> {
        let shown = || file.display().to_string();
        let documents = doc::read_all(bytes)
            .map_err(|source| ClaimError::Document { file: shown(), source })?;
        let documents: Vec<_> = documents.into_iter().flat_map(flat).collect();
        let manifest = Manifest { file, bytes: Some(bytes), driver };
        let mut found = Self::default();
        let mut others = BTreeSet::new();
        let mut problems = Vec::new();
        for object in &documents {
            if let Err(error) = found.take(&Field::top(manifest, object), &mut others) {
                problems.push(error);
            }
        }
        match problems.len() {
            0 if found.claims.is_empty() => {
                let found = match others.is_empty() {
                    true => "nothing".to_owned(),
                    false => others.into_iter().collect::<Vec<_>>().join(", "),
                };
                Err(ClaimError::NoClaim { file: shown(), found })
            }
            0 => found.check(&shown()),
            1 => Err(problems.remove(0)),
            _ => Err(ClaimError::Many { file: shown(), problems }),
        }
    }

    /// Only the claim of this name, `[namespace/]name`.
    ///
    /// # Errors
    /// When the file has none.
    pub fn only(mut self, file: &Path, name: &str) -> Result<Self, ClaimError> {
        let is = |claim: &Claim| claim.name == name || claim.title() == name;
        if !self.claims.iter().any(is) {
            let found = self.claims.iter().map(Claim::title).collect();
            let (file, name) = (file.display().to_string(), name.to_owned());
            return Err(ClaimError::NoSuchClaim { file, name, found });
        }
        self.claims.retain(is);
        Ok(self)
    }

    fn take(
        &mut self,
        object: &Field<'_>,
        others: &mut BTreeSet<String>,
    ) -> Result<(), ClaimError> {
        let version = object.need("apiVersion")?;
        let kind = object.need("kind")?;
        let (group, name) = (version.as_text()?, kind.as_text()?);
        let ours = matches!(name, "ResourceClaim" | "DeviceClass") && group.starts_with(API_GROUP);
        if !ours {
            others.insert(name.to_owned());
            return Ok(());
        }
        if group != served::V1 {
            let message = format!(
                "{name} of {group}: no version of it that Kubernetes serves; `divvy migrate` prints \
                 it as {}",
                served::V1
            );
            return Err(version.problem("CLAIM-VERSION", message));
        }
        if name == "ResourceClaim" {
            self.claims.push(claim(object)?);
        } else {
            self.classes.push(class(object)?);
        }
        Ok(())
    }

    /// What can only be seen with all objects at hand: nothing may be there twice.
    fn check(self, file: &str) -> Result<Self, ClaimError> {
        let mut claims = self.claims.iter().map(|claim| ("ResourceClaim", claim.title()));
        let classes = self.classes.iter().map(|class| ("DeviceClass", class.name.clone()));
        let twice = |what| ClaimError::Twice { file: file.to_owned(), what };
        let mut seen = BTreeSet::new();
        if let Some((kind, name)) =
            claims.by_ref().chain(classes).find(|object| !seen.insert(object.clone()))
        {
            return Err(twice(format!("{kind} {name}")));
        }
        let mut uids = BTreeSet::new();
        match self.claims.iter().find(|claim| !uids.insert(claim.uid.as_str())) {
            Some(claim) => Err(twice(format!("the UID {}", claim.uid))),
            None => Ok(self),
        }
    }
}

/// The objects of a file, each as v1 has it; none of what is no YAML.
pub(crate) fn objects(bytes: &[u8]) -> Vec<Node<'_>> {
    doc::read_all(bytes).unwrap_or_default().into_iter().flat_map(flat).collect()
}

/// A document's objects: itself, or the items of a `List` (`kubectl get -o yaml`).
fn flat(mut document: Node<'_>) -> Vec<Node<'_>> {
    let is_list = tree::text_at(&document, "kind") == Some("List");
    let items = if is_list { tree::take(&mut document, "items") } else { None };
    let items = match items.map(|items| items.value) {
        Some(Value::Seq(items)) => items,
        _ => vec![document],
    };
    items.into_iter().map(|object| served::upgrade(object, &mut Vec::new())).collect()
}

// === impl Claim ===

impl Claim {
    /// The claim that the API server has, as far as a node has use for it: who it is, what it was given of this
    /// driver's, and who may use it. What a newer Kubernetes adds is passed over; our own configuration stays strict.
    ///
    /// # Errors
    /// On the first thing that is wrong; `title` names the claim in them.
    pub fn of_api(title: &str, bytes: &[u8], driver: &str) -> Result<Self, ClaimError> {
        let file = format!("claim {title}");
        let object = doc::read(bytes)
            .map_err(|source| ClaimError::Document { file: file.clone(), source })?;
        let manifest = Manifest { file: file.as_ref(), bytes: None, driver };
        let mut claim = identity(&Field::top(manifest, &object))?;
        if let Some(status) = Field::top(manifest, &object).get("status")? {
            claim.read_status(&status, None)?;
        }
        Ok(claim)
    }

    /// Only the UID of an object of the API server's: whatever else is wrong with it does not count.
    ///
    /// # Errors
    /// When it has none.
    pub(crate) fn uid_of_api(title: &str, bytes: &[u8]) -> Result<String, ClaimError> {
        let file = format!("claim {title}");
        let object = doc::read(bytes)
            .map_err(|source| ClaimError::Document { file: file.clone(), source })?;
        let manifest = Manifest { file: file.as_ref(), bytes: None, driver: "" };
        Ok(identity(&Field::top(manifest, &object))?.uid)
    }

    /// Reads what it was given, by requests that it has where those are known, and who may use it.
    fn read_status(
        &mut self,
        status: &Field<'_>,
        requests: Option<&[Request]>,
    ) -> Result<(), ClaimError> {
        status.only(schema::STATUS)?;
        self.allocation = match status.get("allocation")? {
            Some(field) => Some(allocation(&field, requests)?),
            None => None,
        };
        let consumers = status.list("reservedFor", MAX_CONSUMERS)?;
        self.consumers = consumers.iter().map(consumer).collect::<Result<_, _>>()?;
        Ok(())
    }
}

/// A claim of which only its names are known.
fn identity(object: &Field<'_>) -> Result<Claim, ClaimError> {
    let metadata = object.need("metadata")?;
    let name = named(&metadata, "name")?;
    let namespace = match metadata.get("namespace")? {
        Some(_) => named(&metadata, "namespace")?,
        None => "default".to_owned(),
    };
    let uid = match metadata.get("uid")? {
        Some(field) => uid(&field)?,
        None => local_uid(&namespace, &name),
    };
    let annotations = metadata.get("annotations")?;
    let pod_claim = annotations.map(|all| all.text(POD_CLAIM)).transpose()?.flatten();
    Ok(Claim {
        uid,
        namespace,
        name,
        pod_claim: pod_claim.filter(|name| wrong_with(name).is_none()),
        requests: Vec::new(),
        constraints: Vec::new(),
        config: Vec::new(),
        allocation: None,
        consumers: Vec::new(),
    })
}

fn claim(object: &Field<'_>) -> Result<Claim, ClaimError> {
    object.only(schema::CLAIM)?;
    let mut claim = identity(object)?;
    let spec = object.need("spec")?;
    spec.only(schema::CLAIM_SPEC)?;
    let devices = spec.get("devices")?;
    if let Some(devices) = &devices {
        devices.only(schema::DEVICES)?;
        claim.requests = ask::requests(devices)?;
        let constraints = devices.list("constraints", MAX_ITEMS)?;
        let constraints = constraints.iter().map(|field| ask::constraint(field, &claim.requests));
        claim.constraints = constraints.collect::<Result<_, _>>()?;
    }
    if let Some(status) = object.get("status")? {
        let requests = claim.requests.clone();
        claim.read_status(&status, Some(&requests))?;
    }
    if let Some(devices) = &devices {
        let entries = devices.list("config", MAX_ITEMS)?;
        let given = claim.allocation.as_ref().map(|allocation| allocation.results.as_slice());
        claim.config = config(&entries, schema::CLAIM_CONFIG, Some(&claim.requests), given)?;
    }
    Ok(claim)
}

fn consumer(field: &Field<'_>) -> Result<Consumer, ClaimError> {
    field.only(schema::CONSUMER)?;
    // Pods are the only ones so far; another is recorded as what it is.
    let kind = match field.need_text("resource")?.as_str() {
        "pods" => "Pod".to_owned(),
        resource => resource.to_owned(),
    };
    Ok(Consumer { kind, uid: field.need_text("uid")?, name: field.need_text("name")? })
}

fn class(object: &Field<'_>) -> Result<Class, ClaimError> {
    object.only(schema::CLASS)?;
    let name = named(&object.need("metadata")?, "name")?;
    let Some(spec) = object.get("spec")? else {
        return Ok(Class { name, selectors: Vec::new(), config: Vec::new() });
    };
    spec.only(schema::CLASS_SPEC)?;
    let configs = spec.list("config", MAX_ITEMS)?;
    let config = config(&configs, schema::CLASS_CONFIG, Some(&[]), None)?;
    Ok(Class { name, selectors: ask::selectors(&spec)?, config })
}

/// Configuration entries, each naming requests that the claim has, where they are known. `given` is what the claim was
/// given of ours; while it was given nothing yet, all that it may be given here is ours.
fn config(
    entries: &[Field<'_>],
    known: &[&str],
    requests: Option<&[Request]>,
    given: Option<&[Given]>,
) -> Result<Vec<ConfigEntry>, ClaimError> {
    let is_ours = |names: &[String]| {
        let named = |one: &Given| names.iter().any(|name| covers(name, &one.request));
        given.is_none_or(|given| given.iter().any(|one| names.is_empty() || named(one)))
    };
    let read = |entry: &Field<'_>| {
        let ours = Configured::read(entry, known, is_ours)?;
        let names = entry.texts("requests", MAX_ITEMS)?;
        let lacks = |name: &&String| requests.is_some_and(|requests| !has(requests, name));
        match names.iter().find(lacks) {
            Some(name) => Err(entry.wrong(format!("requests: the claim has no request {name:?}"))),
            None => Ok(ConfigEntry { requests: names, ours }),
        }
    };
    entries.iter().map(read).collect()
}

fn allocation(field: &Field<'_>, requests: Option<&[Request]>) -> Result<Allocation, ClaimError> {
    field.only(schema::ALLOCATION)?;
    let Some(devices) = field.get("devices")? else {
        return Ok(Allocation::default());
    };
    devices.only(schema::ALLOCATED)?;
    let (mut results, mut drivers) = (Vec::new(), BTreeSet::new());
    for result in devices.list("results", MAX_ITEMS)? {
        result.only(schema::RESULT)?;
        let (request, driver) = (result.need_text("request")?, result.need_text("driver")?);
        let (pool, device) = (result.need_text("pool")?, result.need_text("device")?);
        drivers.insert(driver.clone());
        if driver != field.driver() {
            continue;
        }
        if requests.is_some_and(|requests| !has(requests, &request)) {
            return Err(result.wrong(format!("the claim has no request {request:?}")));
        }
        let (admin, share) = (result.flag("adminAccess")?, Share::read(&result)?);
        if let Some(Share { id, .. }) = &share
            && results.iter().any(|one: &Given| one.device == device && one.is_share(id))
        {
            return Err(result.wrong(format!("the share {id} of {device} is there twice")));
        }
        results.push(Given { request, pool, device, admin, share });
    }
    let (mut classes, mut claims) = (Vec::new(), Vec::new());
    for entry in devices.list("config", MAX_ALLOCATED_CONFIG)? {
        // Before the source is looked for: it may be the one that is misspelled.
        entry.only(schema::ALLOCATED_CONFIG)?;
        match entry.need("source")?.as_text()? {
            "FromClass" => classes.push(entry),
            "FromClaim" => claims.push(entry),
            other => {
                let message = format!("source {other:?}: known are FromClass, FromClaim");
                return Err(entry.wrong(message));
            }
        }
    }
    classes.append(&mut claims);
    let config = config(&classes, schema::ALLOCATED_CONFIG, requests, Some(&results))?;
    let config = config.into_iter().filter_map(|entry| entry.ours).collect();
    Ok(Allocation { results, config, drivers })
}

/// True for the name of a request, and for `request/subrequest`.
pub(super) fn has(requests: &[Request], name: &str) -> bool {
    requests.iter().any(|request| match (&request.wants, name.split_once('/')) {
        (_, None) => request.name == name,
        (Wants::Exactly(_), Some(_)) => false,
        (Wants::FirstAvailable(subs), Some((whole, sub))) => {
            request.name == whole && subs.iter().any(|(name, _)| name == sub)
        }
    })
}
