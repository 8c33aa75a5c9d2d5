//! Decoding a file of devices: YAML or JSON, strict, every error with its place and what is allowed.
//!
//! ```yaml
//! apiVersion: divvy.dev/v1alpha1
//! kind: HostDevices
//! driver: fpga.example.com
//! devices:
//! - name: card-0                         # a DNS label, once
//!   attributes: {family: {string: vu9p}}  # string, int, bool or version, as in a ResourceSlice
//!   capacity: {luts: {value: 1182k}}      # with requestPolicy as there
//!   allowMultipleAllocations: false       # true: several claims at once, each a part of its capacity
//!   containerEdits:                       # as in a CDI spec
//!     deviceNodes: [{path: /dev/fpga0}]
//! ```

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use divvy_cdi::{
    doc::{self, Node, position},
    problem::{Position, Problem, Severity},
    spec::{self, ContainerEdits},
};
use semver::Version;
use serde_json::json;

use super::{Declaration, DeclaredError, Device};
use crate::{
    claim::{
        ClaimError, DRIVER, Manifest,
        field::Field,
        name::{label, wrong_with},
    },
    publish::{self, Attribute, Capacity, RequestPolicy, Slice, Valid},
};

/// What the top of the file must say.
pub(crate) const API_VERSION: &str = "divvy.dev/v1alpha1";
pub(crate) const KIND: &str = "HostDevices";

/// Kubernetes' longest name of a driver.
const MAX_DRIVER: usize = 63;
/// More than a host has.
const MAX_DEVICES: usize = 1024;
/// As many as a device may have in Kubernetes, and one more so that its own check says so.
const MAX_VALUES: usize = 33;
const MAX_VALID: usize = 11;

const TOP: &[&str] = &["apiVersion", "kind", "driver", "devices"];
const DEVICE: &[&str] =
    &["name", "attributes", "capacity", "allowMultipleAllocations", "containerEdits"];

/// What a file declares.
///
/// # Errors
/// Everything that is wrong with it: of each device the first thing, and all of its edits.
pub(super) fn read(file: &Path, bytes: &[u8]) -> Result<Declaration, DeclaredError> {
    let invalid = |problems| DeclaredError::Invalid { problems };
    let node = doc::read(bytes)
        .map_err(|error| invalid(vec![problem(file, error.at, None, error.message)]))?;
    let top = Field::top(Manifest { file, bytes: Some(bytes), driver: DRIVER }, &node);
    let (driver, fields) = head(&top).map_err(|error| invalid(problems_of(error)))?;
    let (mut devices, mut problems, mut names) = (Vec::new(), Vec::new(), BTreeSet::new());
    for field in &fields {
        let device = device(field).and_then(|(name, found)| match names.insert(name.clone()) {
            true => Ok(found),
            false => Err(field.wrong(format!("name {name:?} is there twice"))),
        });
        match device {
            Ok(device) => devices.push(device),
            Err(error) => problems.extend(problems_of(error)),
        }
    }
    if problems.is_empty() {
        problems = edits(file, bytes, &driver, &node, &mut devices);
    }
    let declaration = Declaration { driver, devices };
    if problems.is_empty() {
        let slices = publish::split(&[], declaration.published());
        problems.extend(limit(file, &slices));
    }
    if problems.is_empty() { Ok(declaration) } else { Err(invalid(problems)) }
}

fn problem(file: &Path, at: Option<Position>, field: Option<String>, message: String) -> Problem {
    Problem {
        file: file.to_owned(),
        at,
        device: None,
        field,
        severity: Severity::Error,
        code: CODE,
        message,
    }
}

const CODE: &str = "DEVICES-INVALID";

/// The problems that an error of a field stands for, under the code of this file.
fn problems_of(error: ClaimError) -> Vec<Problem> {
    match error {
        ClaimError::Invalid(problem) => vec![Problem { code: CODE, ..*problem }],
        // Fields fail in no other way.
        other => vec![problem(Path::new(""), None, None, other.to_string())],
    }
}

/// Whose devices they are, and each of them.
fn head<'a>(top: &Field<'a>) -> Result<(String, Vec<Field<'a>>), ClaimError> {
    top.only(TOP)?;
    for (key, wanted) in [("apiVersion", API_VERSION), ("kind", KIND)] {
        let field = top.need(key)?;
        if field.as_text()? != wanted {
            return Err(field.wrong(format!("must be {wanted}")));
        }
    }
    let field = top.need("driver")?;
    let driver = field.as_text()?;
    let wrong = if let Some(why) = wrong_with(driver) {
        format!("{driver:?} {why}; a DNS name is wanted, as fpga.example.com")
    } else if driver.len() > MAX_DRIVER {
        format!("has {} characters, and a driver's name may have {MAX_DRIVER}", driver.len())
    } else if !driver.starts_with(|c: char| c.is_ascii_lowercase()) {
        // It is the vendor of a CDI kind as well.
        format!("{driver:?} must begin with a letter")
    } else if driver == DRIVER {
        format!("{DRIVER} is the driver of GPUs; give these devices one of your own")
    } else {
        // None is said in words: a file that ends too early says nothing.
        top.need("devices")?;
        return Ok((driver.to_owned(), top.list("devices", MAX_DEVICES)?));
    };
    Err(field.wrong(wrong))
}

/// A device without its edits, and its name.
fn device(field: &Field<'_>) -> Result<(String, Device), ClaimError> {
    field.only(DEVICE)?;
    let name = label(field, "name")?;
    let (mut attributes, mut capacity) = (BTreeMap::new(), BTreeMap::new());
    if let Some(values) = field.get("attributes")? {
        for (id, value) in values.pairs(MAX_VALUES)? {
            attributes.insert(id.to_owned(), attribute(&value)?);
        }
    }
    if let Some(values) = field.get("capacity")? {
        for (id, value) in values.pairs(MAX_VALUES)? {
            capacity.insert(id.to_owned(), amount(&value)?);
        }
    }
    let published = publish::Device {
        name: name.clone(),
        attributes,
        capacity,
        consumes_counters: Vec::new(),
        taints: Vec::new(),
        allow_multiple_allocations: field.flag("allowMultipleAllocations")?,
    };
    Ok((name, Device { published, edits: ContainerEdits::default() }))
}

/// `{string: vu9p}`
fn attribute(field: &Field<'_>) -> Result<Attribute, ClaimError> {
    let (kind, value) = field.one_of(&["string", "int", "bool", "version"])?;
    Ok(match kind {
        "int" => Attribute::Int(value.as_integer()?),
        "bool" => Attribute::Bool(value.as_flag()?),
        "version" => {
            let text = value.as_text()?;
            let version = Version::parse(text);
            let wanted = |error| {
                value.wrong(format!(
                    "{text:?} is no semantic version (MAJOR.MINOR.PATCH, without leading zeros): \
                     {error}"
                ))
            };
            Attribute::Version(version.map_err(wanted)?)
        }
        _ => Attribute::String(value.as_text()?.to_owned()),
    })
}

/// `{value: 16Gi}`
fn amount(field: &Field<'_>) -> Result<Capacity, ClaimError> {
    field.only(&["value", "requestPolicy"])?;
    let value = field.need("value")?.as_quantity()?;
    let request_policy = field.get("requestPolicy")?.map(|field| policy(&field)).transpose()?;
    Ok(Capacity { value, request_policy })
}

fn policy(field: &Field<'_>) -> Result<RequestPolicy, ClaimError> {
    field.only(&["default", "validValues", "validRange"])?;
    let default = field.need("default")?.as_quantity()?;
    let valid = match (field.get("validValues")?, field.get("validRange")?) {
        (Some(_), None) => {
            let values = field.list("validValues", MAX_VALID)?;
            let values = values.iter().map(Field::as_quantity);
            Valid::ValidValues(values.collect::<Result<_, _>>()?)
        }
        (None, Some(range)) => {
            range.only(&["min", "max", "step"])?;
            let amount = |key| range.get(key)?.map(|field| field.as_quantity()).transpose();
            let min = range.need("min")?.as_quantity()?;
            Valid::ValidRange { min, max: amount("max")?, step: amount("step")? }
        }
        _ => {
            let message = "exactly one of validValues, validRange must be set";
            return Err(field.wrong(message));
        }
    };
    Ok(RequestPolicy { default, valid })
}

/// Reads the devices' edits as those of a CDI spec, and what is wrong with them. What is a warning in
/// a spec that somebody else wrote is an error here.
fn edits(
    file: &Path,
    bytes: &[u8],
    driver: &str,
    node: &Node<'_>,
    devices: &mut [Device],
) -> Vec<Problem> {
    let items = node.get("devices").and_then(Node::items).unwrap_or_default();
    let (mut with, mut written) = (Vec::new(), Vec::new());
    for (item, device) in items.iter().zip(devices) {
        if let Some(edits) = item.get("containerEdits").filter(|edits| !is_nothing(edits)) {
            let name = &device.published.name;
            written.push(json!({ "name": name, "containerEdits": edits.to_json() }));
            with.push((item, device));
        }
    }
    if with.is_empty() {
        return Vec::new();
    }
    let spec =
        json!({ "cdiVersion": "1.1.0", "kind": format!("{driver}/claim"), "devices": written });
    let problems = match spec::read(file, spec.to_string().as_bytes()) {
        Ok(parsed) => {
            for ((_, device), read) in with.iter_mut().zip(parsed.spec.devices) {
                device.edits = read.container_edits;
            }
            parsed.warnings
        }
        Err(problems) => problems,
    };
    let placed = |problem: Problem| {
        let of = problem.device.as_deref();
        let item = with.iter().find(|(_, device)| Some(device.published.name.as_str()) == of);
        let at = item.map(|(item, _)| place(item, problem.field.as_deref().unwrap_or_default()));
        let at = at.map(|at| position(bytes, at));
        Problem { at, severity: Severity::Error, code: CODE, ..problem }
    };
    problems.into_iter().map(placed).collect()
}

/// `null` and `{}`: a device that is only to be known of.
fn is_nothing(edits: &Node<'_>) -> bool {
    matches!(edits.value, doc::Value::Null) || edits.entries().is_some_and(<[_]>::is_empty)
}

/// Where a field stands below a node, `containerEdits.mounts[0].hostPath`; of one that is missing,
/// where it is missing from.
fn place(node: &Node<'_>, field: &str) -> u32 {
    let mut node = node;
    for step in field.split(['.', '[']) {
        let index = step.strip_suffix(']').and_then(|step| step.parse::<usize>().ok());
        let next = match index {
            Some(index) => node.items().and_then(|items| items.get(index)),
            None => node.get(step),
        };
        match next {
            Some(next) => node = next,
            None => break,
        }
    }
    node.at
}

/// What Kubernetes would refuse of the devices.
fn limit(file: &Path, slices: &[Slice]) -> Option<Problem> {
    // The pool has the node's name, which is checked with it.
    let limit = publish::check("node", slices).err()?;
    Some(problem(file, None, None, limit.to_string()))
}
