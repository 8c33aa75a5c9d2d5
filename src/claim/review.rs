//! A review is what a node would say of an object's configuration, before the API server stores it.

use divvy_cdi::doc;

use super::{ClaimError, Configured, DRIVER, Manifest, field::Field, manifest::MAX_ITEMS, schema};

/// What is wrong with the configuration for our driver in an object as the API server has it, in any form that it serves: a
/// ResourceClaim, a ResourceClaimTemplate or a DeviceClass; every other kind has none. What is addressed to NVIDIA's
/// driver is not looked at: it may be for devices of that driver.
pub fn review(bytes: &[u8]) -> Vec<ClaimError> {
    let file = "object";
    let object = match doc::read(bytes) {
        Ok(object) => object,
        Err(source) => return vec![ClaimError::Document { file: file.to_owned(), source }],
    };
    let top = Field::top(Manifest { file: file.as_ref(), bytes: None, driver: DRIVER }, &object);
    match entries(&top) {
        Err(error) => vec![error],
        Ok((entries, known)) => {
            let read = entries.iter().map(|entry| Configured::read(entry, known, |_| false));
            read.filter_map(Result::err).collect()
        }
    }
}

/// The entries of configuration, and the fields that one may have.
fn entries<'a>(top: &Field<'a>) -> Result<(Vec<Field<'a>>, &'static [&'static str]), ClaimError> {
    let devices = |spec: Option<Field<'a>>| match spec {
        Some(spec) => spec.get("devices"),
        None => Ok(None),
    };
    let spec = top.get("spec")?;
    let (holder, known) = match top.need_text("kind")?.as_str() {
        "ResourceClaim" => (devices(spec)?, schema::CLAIM_CONFIG),
        "ResourceClaimTemplate" => {
            let inner = spec.map_or(Ok(None), |spec| spec.get("spec"))?;
            (devices(inner)?, schema::CLAIM_CONFIG)
        }
        "DeviceClass" => (spec, schema::CLASS_CONFIG),
        _ => (None, schema::CLASS_CONFIG),
    };
    Ok((holder.map_or(Ok(Vec::new()), |holder| holder.list("config", MAX_ITEMS))?, known))
}
