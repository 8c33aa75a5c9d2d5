//! The configuration of NVIDIA's own driver, so that claims written for it run unchanged: a strategy
//! by name, and beside it a block of settings for each.
//!
//! More is refused than by NVIDIA's: a block of a strategy that is not chosen, and time-slicing of
//! MIG devices, are accepted there and have no effect.

use super::{ClaimError, Field, Kind, MpsSettings, Sharing, not_for_mig};

pub(super) const API_VERSION: &str = "resource.nvidia.com/v1beta1";

#[derive(Debug, Clone, Copy)]
enum Strategy {
    TimeSlicing,
    Mps,
}

const GPU: &[(&str, Strategy)] = &[("TimeSlicing", Strategy::TimeSlicing), ("MPS", Strategy::Mps)];
const MIG: &[(&str, Strategy)] = &[("MPS", Strategy::Mps)];

/// What stands below `sharing`.
pub(super) fn sharing(field: &Field<'_>, kind: Kind) -> Result<Sharing, ClaimError> {
    field.only(&["strategy", "timeSlicingConfig", "mpsConfig"])?;
    let Some(strategy) = field.get("strategy")? else {
        let known = if kind == Kind::Gpu { "known are TimeSlicing, MPS" } else { "known is MPS" };
        let message = format!("strategy is missing; {known}; none is needed without sharing");
        return Err(field.wrong(message));
    };
    if kind == Kind::Mig && strategy.as_text()? == "TimeSlicing" {
        return Err(not_for_mig(&strategy, "known is MPS"));
    }
    let known = if kind == Kind::Gpu { GPU } else { MIG };
    let (time_slicing, mps) = (field.get("timeSlicingConfig")?, field.get("mpsConfig")?);
    match strategy.one_word("strategy", known)? {
        Strategy::TimeSlicing => {
            without(mps, "TimeSlicing", "timeSlicingConfig")?;
            Sharing::time_slicing(time_slicing.as_ref())
        }
        Strategy::Mps => {
            without(time_slicing, "MPS", "mpsConfig")?;
            MpsSettings::read(mps.as_ref()).map(Sharing::Mps)
        }
    }
}

/// Refuses the settings of a strategy that is not chosen.
fn without(block: Option<Field<'_>>, chosen: &str, known: &str) -> Result<(), ClaimError> {
    match block {
        Some(block) => {
            Err(block.wrong(format!("cannot be set with strategy {chosen}; known is {known}")))
        }
        None => Ok(()),
    }
}
