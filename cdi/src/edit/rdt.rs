//! Intel RDT: the last setting that is asked for replaces the container's whole one.

use serde_json::Value;

use super::{
    Place, What,
    draft::{Draft, Holder},
};
use crate::{oci::Slot, resolve::Resolution, spec::IntelRdt};

pub(super) fn apply<'a>(draft: &mut Draft<'_, 'a>, resolution: &'a Resolution) {
    let settings = resolution.parts.iter().rev();
    let last = settings.filter_map(|part| Some((part.edits.intel_rdt.as_ref()?, &part.origin)));
    let Some((rdt, origin)) = { last }.next() else { return };
    let wanted = value(rdt);
    let old = draft.config.layout().linux.there().map_or(&Slot::Absent, |linux| &linux.intel_rdt);
    let (span, what) = match *old {
        Slot::Absent => (None, What::Added),
        Slot::Null(span) => (Some(span), What::Added),
        Slot::There(span) => {
            if serde_json::from_str(draft.config.raw(span))
                .is_ok_and(|there: Value| there == wanted)
            {
                return;
            }
            (Some(span), What::Replaced)
        }
    };
    draft.set(Holder::Linux, "intelRdt", span, wanted.to_string());
    draft.note(what, origin, Place::Value("/linux/intelRdt"));
}

fn value(rdt: &IntelRdt) -> Value {
    // Strings, lists of them and a bool: they always serialise.
    serde_json::to_value(rdt).unwrap_or_default()
}
