//! A rival is another driver that gives the GPUs of this node to pods: neither would know what the other
//! gave.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::{
    api::{Api, ApiError},
    quantity::Quantity,
};

/// The driver of NVIDIA's.
const NVIDIA: &str = "gpu.nvidia.com";
/// By what drivers say of a device where on the node it is, as Kubernetes has them do.
const ADDRESS: &str = "/attributes/resource.kubernetes.io~1pciBusID/string";
/// Where the resources of NVIDIA's device plugin, and of others in its place, are. So are those of its
/// network cards.
const RESOURCES: &str = "nvidia.com/";

/// Who else gives the GPUs of this node that are at these PCI addresses, in words. What the drivers of this process give
/// is known to who declared it.
pub(super) async fn find(
    api: &Api,
    node: &Value,
    name: &str,
    ours: &BTreeSet<String>,
    gpus: &BTreeSet<String>,
) -> Result<Option<String>, ApiError> {
    if let Some(resource) = resource(node) {
        return Ok(Some(format!("a device plugin, by which the node has {resource}")));
    }
    let (slices, _) = api.list_slices(None, name).await?;
    Ok(slices.iter().find_map(|slice| driver(slice, ours, gpus)))
}

/// The driver whose slice it is, where that gives one of these GPUs.
fn driver(slice: &Value, ours: &BTreeSet<String>, gpus: &BTreeSet<String>) -> Option<String> {
    let driver =
        slice.pointer("/spec/driver")?.as_str().filter(|driver| !ours.contains(*driver))?;
    let name = slice.pointer("/metadata/name")?.as_str()?;
    let devices = slice.pointer("/spec/devices").and_then(Value::as_array);
    let addresses =
        devices.into_iter().flatten().filter_map(|device| device.pointer(ADDRESS)?.as_str());
    let shared = addresses.into_iter().find(|address| gpus.contains(&address.to_ascii_lowercase()));
    match (driver, shared) {
        (_, Some(address)) => Some(format!(
            "the DRA driver {driver}, by ResourceSlice {name}, which has that at {address}"
        )),
        (NVIDIA, None) => Some(format!("the DRA driver {driver}, by ResourceSlice {name}")),
        (_, None) => None,
    }
}

/// A resource of GPUs of which a node has some. It stays at 0 when its device plugin is gone.
fn resource(node: &Value) -> Option<&str> {
    let capacity = node.pointer("/status/capacity")?.as_object()?;
    let some = |amount: &Value| {
        let amount = amount.as_str().and_then(|text| text.parse::<Quantity>().ok());
        amount.is_some_and(|amount| amount.sign() > 0)
    };
    let found = capacity.iter().find(|(name, amount)| is_of_gpus(name) && some(amount));
    found.map(|(name, _)| name.as_str())
}

/// `gpu`, `gpu.shared`, `mig-1g.10gb`; or a GPU for virtual machines, by its product: `GA102GL_A10`.
fn is_of_gpus(resource: &str) -> bool {
    let Some(name) = resource.strip_prefix(RESOURCES) else { return false };
    let first = name.split('.').next().unwrap_or_default();
    first == "gpu" || name.starts_with("mig-") || name.starts_with(|c: char| c.is_ascii_uppercase())
}
