//! Divvy's own configuration: exactly one way of sharing, with what belongs to it below.

use super::{ClaimError, Field, Kind, MpsSettings, Sharing, not_for_mig};

pub(super) const API_VERSION: &str = "gpu.divvy.dev/v1alpha1";

/// What stands below `sharing`.
pub(super) fn sharing(field: &Field<'_>, kind: Kind) -> Result<Sharing, ClaimError> {
    let (way, value) = field.one_of(&["exclusive", "timeSlicing", "mps"])?;
    match (way, kind) {
        ("timeSlicing", Kind::Gpu) => Sharing::time_slicing(Some(&value)),
        ("timeSlicing", Kind::Mig) => Err(not_for_mig(&value, "known are exclusive, mps")),
        ("mps", _) => MpsSettings::read(Some(&value)).map(Sharing::Mps),
        _ => value.only(&[]).map(|()| Sharing::Exclusive),
    }
}
