//! Intel RDT: the last setting that is asked for replaces the container's whole one.

use serde::Deserialize;

use super::{
    Place, What,
    draft::{Draft, Holder, push_list},
};
use crate::{
    oci::{Slot, push_string},
    resolve::Resolution,
    spec::IntelRdt,
};

/// The setting as the config has it. One with more members than these is another one.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct OciRdt {
    #[serde(rename = "closID")]
    clos_id: Option<String>,
    l3_cache_schema: Option<String>,
    mem_bw_schema: Option<String>,
    schemata: Option<Vec<String>>,
    #[serde(default)]
    enable_monitoring: bool,
}

pub(super) fn apply<'a>(draft: &mut Draft<'_, 'a>, resolution: &'a Resolution) {
    let mut settings = resolution.parts.iter().rev().filter_map(|part| {
        let rdt = part.edits.intel_rdt.as_ref()?;
        Some((rdt, &part.origin))
    });
    let Some((rdt, origin)) = settings.next() else { return };
    let old = draft.config.layout().linux.there().map_or(&Slot::Absent, |linux| &linux.intel_rdt);
    let (span, what) = match *old {
        Slot::Absent => (None, What::Added),
        Slot::Null(span) => (Some(span), What::Added),
        Slot::There(span) if is(draft.config.raw(span), rdt) => return,
        Slot::There(span) => (Some(span), What::Replaced),
    };
    draft.set(Holder::Linux, "intelRdt", span, json(rdt));
    draft.note(what, origin, Place::Value("/linux/intelRdt"));
}

fn is(there: &str, rdt: &IntelRdt) -> bool {
    serde_json::from_str(there).is_ok_and(|there: OciRdt| {
        there.clos_id == rdt.clos_id
            && there.l3_cache_schema == rdt.l3_cache_schema
            && there.mem_bw_schema == rdt.mem_bw_schema
            && there.schemata.unwrap_or_default() == rdt.schemata.as_deref().unwrap_or_default()
            && there.enable_monitoring == rdt.enable_monitoring
    })
}

fn json(rdt: &IntelRdt) -> String {
    let texts = [
        ("closID", &rdt.clos_id),
        ("l3CacheSchema", &rdt.l3_cache_schema),
        ("memBwSchema", &rdt.mem_bw_schema),
    ];
    let mut out = "{".to_owned();
    let key = |out: &mut String, key: &str| {
        if out.len() > 1 {
            out.push(',');
        }
        push_string(out, key);
        out.push(':');
    };
    for (name, text) in texts {
        if let Some(text) = text {
            key(&mut out, name);
            push_string(&mut out, text);
        }
    }
    if let Some(schemata) = rdt.schemata.as_ref().filter(|schemata| !schemata.is_empty()) {
        key(&mut out, "schemata");
        push_list(&mut out, schemata.iter().map(String::as_str));
    }
    if rdt.enable_monitoring {
        key(&mut out, "enableMonitoring");
        out.push_str("true");
    }
    out.push('}');
    out
}
