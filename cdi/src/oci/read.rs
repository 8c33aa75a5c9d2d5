//! Reading a layout: which members of a config are noted, and of what type they must be.

use super::{
    layout::{
        Hooks, Layout, Linux, List, NetDevices, Object, Process, Resources, Slot, Span, User,
    },
    scan::{Scan, Scanner},
};

/// The places of `text` that edits look at.
pub(super) fn layout(text: &str) -> Scan<Layout> {
    Scanner::new(text).whole(root)
}

/// The string at `path` in the object that `text` is; the last one where a member is there twice.
pub(super) fn text_at(text: &str, path: &[&str]) -> Scan<Option<Span>> {
    let mut found = None;
    Scanner::new(text).whole(|s| find(s, path, &mut found))?;
    Ok(found)
}

fn find(s: &mut Scanner<'_>, path: &[&str], found: &mut Option<Span>) -> Scan<()> {
    let object = s.object("the document", |s, key| {
        let name = s.name(key);
        match path {
            [last] if *last == name => {
                *found = Some(s.string(last)?);
                Ok(())
            }
            [first, rest @ ..] if *first == name => find(s, rest, found),
            _ => s.any().map(drop),
        }
    });
    object.map(drop)
}

fn root(s: &mut Scanner<'_>) -> Scan<Layout> {
    let mut annotations = Slot::Absent;
    let mut process = Slot::Absent;
    let mut mounts = Slot::Absent;
    let mut hooks_slot = Slot::Absent;
    let mut linux_slot = Slot::Absent;
    let root = s.object("the config", |s, key| match &*s.name(key) {
        "annotations" => {
            s.slot(&mut annotations, "annotations", |s| members(s, "annotations", true))
        }
        "process" => s.slot(&mut process, "process", process_object),
        "mounts" => s.slot(&mut mounts, "mounts", |s| objects(s, "mounts", "destination")),
        "hooks" => s.slot(&mut hooks_slot, "hooks", hooks),
        "linux" => s.slot(&mut linux_slot, "linux", linux),
        _ => s.any().map(drop),
    })?;
    let annotations = match annotations {
        Slot::There(members) => members.members,
        Slot::Absent | Slot::Null(_) => Vec::new(),
    };
    Ok(Layout { root, annotations, process, mounts, hooks: hooks_slot, linux: linux_slot })
}

fn process_object(s: &mut Scanner<'_>) -> Scan<Process> {
    let mut env = Slot::Absent;
    let mut user_slot = Slot::Absent;
    let object = s.object("process", |s, key| match &*s.name(key) {
        "env" => s.slot(&mut env, "process.env", |s| strings(s, "process.env")),
        "user" => s.slot(&mut user_slot, "process.user", user),
        _ => s.any().map(drop),
    })?;
    Ok(Process { object, env, user: user_slot })
}

fn user(s: &mut Scanner<'_>) -> Scan<User> {
    let mut uid = Slot::Absent;
    let mut gid = Slot::Absent;
    let mut gids = Slot::Absent;
    let object = s.object("process.user", |s, key| match &*s.name(key) {
        "uid" => s.slot(&mut uid, "process.user.uid", |s| s.id("process.user.uid")),
        "gid" => s.slot(&mut gid, "process.user.gid", |s| s.id("process.user.gid")),
        "additionalGids" => s.slot(&mut gids, "process.user.additionalGids", |s| {
            s.list("process.user.additionalGids", |s| s.id("a group id").map(|_| None))
        }),
        _ => s.any().map(drop),
    })?;
    let number = |slot: &Slot<u32>| slot.there().copied().unwrap_or(0);
    Ok(User { object, uid: number(&uid), gid: number(&gid), additional_gids: gids })
}

fn hooks(s: &mut Scanner<'_>) -> Scan<Hooks> {
    let mut lists: [Slot<List>; 6] = Default::default();
    let object = s.object("hooks", |s, key| {
        let name = s.name(key);
        let known = Hooks::NAMES.into_iter().zip(&mut lists).find(|(known, _)| *known == name);
        match known {
            Some((name, slot)) => s.slot(slot, name, |s| objects(s, name, "path")),
            None => s.any().map(drop),
        }
    })?;
    Ok(Hooks { object, lists })
}

fn linux(s: &mut Scanner<'_>) -> Scan<Linux> {
    let mut devices = Slot::Absent;
    let mut resources_slot = Slot::Absent;
    let mut namespaces = Slot::Absent;
    let mut net_devices = Slot::Absent;
    let mut intel_rdt = Slot::Absent;
    let mut uid_mappings = Slot::Absent;
    let mut gid_mappings = Slot::Absent;
    let object = s.object("linux", |s, key| match &*s.name(key) {
        "devices" => s.slot(&mut devices, "linux.devices", |s| objects(s, "linux.devices", "path")),
        "resources" => s.slot(&mut resources_slot, "linux.resources", resources),
        "namespaces" => {
            s.slot(&mut namespaces, "linux.namespaces", |s| objects(s, "linux.namespaces", "type"))
        }
        "netDevices" => {
            s.slot(&mut net_devices, "linux.netDevices", |s| members(s, "linux.netDevices", false))
        }
        "intelRdt" => s.slot(&mut intel_rdt, "linux.intelRdt", |s| span_of_object(s)),
        "uidMappings" => s.slot(&mut uid_mappings, "linux.uidMappings", Scanner::any),
        "gidMappings" => s.slot(&mut gid_mappings, "linux.gidMappings", Scanner::any),
        _ => s.any().map(drop),
    })?;
    let kinds = namespaces.there().map_or(&[][..], |list: &List| &list.items);
    let user_namespace =
        kinds.iter().filter_map(|item| item.key).any(|kind| s.name(kind) == "user");
    Ok(Linux {
        object,
        devices,
        resources: resources_slot,
        net_devices,
        intel_rdt,
        user_namespace,
        uid_mappings,
        gid_mappings,
    })
}

fn resources(s: &mut Scanner<'_>) -> Scan<Resources> {
    let mut devices = Slot::Absent;
    let object = s.object("linux.resources", |s, key| match &*s.name(key) {
        "devices" => s.slot(&mut devices, "linux.resources.devices", |s| {
            objects(s, "linux.resources.devices", "type")
        }),
        _ => s.any().map(drop),
    })?;
    Ok(Resources { object, devices })
}

fn strings(s: &mut Scanner<'_>, what: &str) -> Scan<List> {
    s.list(what, |s| s.string("a string").map(|_| None))
}

/// A list of objects, each known by its string member `by`, where it has one.
fn objects(s: &mut Scanner<'_>, what: &str, by: &str) -> Scan<List> {
    s.list(what, |s| {
        let mut known_by = Slot::Absent;
        s.object(what, |s, key| {
            if s.name(key) == by {
                s.slot(&mut known_by, by, |s| s.string("a string"))
            } else {
                s.any().map(drop)
            }
        })?;
        Ok(known_by.there().copied())
    })
}

/// An object with free keys, each of them once.
fn members(s: &mut Scanner<'_>, what: &str, of_strings: bool) -> Scan<NetDevices> {
    let mut members: Vec<(Span, Span)> = Vec::new();
    let object: Object = s.object(what, |s, key| {
        let value = if of_strings { s.string("a string")? } else { s.any()? };
        members.push((key, value));
        Ok(())
    })?;
    // Sorted, so that a million keys are no quadratic search.
    let names: Vec<_> = members.iter().map(|&(key, _)| s.name(key)).collect();
    let mut sorted: Vec<&[u8]> = names.iter().map(|name| name.as_bytes()).collect();
    sorted.sort_unstable();
    let twice = sorted.windows(2).find_map(|pair| match pair {
        [a, b] if a == b => Some(*a),
        _ => None,
    });
    let twice = twice.and_then(|name| {
        let places = members.iter().zip(&names).rev();
        places.filter(|(_, known)| known.as_bytes() == name).map(|((key, _), _)| *key).next()
    });
    match twice {
        Some(key) => s.fail_at(key.start, format!("{:?} is twice in {what}", s.name(key))),
        None => Ok(NetDevices { object, members }),
    }
}

fn span_of_object(s: &mut Scanner<'_>) -> Scan<Span> {
    let object = s.object("linux.intelRdt", |s, _| s.any().map(drop))?;
    // Behind the brace, and the scanner stands behind the other one.
    Ok(s.since(object.open - 1))
}
