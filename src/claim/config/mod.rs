//! Configuration says how the devices of a claim are shared. It comes as opaque parameters of the
//! claim or of its classes, and is strict: what is not understood is refused, never passed over.
//!
//! Two APIs say the same: ours, and that of NVIDIA's driver. What is addressed to that driver counts
//! for devices of ours, as claims that were written for it have it.

mod divvy;
mod mps;
mod nvidia;
mod sharing;

use serde::Serialize;

use super::{ClaimError, DRIVER, NVIDIA_DRIVER, field::Field, manifest::MAX_ITEMS, schema};
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
    /// How they are shared.
    pub sharing: Sharing,
    /// Containers get the nodes too by which a GPU renders and shows.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub display: bool,
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

/// Who defined the form of a configuration.
#[derive(Debug, Clone, Copy)]
enum Api {
    /// We.
    Divvy,
    /// NVIDIA, for its driver.
    Nvidia,
}

// === impl Configured ===

impl Configured {
    /// Reads one entry of a `config` list, of these fields; none when it is another driver's.
    /// Whether one for NVIDIA's driver is for devices of ours, `is_ours` says of its requests.
    pub(super) fn read(
        entry: &Field<'_>,
        known: &[&str],
        is_ours: impl Fn(&[String]) -> bool,
    ) -> Result<Option<Self>, ClaimError> {
        entry.only(known)?;
        let Some(opaque) = entry.get("opaque")? else {
            return Err(entry.wrong("only opaque configuration is known: opaque is missing"));
        };
        opaque.only(schema::OPAQUE)?;
        let requests = entry.texts("requests", MAX_ITEMS)?;
        let driver = opaque.need_text("driver")?;
        let apis = match (entry.driver(), driver.as_str()) {
            (DRIVER, DRIVER) => Api::ALL,
            (DRIVER, NVIDIA_DRIVER) if is_ours(&requests) => Api::OF_NVIDIA,
            (DRIVER, _) => return Ok(None),
            (own, driver) if own != driver => return Ok(None),
            _ => {
                let message = format!(
                    "devices of {driver} take no configuration: a file declares them as they are"
                );
                return Err(opaque.problem("CONFIG-UNSUPPORTED", message));
            }
        };
        // Ours, whoever sent it.
        let parameters = opaque.need("parameters")?.strictly();
        let (kind, sharing, display) = decode(&parameters, &driver, apis).map_err(as_config)?;
        Ok(Some(Self { kind, requests, sharing, display, place: parameters.place() }))
    }

    /// True when it names this request (`request` or `request/subrequest`), or all of it.
    pub fn names(&self, request: &str) -> bool {
        self.requests.iter().any(|named| covers(named, request))
    }

    /// True when it is for a request that got a device of this kind: it names the request, whatever
    /// it got, or names none.
    pub fn is_for(&self, request: &str, kind: Kind) -> bool {
        self.names(request) || (self.requests.is_empty() && self.kind == kind)
    }
}

/// The parameters of devices, in one of the APIs of a driver.
fn decode(
    parameters: &Field<'_>,
    driver: &str,
    apis: &[(&str, Api)],
) -> Result<(Kind, Sharing, bool), ClaimError> {
    let api = parameters.need("apiVersion")?;
    let api = api.one_word(&format!("configuration of driver {driver}"), apis)?;
    let kind = parameters.need("kind")?;
    let kind = kind.one_word("kind of configuration", &Kind::ALL)?;
    // A partition that can render has them by its profile.
    let display = matches!((api, kind), (Api::Divvy, Kind::Gpu));
    let known = ["apiVersion", "kind", "sharing", "display"];
    parameters.only(known.get(..if display { 4 } else { 3 }).unwrap_or_default())?;
    let sharing = match (parameters.get("sharing")?, api) {
        (Some(field), Api::Divvy) => divvy::sharing(&field, kind)?,
        (Some(field), Api::Nvidia) => nvidia::sharing(&field, kind)?,
        (None, _) => Sharing::Exclusive,
    };
    Ok((kind, sharing, parameters.flag("display")?))
}

/// True when a name, `request` or `request/subrequest`, is that of a request or of all of it.
pub(crate) fn covers(name: &str, request: &str) -> bool {
    name == request || request.split_once('/').is_some_and(|(whole, _)| name == whole)
}

/// The refusal to time-slice a MIG device.
fn not_for_mig(field: &Field<'_>, known: &str) -> ClaimError {
    field.wrong(format!(
        "a MIG device cannot be time-sliced: the hardware has no such setting; {known}"
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

// === impl Api ===

impl Api {
    const ALL: &[(&str, Self)] =
        &[(divvy::API_VERSION, Self::Divvy), (nvidia::API_VERSION, Self::Nvidia)];

    const OF_NVIDIA: &[(&str, Self)] = &[(nvidia::API_VERSION, Self::Nvidia)];
}

// === impl Kind ===

impl Kind {
    const ALL: [(&str, Self); 2] = [(Self::Gpu.name(), Self::Gpu), (Self::Mig.name(), Self::Mig)];

    /// The configuration that a device takes.
    pub fn of(device: &gpu::Device<'_>) -> Self {
        match device {
            gpu::Device::Gpu(_) => Self::Gpu,
            gpu::Device::Partition { .. } => Self::Mig,
        }
    }

    /// The kind as manifests have it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gpu => "GpuConfig",
            Self::Mig => "MigDeviceConfig",
        }
    }
}
