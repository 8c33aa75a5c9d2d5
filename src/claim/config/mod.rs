//! Configuration says how the devices of a claim are shared. It comes as opaque parameters of the
//! claim or of its classes, and is strict: what is not understood is refused, never passed over.

mod divvy;
mod mps;
mod sharing;

use serde::Serialize;

use super::{ClaimError, DRIVER, field::Field, manifest::MAX_ITEMS, schema};
use crate::gpu;

pub use mps::{DeviceKey, MpsSettings};
pub use sharing::Sharing;

/// A configuration and the requests that it is for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Configured {
    /// The devices that it is for.
    pub kind: Kind,
    /// `request` or `request/subrequest`; none: every request that got a device of its kind.
    pub requests: Vec<String>,
    /// What it says.
    pub sharing: Sharing,
    /// `file:line:column: field`, for errors.
    #[serde(skip)]
    pub place: String,
}

/// The devices that a configuration is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Kind {
    /// Whole GPUs: `GpuConfig`.
    Gpu,
    /// Partitions: `MigDeviceConfig`.
    Mig,
}

// === impl Configured ===

impl Configured {
    /// Reads one entry of a `config` list, of these fields; none when it is another driver's.
    pub(super) fn read(entry: &Field<'_>, known: &[&str]) -> Result<Option<Self>, ClaimError> {
        entry.only(known)?;
        let Some(opaque) = entry.get("opaque")? else {
            return Err(entry.wrong("only opaque configuration is known: opaque is missing"));
        };
        opaque.only(schema::OPAQUE)?;
        if opaque.need_text("driver")? != DRIVER {
            return Ok(None);
        }
        let requests = entry.texts("requests", MAX_ITEMS)?;
        let parameters = opaque.need("parameters")?;
        let (kind, sharing) = decode(&parameters).map_err(as_config)?;
        Ok(Some(Self { kind, requests, sharing, place: parameters.place() }))
    }

    /// True when it names this request (`request` or `request/subrequest`), or all of it.
    pub fn names(&self, request: &str) -> bool {
        let whole = request.split_once('/').map_or(request, |(whole, _)| whole);
        self.requests.iter().any(|named| named == request || named == whole)
    }

    /// True when it is for a request that got a device of this kind: it names the request, whatever
    /// it got, or names none.
    pub fn is_for(&self, request: &str, kind: Kind) -> bool {
        self.names(request) || (self.requests.is_empty() && self.kind == kind)
    }
}

/// The parameters of a device.
fn decode(parameters: &Field<'_>) -> Result<(Kind, Sharing), ClaimError> {
    let version = parameters.need("apiVersion")?;
    if version.as_text()? != divvy::API_VERSION {
        let known = divvy::API_VERSION;
        let message = format!("{:?} is not known; known is {known}", version.as_text()?);
        return Err(version.wrong(message));
    }
    let kind = parameters.need("kind")?;
    let kind = kind.one_word(
        "kind of configuration",
        &[("GpuConfig", Kind::Gpu), ("MigDeviceConfig", Kind::Mig)],
    )?;
    parameters.only(&["apiVersion", "kind", "sharing"])?;
    let sharing = match parameters.get("sharing")? {
        Some(field) => divvy::sharing(&field, kind)?,
        None => Sharing::Exclusive,
    };
    Ok((kind, sharing))
}

/// The refusal to time-slice a MIG device.
fn not_for_mig(field: &Field<'_>, known: &str) -> ClaimError {
    field.wrong(format!(
        "a MIG device cannot be time-sliced: the hardware has no such setting; known are {known}"
    ))
}

/// Everything below `parameters` is configuration, and its errors say so.
fn as_config(error: ClaimError) -> ClaimError {
    match error {
        ClaimError::Invalid(mut problem) if problem.code == "CLAIM-INVALID" => {
            problem.code = "CONFIG-INVALID";
            ClaimError::Invalid(problem)
        }
        other => other,
    }
}

// === impl Kind ===

impl Kind {
    /// The configuration that a device takes.
    pub fn of(device: &gpu::Device<'_>) -> Self {
        match device {
            gpu::Device::Gpu(_) => Self::Gpu,
            gpu::Device::Partition { .. } => Self::Mig,
        }
    }

    /// The kind as manifests have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gpu => "GpuConfig",
            Self::Mig => "MigDeviceConfig",
        }
    }
}
