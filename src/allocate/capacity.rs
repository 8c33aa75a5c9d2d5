//! What a request consumes of a device's capacities, by the device's policy for each.

use std::collections::BTreeMap;

use super::pool::named;
use crate::{
    publish::{Capacity, Device, RequestPolicy, Valid},
    quantity::Quantity,
};

/// What is consumed of each capacity of a device of which others consume `before`; or why it is not
/// to be had.
///
/// As read of Kubernetes: what is asked for is rounded up to what the policy lets be had; what is
/// not asked for is the policy's default, or all there is. Every capacity must suffice, and on a
/// device for one claim alone this decides, too, whether it will do.
pub(super) fn consumed(
    device: &Device,
    driver: &str,
    asked: &BTreeMap<String, Quantity>,
    before: &BTreeMap<String, Quantity>,
) -> Result<BTreeMap<String, Quantity>, String> {
    let mut wanted = BTreeMap::new();
    for (name, amount) in asked {
        match named(&device.capacity, name, driver) {
            Some((own, _)) => wanted.insert(own, *amount),
            None => return Err(format!("without capacity {name}")),
        };
    }
    let mut all = BTreeMap::new();
    for (name, capacity) in &device.capacity {
        let value = capacity.value;
        let amount = of(capacity, wanted.get(name.as_str()).copied())
            .ok_or_else(|| format!("whose policy for {name} does not let as much be had"))?;
        let used = before.get(name).copied().unwrap_or(Quantity::ZERO);
        // An exclusive device that is asked for no amount is had whole, whatever it has.
        let counts = device.allow_multiple_allocations || wanted.contains_key(name.as_str());
        if counts && used.plus(amount) > value {
            return Err(format!("with too little {name}"));
        }
        all.insert(name.clone(), amount);
    }
    Ok(all)
}

/// What is consumed of one capacity; none where the policy has no such amount.
fn of(capacity: &Capacity, asked: Option<Quantity>) -> Option<Quantity> {
    let Some(RequestPolicy { default, valid }) = &capacity.request_policy else {
        return Some(asked.unwrap_or(capacity.value));
    };
    let asked = asked.unwrap_or(*default);
    match valid {
        Valid::ValidValues(values) => values.iter().copied().find(|value| *value >= asked),
        Valid::ValidRange { min, max, step } => {
            let amount = match step {
                Some(step) => min.step_up(*step, asked),
                None => asked.max(*min),
            };
            (amount <= max.unwrap_or(capacity.value)).then_some(amount)
        }
    }
}
