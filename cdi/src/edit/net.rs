//! Network devices: `linux.netDevices` maps an interface of the host to its name inside.

use std::borrow::Cow;

use serde::Deserialize;

use super::{
    EditError, EditErrorKind, Place, What,
    draft::{Draft, Holder},
    index::Index,
};
use crate::{
    oci::{Span, push_string},
    resolve::{Origin, Resolution},
};

/// What the config has for an interface of the host, and what it gets.
struct Interface<'a> {
    host: Cow<'a, str>,
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
    let mut known = Index::default();
    let mut interfaces: Vec<Interface<'a>> = Vec::new();
    for &(key, value) in there.map_or(&[][..], |net| &net.members) {
        let settings: Option<Settings<'_>> = serde_json::from_str(config.raw(value)).ok();
        let name = settings.and_then(|settings| settings.name).map(Cow::into_owned);
        let host = config.string(key);
        known.number(host.clone());
        interfaces.push(Interface { host, now: Some((value, name)), wanted: None });
    }
    for part in &resolution.parts {
        for net in &part.edits.net_devices {
            let host = net.host_interface_name.as_str();
            let number = known.number(host.into());
            let wanted = Some((net.name.as_str(), &part.origin));
            let Some(interface) = interfaces.get_mut(number) else {
                interfaces.push(Interface { host: host.into(), now: None, wanted });
                continue;
            };
            // Go refuses this too, whatever the names.
            if let Some((first, _)) = interface.wanted {
                let (first, second) = (first.to_owned(), net.name.clone());
                let kind = EditErrorKind::NetTwice { interface: host.to_owned(), first, second };
                return Err(EditError::new(&part.origin, kind));
            }
            interface.wanted = wanted;
        }
    }
    check_names(&interfaces)?;
    for Interface { host, now, wanted } in &interfaces {
        let Some((name, origin)) = *wanted else { continue };
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
                draft.add_member(Holder::NetDevices, host.clone(), json);
                What::Added
            }
        };
        draft.note(what, origin, Place::Member("/linux/netDevices", host.clone()));
    }
    Ok(())
}

/// No two interfaces may have one name inside, if this edit has a part in it.
fn check_names(interfaces: &[Interface<'_>]) -> Result<(), EditError> {
    let mut names = Index::default();
    let mut of_names: Vec<&Interface<'_>> = Vec::new();
    for interface in interfaces {
        let name = match (&interface.wanted, &interface.now) {
            (Some((name, _)), _) => name,
            (None, Some((_, Some(name)))) => name.as_str(),
            // Without a setting an interface keeps its name.
            (None, _) => interface.host.as_ref(),
        };
        let Some(earlier) = of_names.get(names.number(name.into())) else {
            of_names.push(interface);
            continue;
        };
        if let Some((_, origin)) = interface.wanted.or(earlier.wanted) {
            let kind = EditErrorKind::NetName {
                first: earlier.host.to_string(),
                second: interface.host.to_string(),
                name: name.to_owned(),
            };
            return Err(EditError::new(origin, kind));
        }
    }
    Ok(())
}
