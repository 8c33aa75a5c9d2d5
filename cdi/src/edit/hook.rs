//! Hooks: appended to their list; one that is there already is not run twice.

use std::borrow::Cow;

use serde::Deserialize;

use super::{
    draft::{Draft, Entries, Holder, push_list},
    index::Index,
};
use crate::{
    oci::{Hooks, Slot, push_string},
    resolve::Resolution,
};

/// A hook as the config has it. One with more members than these is another hook.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OciHook<'a> {
    #[serde(borrow)]
    path: Cow<'a, str>,
    args: Option<Vec<String>>,
    env: Option<Vec<String>>,
    timeout: Option<i64>,
}

const POINTERS: [&str; 6] = [
    "/hooks/prestart",
    "/hooks/createRuntime",
    "/hooks/createContainer",
    "/hooks/startContainer",
    "/hooks/poststart",
    "/hooks/poststop",
];

pub(super) fn apply<'a>(draft: &mut Draft<'_, 'a>, resolution: &'a Resolution) {
    if resolution.parts.iter().all(|part| part.edits.hooks.is_empty()) {
        return;
    }
    for (index, (name, pointer)) in Hooks::NAMES.into_iter().zip(POINTERS).enumerate() {
        let hooks = draft.config.layout().hooks.there();
        let slot = hooks.and_then(|hooks| hooks.lists.get(index)).unwrap_or(&Slot::Absent);
        let mut entries = Entries::of(draft.config, slot);
        let mut of_list = resolution.parts.iter().flat_map(|part| {
            let hooks = part.edits.hooks.iter().filter(|hook| hook.hook_name.as_str() == name);
            hooks.map(|hook| (hook, &part.origin))
        });
        let Some(first) = of_list.next() else { continue };
        let mut known = Index::default();
        for json in entries.list.iter().filter_map(|entry| canonical(&entry.json)) {
            known.number(json.into());
        }
        for (hook, origin) in std::iter::once(first).chain(of_list) {
            let json = json(&hook.path, &hook.args, &hook.env, hook.timeout);
            if known.is_new(json.clone().into()) {
                entries.push(json, &hook.path, origin);
            }
        }
        draft.set_list((Holder::Hooks, name, pointer), slot, &entries);
    }
}

/// A hook of the config as we would write it; none when it has members that we do not know.
fn canonical(text: &str) -> Option<String> {
    let hook: OciHook<'_> = serde_json::from_str(text).ok()?;
    let (args, env) = (hook.args.unwrap_or_default(), hook.env.unwrap_or_default());
    Some(json(&hook.path, &args, &env, hook.timeout))
}

fn json(path: &str, args: &[String], env: &[String], timeout: Option<i64>) -> String {
    let mut out = "{\"path\":".to_owned();
    push_string(&mut out, path);
    for (key, list) in [(",\"args\":", args), (",\"env\":", env)] {
        if !list.is_empty() {
            out.push_str(key);
            push_list(&mut out, list.iter().map(String::as_str));
        }
    }
    if let Some(timeout) = timeout {
        out.push_str(",\"timeout\":");
        out.push_str(&timeout.to_string());
    }
    out.push('}');
    out
}
