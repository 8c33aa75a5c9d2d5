//! Merging gathers the configuration that goes with the chosen devices: that of their classes, then
//! the claim's own, which count more the later they stand.

use super::{Chosen, Merged, Source};
use crate::claim::{Ask, Claim, Class, Wants, covers};

/// The configuration for these devices. As in Kubernetes, a class's is there once, for all requests
/// that got devices of that class; the claim's where one of the requests that it names got any.
pub(super) fn merge(claim: &Claim, classes: &[Class], chosen: &[Chosen]) -> Vec<Merged> {
    let mut named: Vec<(&str, Vec<String>)> = Vec::new();
    for chosen in chosen {
        let Some(ask) = ask(claim, &chosen.request) else { continue };
        let at = named.iter().position(|(class, _)| *class == ask.class).unwrap_or_else(|| {
            named.push((&ask.class, Vec::new()));
            named.len() - 1
        });
        if let Some((_, requests)) = named.get_mut(at)
            && !requests.contains(&chosen.request)
        {
            requests.push(chosen.request.clone());
        }
    }
    let mut merged = Vec::new();
    for (name, requests) in named {
        let Some(class) = classes.iter().find(|class| class.name == name) else { continue };
        merged.extend(class.config.iter().enumerate().map(|(index, entry)| Merged {
            source: Source::Class(name.to_owned()),
            index,
            requests: requests.clone(),
            ours: entry.ours.clone(),
        }));
    }
    for (index, entry) in claim.config.iter().enumerate() {
        let applies = |name: &String| chosen.iter().any(|chosen| covers(name, &chosen.request));
        if entry.requests.is_empty() || entry.requests.iter().any(applies) {
            let (source, requests) = (Source::Claim, entry.requests.clone());
            merged.push(Merged { source, index, requests, ours: entry.ours.clone() });
        }
    }
    merged
}

fn ask<'a>(claim: &'a Claim, request: &str) -> Option<&'a Ask> {
    let (whole, sub) = request.split_once('/').unwrap_or((request, ""));
    match &claim.requests.iter().find(|request| request.name == whole)?.wants {
        Wants::Exactly(ask) => Some(ask),
        Wants::FirstAvailable(all) => all.iter().find(|(name, _)| name == sub).map(|(_, ask)| ask),
    }
}
