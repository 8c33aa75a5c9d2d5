//! Network devices: `linux.netDevices` maps an interface of the host to its name inside.

use std::{borrow::Cow, collections::BTreeMap};

use serde::Deserialize;

use super::{
    EditError, EditErrorKind, Place, What,
    draft::{Draft, Holder},
};
use crate::{
    oci::{Span, push_string},
    resolve::{Origin, Resolution},
};

/// What the config has for an interface, and what it gets.
#[derive(Default)]
struct Interface<'a> {
    /// Its value now, and the name in that.
    now: Option<(Span, Option<String>)>,
    wanted: Option<(&'a str, &'a Origin)>,
}

#[derive(Deserialize)]
struct Settings<'a> {
    #[serde(borrow)]
    name: Option<Cow<'a, str>>,
}

pub(super) fn apply<'a>(
    draft: &mut Draft<'_, 'a>,
    resolution: &'a Resolution,
) -> Result<(), EditError> {
    if resolution.parts.iter().all(|part| part.edits.net_devices.is_empty()) {
        return Ok(());
    }
    let config = draft.config;
    let there = config.layout().linux.there().and_then(|linux| linux.net_devices.there());
    let mut interfaces: BTreeMap<Cow<'a, str>, Interface<'a>> = BTreeMap::new();
    for &(key, value) in there.map_or(&[][..], |net| &net.members) {
        let settings: Option<Settings<'_>> = serde_json::from_str(config.raw(value)).ok();
        let name = settings.and_then(|settings| settings.name).map(Cow::into_owned);
        interfaces.entry(config.string(key)).or_default().now = Some((value, name));
    }
    // In the order of the spec, each once: the new members of the object.
    let mut order: Vec<&'a str> = Vec::new();
    for part in &resolution.parts {
        for net in &part.edits.net_devices {
            let host = net.host_interface_name.as_str();
            let interface = interfaces.entry(Cow::Borrowed(host)).or_default();
            // Go refuses this too, whatever the names.
            if let Some((first, _)) = interface.wanted.replace((&net.name, &part.origin)) {
                let (first, second) = (first.to_owned(), net.name.clone());
                let kind = EditErrorKind::NetTwice { interface: host.to_owned(), first, second };
                return Err(EditError::new(&part.origin, kind));
            }
            order.push(host);
        }
    }
    check_names(&interfaces)?;
    for host in order {
        let Some(Interface { now, wanted: Some((name, origin)) }) = interfaces.get(host) else {
            continue;
        };
        let mut json = "{\"name\":".to_owned();
        push_string(&mut json, name);
        json.push('}');
        let what = match now {
            Some((_, Some(now))) if now == name => continue,
            Some((span, _)) => {
                draft.replace(*span, json);
                What::Replaced
            }
            None => {
                draft.add_member(Holder::NetDevices, host, json);
                What::Added
            }
        };
        draft.note(what, origin, Place::Member("/linux/netDevices", host));
    }
    Ok(())
}

/// No two interfaces may have one name inside, if this edit has a part in it.
fn check_names(interfaces: &BTreeMap<Cow<'_, str>, Interface<'_>>) -> Result<(), EditError> {
    let mut names = BTreeMap::new();
    for (host, interface) in interfaces {
        let name = match (&interface.wanted, &interface.now) {
            (Some((name, _)), _) => name,
            (None, Some((_, Some(name)))) => name.as_str(),
            // Without a setting an interface keeps its name.
            (None, _) => host.as_ref(),
        };
        let Some((first, earlier)) = names.insert(name, (host, interface)) else { continue };
        let wanted: Option<(_, _)> = interface.wanted.or(earlier.wanted);
        if let Some((_, origin)) = wanted {
            let kind = EditErrorKind::NetName {
                first: first.to_string(),
                second: host.to_string(),
                name: name.to_owned(),
            };
            return Err(EditError::new(origin, kind));
        }
    }
    Ok(())
}
