//! What a file declares, and which claim has it.

use serde_json::{Value, json};

use super::{super::table::Table, holders};
use crate::{
    declared::{Device, DeviceFile},
    plan::{Held, Target},
};

pub(super) fn text(file: &DeviceFile, held: &[Held]) -> String {
    let declaration = file.now();
    let mut text = format!("Node {}, driver {}, declared\n", file.node(), file.driver());
    let mut table = Table::new(2, &["DEVICE", "ATTRIBUTES", "CAPACITY", "CLAIM"]);
    for device in &declaration.devices {
        let published = &device.published;
        let attributes = published.attributes.iter().map(|(name, value)| format!("{name}={value}"));
        let capacity = published.capacity.iter();
        let capacity = capacity.map(|(name, capacity)| format!("{name}={}", capacity.value));
        let claims = claims(device, held).join(", ");
        table.row([
            published.name.clone(),
            or_none(attributes.collect::<Vec<_>>().join(" ")),
            or_none(capacity.collect::<Vec<_>>().join(" ")),
            or_none(claims),
        ]);
    }
    text.push_str(&table.to_string());
    text
}

/// Adds it to `declared`, of which there is one for each file.
pub(super) fn add(json: &mut Value, file: &DeviceFile, held: &[Held]) {
    let declaration = file.now();
    let device = |device: &Device| {
        let published = &device.published;
        json!({
            "device": published.name,
            "attributes": published.attributes,
            "capacity": published.capacity,
            "allowMultipleAllocations": published.allow_multiple_allocations,
            "claims": claims(device, held),
        })
    };
    let one = json!({
        "node": file.node(),
        "driver": file.driver(),
        "devices": declaration.devices.iter().map(device).collect::<Vec<_>>(),
    });
    if let Some(object) = json.as_object_mut() {
        let all = object.entry("declared").or_insert_with(|| json!([]));
        if let Some(all) = all.as_array_mut() {
            all.push(one);
        }
    }
}

fn claims<'a>(device: &Device, held: &'a [Held]) -> Vec<&'a str> {
    holders(&Target::Declared { device: device.published.name.clone() }, held)
}

fn or_none(text: String) -> String {
    if text.is_empty() { "-".to_owned() } else { text }
}
