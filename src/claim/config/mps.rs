//! The settings of MPS are what the control daemon of some devices is told before a client comes.

use std::{collections::BTreeMap, fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use super::{ClaimError, Field};
use crate::quantity::Quantity;

/// What an MPS control daemon is told; what is unset stays as the daemon has it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MpsSettings {
    /// The part of a device's threads that a client may fill, in percent, from 1 to 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_thread_percentage: Option<u8>,
    /// The device memory that a client may pin, in bytes, on each device of which
    /// `pinned_memory_per_device` says nothing. At least 1 MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinned_memory: Option<u64>,
    /// The same of single devices.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pinned_memory_per_device: BTreeMap<DeviceKey, u64>,
    /// Whether clients of several users share a server.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub multi_user: bool,
}

/// A device among those that a configuration sets up together.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum DeviceKey {
    /// Its place among them, from 0: its number for CUDA.
    Index(u32),
    /// Its UUID: `GPU-…`, `MIG-…`.
    Uuid(String),
}

/// The least limit of pinned memory: the daemon counts in these, and what is less is none.
const MIN_PINNED_MEMORY: u64 = 1 << 20;

/// The most devices of a claim.
const MAX_DEVICES: usize = 32;

/// The longest UUID: `MIG-GPU-`, and 36 digits and dashes.
const MAX_UUID: usize = 64;

// === impl MpsSettings ===

impl MpsSettings {
    /// Reads them, by the names that NVIDIA gave them, if there are any.
    pub(super) fn read(field: Option<&Field<'_>>) -> Result<Self, ClaimError> {
        let Some(field) = field else { return Ok(Self::default()) };
        field.only(&[
            "defaultActiveThreadPercentage",
            "defaultPinnedDeviceMemoryLimit",
            "defaultPerDevicePinnedMemoryLimit",
            "multiUser",
        ])?;
        let percentage = field.get("defaultActiveThreadPercentage")?;
        let percentage = percentage.map(|field| field.as_count(100)).transpose()?;
        let memory = field.get("defaultPinnedDeviceMemoryLimit")?;
        let mut per_device = BTreeMap::new();
        if let Some(limits) = field.get("defaultPerDevicePinnedMemoryLimit")? {
            for (key, limit) in limits.pairs(MAX_DEVICES)? {
                let known: DeviceKey = key.parse().map_err(|error| limit.wrong(error))?;
                per_device.insert(known, pinned_memory(&limit)?);
            }
        }
        Ok(Self {
            active_thread_percentage: percentage.and_then(|percent| u8::try_from(percent).ok()),
            pinned_memory: memory.as_ref().map(pinned_memory).transpose()?,
            pinned_memory_per_device: per_device,
            multi_user: field.flag("multiUser")?,
        })
    }

    /// The limit of pinned memory, in bytes, of the device at this place among those that are set
    /// up together. What is said of its UUID counts before what is said of its place.
    pub fn pinned_memory_of(&self, index: u32, uuid: &str) -> Option<u64> {
        let by = |key: DeviceKey| self.pinned_memory_per_device.get(&key).copied();
        by(DeviceKey::Uuid(uuid.to_owned()))
            .or_else(|| by(DeviceKey::Index(index)))
            .or(self.pinned_memory)
    }
}

fn pinned_memory(field: &Field<'_>) -> Result<u64, ClaimError> {
    let limit = field.as_quantity()?;
    let bytes = limit.integer().and_then(|bytes| u64::try_from(bytes).ok());
    bytes.filter(|bytes| *bytes >= MIN_PINNED_MEMORY).ok_or_else(|| {
        field.wrong(format!("must be whole bytes, at least 1Mi, such as 10Gi, and is {limit}"))
    })
}

impl fmt::Display for MpsSettings {
    /// `, 50% of threads, 10Gi pinned memory`: what is set, each behind a comma.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(percentage) = self.active_thread_percentage {
            write!(f, ", {percentage}% of threads")?;
        }
        if let Some(bytes) = self.pinned_memory {
            write!(f, ", {} pinned memory", Quantity::bytes(bytes))?;
        }
        for (key, bytes) in &self.pinned_memory_per_device {
            write!(f, ", {} on device {key}", Quantity::bytes(*bytes))?;
        }
        if self.multi_user { f.write_str(", several users") } else { Ok(()) }
    }
}

// === impl DeviceKey ===

impl FromStr for DeviceKey {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(index) = text.parse().ok().filter(|index: &u32| index.to_string() == text) {
            return Ok(Self::Index(index));
        }
        let digits = text.strip_prefix("GPU-").or_else(|| text.strip_prefix("MIG-"));
        let is_uuid = |digits: &str| {
            let known = |c: char| c.is_ascii_alphanumeric() || c == '-';
            !digits.is_empty() && text.len() <= MAX_UUID && digits.chars().all(known)
        };
        match digits.is_some_and(is_uuid) {
            true => Ok(Self::Uuid(text.to_owned())),
            false => Err("the key must be an index from 0, or a UUID: GPU-… or MIG-…".to_owned()),
        }
    }
}

impl TryFrom<String> for DeviceKey {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<DeviceKey> for String {
    fn from(key: DeviceKey) -> Self {
        key.to_string()
    }
}

impl fmt::Display for DeviceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Index(index) => write!(f, "{index}"),
            Self::Uuid(uuid) => f.write_str(uuid),
        }
    }
}
