//! A share is the part of a device that a claim has where several claims may have the device at once.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{ClaimError, Given, ask, field::Field, name::uid};
use crate::quantity::Quantity;

/// A part of a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Share {
    /// Tells it from the other shares of the device: `shareID`, a UUID.
    pub id: String,
    /// How much of each capacity it takes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub consumed: BTreeMap<String, Quantity>,
}

// === impl Given ===

impl Given {
    /// True when it is the share of this ID.
    pub(super) fn is_share(&self, id: &str) -> bool {
        self.share.as_ref().is_some_and(|share| share.id == id)
    }
}

// === impl Share ===

impl Share {
    /// The share that a result of an allocation is, where it is one.
    pub(super) fn read(result: &Field<'_>) -> Result<Option<Self>, ClaimError> {
        let consumed = result.get("consumedCapacity")?;
        let consumed =
            consumed.map_or_else(|| Ok(BTreeMap::new()), |field| ask::amounts(&field))?;
        match result.get("shareID")? {
            Some(id) => Ok(Some(Self { id: uid(&id)?, consumed })),
            None if consumed.is_empty() => Ok(None),
            None => {
                Err(result.wrong("consumedCapacity is that of a share, and shareID is missing"))
            }
        }
    }
}
