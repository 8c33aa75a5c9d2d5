//! Sharing is how the processes of one claim use a device side by side.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{ClaimError, Field, MpsSettings};
use crate::gpu::Interval;

/// How the processes of one claim share a device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum Sharing {
    /// The claim has the device to itself; nothing is set on it.
    #[default]
    Exclusive,
    /// Processes take turns of this length.
    TimeSlicing(Interval),
    /// Processes run at once, through an MPS control daemon that is set up so.
    Mps(MpsSettings),
}

// === impl Sharing ===

impl Sharing {
    /// Time-slicing with these settings, if there are any.
    pub(super) fn time_slicing(field: Option<&Field<'_>>) -> Result<Self, ClaimError> {
        let Some(field) = field else { return Ok(Self::TimeSlicing(Interval::Default)) };
        field.only(&["interval"])?;
        let interval = field.get("interval")?;
        let interval = interval.map(|field| field.one_word("interval", &Interval::ALL));
        Ok(Self::TimeSlicing(interval.transpose()?.unwrap_or_default()))
    }
}

impl fmt::Display for Sharing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exclusive => f.write_str("exclusive"),
            Self::TimeSlicing(interval) => write!(f, "time-sliced, {interval}"),
            Self::Mps(settings) => write!(f, "MPS{settings}"),
        }
    }
}
