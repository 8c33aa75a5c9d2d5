//! A rival is another driver that gives the GPUs of this node to pods: neither would know what the other
//! gave.

use serde_json::Value;

use crate::{
    api::{Api, ApiError},
    quantity::Quantity,
};

/// The driver of NVIDIA's.
const DRIVER: &str = "gpu.nvidia.com";
/// Where the resources of NVIDIA's device plugin, and of others in its place, are. So are those of its
/// network cards.
const RESOURCES: &str = "nvidia.com/";

/// Who else gives GPUs of this node, in words.
pub(super) async fn find(api: &Api, node: &Value, name: &str) -> Result<Option<String>, ApiError> {
    if let Some(resource) = resource(node) {
        return Ok(Some(format!("a device plugin, by which the node has {resource}")));
    }
    let (slices, _) = api.list_slices(DRIVER, name).await?;
    let slice = slices.first().and_then(|slice| slice.pointer("/metadata/name"));
    let slice = slice.and_then(Value::as_str);
    Ok(slice.map(|slice| format!("the DRA driver {DRIVER}, by ResourceSlice {slice}")))
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
