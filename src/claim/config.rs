//! Configuration says how the devices of a claim are shared. It comes as opaque parameters of the
//! claim or of its classes, and is strict: what is not understood is refused, never passed over.

use serde::{Deserialize, Serialize};

use super::{ClaimError, DRIVER, field::Field, manifest::MAX_ITEMS, schema};
use crate::gpu::Interval;

/// How the processes of one claim share a device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Sharing {
    /// The claim has the device to itself; nothing is set on it.
    #[default]
    Exclusive,
    /// Processes take turns of this length.
    TimeSlicing(Interval),
}

/// A configuration and the requests that it is for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Configured {
    /// `request` or `request/subrequest`; none: every request that it fits.
    pub requests: Vec<String>,
    /// What it says.
    pub sharing: Sharing,
    /// `file:line:column`, for errors.
    #[serde(skip)]
    pub place: String,
}

const API_VERSION: &str = "gpu.divvy.dev/v1alpha1";

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
        let sharing = decode(&parameters).map_err(as_config)?;
        Ok(Some(Self { requests, sharing, place: parameters.place() }))
    }

    /// True when it names this request (`request` or `request/subrequest`), or all of it.
    pub fn names(&self, request: &str) -> bool {
        let whole = request.split_once('/').map_or(request, |(whole, _)| whole);
        self.requests.iter().any(|named| named == request || named == whole)
    }
}

/// The parameters of a device.
fn decode(parameters: &Field<'_>) -> Result<Sharing, ClaimError> {
    let version = parameters.need("apiVersion")?;
    if version.as_text()? != API_VERSION {
        let message = format!("{:?} is not known; known is {API_VERSION}", version.as_text()?);
        return Err(version.wrong(message));
    }
    let kind = parameters.need("kind")?;
    match kind.as_text()? {
        "GpuConfig" => {}
        "MigDeviceConfig" => {
            let message = "MigDeviceConfig comes with a later version; a MIG device needs no \
                           configuration: it is exclusive";
            return Err(kind.problem("CONFIG-UNSUPPORTED", message.to_owned()));
        }
        other => {
            return Err(kind.wrong(format!("{other:?} is not known; known is GpuConfig")));
        }
    }
    parameters.only(&["apiVersion", "kind", "sharing"])?;
    match parameters.get("sharing")? {
        Some(field) => sharing(&field),
        None => Ok(Sharing::Exclusive),
    }
}

fn sharing(field: &Field<'_>) -> Result<Sharing, ClaimError> {
    let (strategy, value) = field.one_of(&["exclusive", "timeSlicing", "mps"])?;
    match strategy {
        "timeSlicing" => {
            value.only(&["interval"])?;
            let Some(interval) = value.get("interval")? else {
                return Ok(Sharing::TimeSlicing(Interval::Default));
            };
            let text = interval.as_text()?;
            let known = Interval::ALL.iter().find(|(name, _)| *name == text);
            known.map(|(_, known)| Sharing::TimeSlicing(*known)).ok_or_else(|| {
                let known = Interval::ALL.map(|(name, _)| name).join(", ");
                interval.wrong(format!("{text:?} is no interval; known are {known}"))
            })
        }
        "exclusive" => value.only(&[]).map(|()| Sharing::Exclusive),
        _ => {
            let message = "mps comes with a later version; known are exclusive and timeSlicing";
            Err(value.problem("CONFIG-UNSUPPORTED", message.to_owned()))
        }
    }
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
