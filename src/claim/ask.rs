//! An ask is what a request of a manifest wants: devices of a class, and which of them will do.

use std::collections::BTreeMap;

use super::{
    Ask, ClaimError, Constraint, Count, Request, Rule, Selector, Toleration, Wants,
    field::Field,
    manifest::{MAX_ITEMS, has},
    name::{label, wrong_with},
    schema,
};
use crate::{publish::Effect, quantity::Quantity};

const MAX_SUBREQUESTS: usize = 8;
/// The most devices of a request: an allocation has no more results.
const MAX_COUNT: u32 = 32;
const MAX_TOLERATIONS: usize = 16;
/// The most capacities that one may ask for: no device has more.
const MAX_CAPACITIES: usize = 32;
/// The longest identifier of an attribute or capacity, behind its domain.
const MAX_IDENTIFIER: usize = 32;

pub(super) fn requests(devices: &Field<'_>) -> Result<Vec<Request>, ClaimError> {
    let mut requests: Vec<Request> = Vec::new();
    for field in devices.list("requests", MAX_ITEMS)? {
        field.only(schema::REQUEST)?;
        let name = label(&field, "name")?;
        if requests.iter().any(|known| known.name == name) {
            return Err(field.wrong(format!("the request {name} is there twice")));
        }
        let wants = match (field.get("exactly")?, field.get("firstAvailable")?) {
            (Some(exactly), None) => Wants::Exactly(ask(&exactly, schema::EXACTLY)?),
            (None, Some(_)) => Wants::FirstAvailable(subrequests(&field)?),
            _ => return Err(field.wrong("exactly one of exactly, firstAvailable must be set")),
        };
        requests.push(Request { name, wants });
    }
    Ok(requests)
}

fn subrequests(field: &Field<'_>) -> Result<Vec<(String, Ask)>, ClaimError> {
    let mut subrequests: Vec<(String, Ask)> = Vec::new();
    for field in field.list("firstAvailable", MAX_SUBREQUESTS)? {
        let (ask, name) = (ask(&field, schema::SUBREQUEST)?, label(&field, "name")?);
        if subrequests.iter().any(|(known, _)| *known == name) {
            return Err(field.wrong(format!("the subrequest {name} is there twice")));
        }
        subrequests.push((name, ask));
    }
    Ok(subrequests)
}

fn ask(field: &Field<'_>, known: &[&str]) -> Result<Ask, ClaimError> {
    field.only(known)?;
    let mode = field.text("allocationMode")?;
    let count = field.get("count")?.map(|count| count.as_count(MAX_COUNT)).transpose()?;
    let count = match mode.as_deref() {
        None | Some("ExactCount") => Count::Exact(count.unwrap_or(1)),
        Some("All") if count.is_none() => Count::All,
        Some("All") => return Err(field.wrong("count cannot be set with allocationMode All")),
        Some(other) => {
            let message = format!("allocationMode {other:?}: known are ExactCount, All");
            return Err(field.wrong(message));
        }
    };
    let tolerations = field.list("tolerations", MAX_TOLERATIONS)?;
    let derived = field.get("derivedAttributes")?.is_some_and(|list| !list.is_empty());
    Ok(Ask {
        class: field.need_text("deviceClassName")?,
        selectors: selectors(field)?,
        count,
        admin: field.flag("adminAccess")?,
        tolerations: tolerations.iter().map(toleration).collect::<Result<_, _>>()?,
        capacity: capacity(field)?,
        restrictions: if derived { vec!["derivedAttributes".to_owned()] } else { Vec::new() },
    })
}

pub(super) fn selectors(field: &Field<'_>) -> Result<Vec<Selector>, ClaimError> {
    let read = |selector: &Field<'_>| {
        selector.only(schema::SELECTOR)?;
        let cel = selector.need("cel")?;
        cel.only(schema::CEL)?;
        let expression = cel.need("expression")?;
        let place = expression.place();
        Ok(Selector { expression: expression.as_text()?.to_owned(), place })
    };
    field.list("selectors", MAX_ITEMS)?.iter().map(read).collect()
}

fn toleration(field: &Field<'_>) -> Result<Toleration, ClaimError> {
    field.only(schema::TOLERATION)?;
    let key = field.text("key")?.unwrap_or_default();
    let value = field.text("value")?;
    let value = match field.text("operator")?.as_deref() {
        None | Some("Equal") if key.is_empty() => {
            return Err(field.wrong("without a key, operator must be Exists"));
        }
        None | Some("Equal") => Some(value.unwrap_or_default()),
        Some("Exists") if value.is_none_or(|value| value.is_empty()) => None,
        Some("Exists") => return Err(field.wrong("value cannot be set with operator Exists")),
        Some(other) => {
            return Err(field.wrong(format!("operator {other:?}: known are Equal, Exists")));
        }
    };
    let effect = match field.text("effect")?.as_deref() {
        None | Some("") => None,
        Some("None") => Some(Effect::None),
        Some("NoSchedule") => Some(Effect::NoSchedule),
        Some("NoExecute") => Some(Effect::NoExecute),
        Some(other) => {
            let message = format!("effect {other:?}: known are None, NoSchedule, NoExecute");
            return Err(field.wrong(message));
        }
    };
    Ok(Toleration { key, value, effect })
}

fn capacity(field: &Field<'_>) -> Result<BTreeMap<String, Quantity>, ClaimError> {
    let Some(capacity) = field.get("capacity")? else { return Ok(BTreeMap::new()) };
    capacity.only(schema::CAPACITY)?;
    capacity.get("requests")?.map_or_else(|| Ok(BTreeMap::new()), |requests| amounts(&requests))
}

/// Amounts by the names of capacities.
pub(super) fn amounts(field: &Field<'_>) -> Result<BTreeMap<String, Quantity>, ClaimError> {
    let mut amounts = BTreeMap::new();
    for (name, value) in field.pairs(MAX_CAPACITIES)? {
        if !is_qualified(name) {
            return Err(value.wrong(IDENTIFIER));
        }
        amounts.insert(name.to_owned(), value.as_quantity()?);
    }
    Ok(amounts)
}

const IDENTIFIER: &str = "the name must be a C identifier of at most 32 letters, digits and _, and \
                          before it may stand DOMAIN/";

pub(super) fn constraint(
    field: &Field<'_>,
    requests: &[Request],
) -> Result<Constraint, ClaimError> {
    field.only(schema::CONSTRAINT)?;
    let names = field.texts("requests", MAX_ITEMS)?;
    if let Some(name) = names.iter().find(|name| !has(requests, name)) {
        return Err(field.wrong(format!("requests: the claim has no request {name:?}")));
    }
    let (rule, attribute) = match (field.get("matchAttribute")?, field.get("distinctAttribute")?) {
        (Some(attribute), None) => (Rule::Match, attribute),
        (None, Some(attribute)) => (Rule::Distinct, attribute),
        _ => {
            let message = "exactly one of matchAttribute, distinctAttribute must be set";
            return Err(field.wrong(message));
        }
    };
    let name = attribute.as_text()?.to_owned();
    match name.contains('/') && is_qualified(&name) {
        true => Ok(Constraint { requests: names, attribute: name, rule }),
        false => Err(attribute.wrong("must be DOMAIN/NAME, such as gpu.divvy.dev/productName")),
    }
}

/// `name` or `domain/name`, as attributes and capacities have it.
fn is_qualified(name: &str) -> bool {
    let (domain, id) = name.split_once('/').map_or((None, name), |(domain, id)| (Some(domain), id));
    let letter = |c: char| c.is_ascii_alphanumeric() || c == '_';
    domain.is_none_or(|domain| wrong_with(domain).is_none() && domain.len() <= 63)
        && id.len() <= MAX_IDENTIFIER
        && id.chars().all(letter)
        && id.starts_with(|c: char| !c.is_ascii_digit())
}
