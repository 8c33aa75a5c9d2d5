//! An explanation says of a request that cannot be satisfied what keeps each group of devices from
//! it: `8 devices: 6 do not match …, 2 held by claim x`.

use super::{
    AllocateError, Wanted,
    error::Expression,
    search::{Search, Turn},
};
use crate::{claim::Count, publish::Device};

/// Devices that the same thing keeps from a request.
struct Group {
    reason: String,
    devices: Vec<String>,
}

/// How many groups are told apart, and of how many devices a group names each.
const MAX_GROUPS: usize = 5;
const MAX_NAMES: usize = 2;

// === impl Search ===

impl<'a> Search<'a> {
    /// What keeps a request from being satisfied beside what is chosen now.
    pub(super) fn explain(&mut self, request: usize) -> Result<String, AllocateError> {
        let wanted = self.wanted;
        let alternatives = wanted.get(request).map_or(&[][..], Vec::as_slice);
        let mut texts = Vec::new();
        for (alternative, wanted) in alternatives.iter().enumerate() {
            texts.push(self.explain_one(Turn { request, alternative }, wanted)?);
        }
        Ok(texts.join("; "))
    }

    fn explain_one(&mut self, turn: Turn, wanted: &'a Wanted<'a>) -> Result<String, AllocateError> {
        let mut groups: Vec<Group> = Vec::new();
        let mut free = 0;
        let kept = self.kept();
        let pool = self.pool;
        for (at, device) in pool.devices.iter().enumerate() {
            let taken = pool.taken.get(&device.name).filter(|_| !wanted.ask.admin);
            let reason = match (taken, self.fails(turn, at)) {
                (_, Ok(Some(index))) => unmet(wanted, index),
                // The search has not looked at its selectors.
                (Some(by), _) => by.clone(),
                (None, Err(error)) => return Err(error),
                (None, Ok(None)) => {
                    let (more, reason) = self.use_up(wanted, device)?;
                    free += more;
                    let Some(reason) = reason else { continue };
                    reason
                }
            };
            match groups.iter_mut().find(|group| group.reason == reason) {
                Some(group) => group.devices.push(device.name.clone()),
                None => groups.push(Group { reason, devices: vec![device.name.clone()] }),
            }
        }
        self.forget(kept);
        let asked = match wanted.ask.count {
            Count::Exact(count) => format!("{count} asked for"),
            Count::All => "all that match asked for".to_owned(),
        };
        let head = format!("request {}: {asked}, {free} free", wanted.request);
        Ok(match pool.devices.len() {
            0 => format!("{head}: it has no devices"),
            1 => format!("{head}: 1 device: {}", told(groups)),
            all => format!("{head}: {all} devices: {}", told(groups)),
        })
    }

    /// Picks a device as often as it can be had: how often that is, and what ends it, where it is not
    /// that it can be had but once.
    fn use_up(
        &mut self,
        wanted: &'a Wanted<'a>,
        device: &'a Device,
    ) -> Result<(u32, Option<String>), AllocateError> {
        let mut times = 0;
        loop {
            match self.usable(wanted, device)? {
                Ok(pick) => {
                    let again = pick.consumed.is_some();
                    self.keep(pick);
                    times += 1;
                    if !again {
                        return Ok((times, None));
                    }
                }
                Err(reason) => return Ok((times, Some(reason))),
            }
        }
    }
}

fn unmet(wanted: &Wanted<'_>, index: usize) -> String {
    match wanted.conditions.get(index) {
        Some(condition) => {
            let expression = Expression(&condition.selector.expression);
            format!("not matching {expression} of {}", condition.of)
        }
        None => "not matching".to_owned(),
    }
}

/// The largest groups first.
fn told(mut groups: Vec<Group>) -> String {
    groups.sort_by_key(|group| std::cmp::Reverse(group.devices.len()));
    let rest: usize = groups.iter().skip(MAX_GROUPS).map(|group| group.devices.len()).sum();
    let mut told: Vec<String> = groups.iter().take(MAX_GROUPS).map(Group::told).collect();
    if rest > 0 {
        told.push(format!("{rest} for other reasons"));
    }
    match told.is_empty() {
        true => "all free, and yet no choice of them keeps all that the claim asks".to_owned(),
        false => told.join(", "),
    }
}

// === impl Group ===

impl Group {
    fn told(&self) -> String {
        let (count, reason) = (self.devices.len(), &self.reason);
        let selected = !reason.starts_with("not matching");
        match count <= MAX_NAMES && selected {
            true => format!("{count} {reason} ({})", self.devices.join(", ")),
            false => format!("{count} {reason}"),
        }
    }
}
