//! Additional groups: appended when they are not there; 0 is never added.

use std::collections::BTreeSet;

use super::draft::{Draft, Entries, Holder};
use crate::{oci::Slot, resolve::Resolution};

pub(super) fn apply<'a>(draft: &mut Draft<'_, 'a>, resolution: &'a Resolution) {
    if resolution.parts.iter().all(|part| part.edits.additional_gids.is_empty()) {
        return;
    }
    let process = draft.config.layout().process.there();
    let user = process.and_then(|process| process.user.there());
    let slot = user.map_or(&Slot::Absent, |user| &user.additional_gids);
    let mut entries = Entries::of(draft.config, slot);
    let list = slot.there().map_or(&[][..], |list| &list.items);
    let texts = list.iter().map(|item| draft.config.raw(item.span));
    let mut known: BTreeSet<u32> = texts.filter_map(|text| text.parse().ok()).collect();
    for part in &resolution.parts {
        for gid in part.edits.additional_gids.iter().filter(|gid| **gid != 0) {
            if known.insert(*gid) {
                entries.push(gid.to_string(), "", &part.origin);
            }
        }
    }
    let place = (Holder::User, "additionalGids", "/process/user/additionalGids");
    draft.set_list(place, slot, &entries);
}
