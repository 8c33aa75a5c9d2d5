//! Additional groups: appended when they are not there; 0 is never added.

use super::{
    draft::{Draft, Entries, Holder},
    index::Index,
};
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
    let mut known = Index::default();
    for item in list {
        known.number(draft.config.raw(item.span).into());
    }
    for part in &resolution.parts {
        for gid in part.edits.additional_gids.iter().filter(|gid| **gid != 0) {
            let text = gid.to_string();
            if known.is_new(text.clone().into()) {
                entries.push(text, "", &part.origin);
            }
        }
    }
    let place = (Holder::User, "additionalGids", "/process/user/additionalGids");
    draft.set_list(place, slot, &entries);
}
