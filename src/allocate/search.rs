//! The search tries devices for one request after the other, and takes back what leads nowhere.

use std::collections::BTreeMap;

use super::{
    AllocateError, Chosen, MAX_RESULTS, Pool, Wanted, capacity,
    cel::Cel,
    pool::named,
    wanted::{Alternatives, Condition},
};
use crate::{
    claim::{Claim, Constraint, Count, Rule, Share, Toleration, covers},
    publish::{Device, Effect, Taint},
    quantity::Quantity,
};

/// How many devices are tried before a search is given up: some seconds at most. Kubernetes gives
/// up after ten.
const MAX_TRIES: u32 = 200_000;

/// How often a device is looked at, to be passed over: there may be thousands.
const MAX_LOOKS: u32 = 5_000_000;

/// A search for a claim's devices.
pub(super) struct Search<'a> {
    claim: &'a Claim,
    pub(super) pool: &'a Pool,
    cel: &'a Cel,
    pub(super) wanted: &'a [Alternatives<'a>],
    /// What is chosen so far.
    picks: Vec<Pick<'a>>,
    /// The answers of selectors: which condition a device fails first, if any. By request,
    /// alternative and device.
    verdicts: BTreeMap<(usize, usize, usize), Option<usize>>,
    tries: u32,
    looks: u32,
    /// The request that no choice for those before it let be satisfied, and the first of those.
    stuck: Option<(usize, Vec<Pick<'a>>)>,
}

/// A device that is chosen, for now.
#[derive(Debug, Clone)]
pub(super) struct Pick<'a> {
    wanted: &'a Wanted<'a>,
    device: &'a Device,
    /// What it consumes of a device that several may have.
    pub(super) consumed: Option<BTreeMap<String, Quantity>>,
}

/// Which alternative of which request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Turn {
    pub(super) request: usize,
    pub(super) alternative: usize,
}

// === impl Search ===

impl<'a> Search<'a> {
    pub(super) fn new(
        claim: &'a Claim,
        pool: &'a Pool,
        cel: &'a Cel,
        wanted: &'a [Alternatives<'a>],
    ) -> Self {
        let (picks, verdicts) = (Vec::new(), BTreeMap::new());
        Self { claim, pool, cel, wanted, picks, verdicts, tries: 0, looks: 0, stuck: None }
    }

    /// The devices, or why there are none.
    pub(super) fn run(mut self) -> Result<Vec<Chosen>, AllocateError> {
        if self.request(0)? {
            return Ok(self
                .picks
                .iter()
                .enumerate()
                .map(|(at, pick)| self.chosen(at, pick))
                .collect());
        }
        let (stuck, picks) = self.stuck.take().unwrap_or_default();
        self.picks = picks;
        let reasons = self.explain(stuck)?;
        let (claim, node) = (self.claim.title(), self.pool.name.clone());
        Err(AllocateError::NoDevice { claim, node, reasons })
    }

    /// Satisfies the request at `index` and all that follow.
    fn request(&mut self, index: usize) -> Result<bool, AllocateError> {
        let wanted = self.wanted;
        let Some(alternatives) = wanted.get(index) else { return Ok(true) };
        for (alternative, wanted) in alternatives.iter().enumerate() {
            let turn = Turn { request: index, alternative };
            let found = match wanted.ask.count {
                Count::Exact(count) => self.some(turn, wanted, count, 0)?,
                Count::All => self.all(turn, wanted)?,
            };
            if found {
                return Ok(true);
            }
        }
        if self.stuck.as_ref().is_none_or(|(deepest, _)| *deepest < index) {
            self.stuck = Some((index, self.picks.clone()));
        }
        Ok(false)
    }

    /// Gives a request `count` more devices, from the one at `from` on, and satisfies what follows.
    fn some(
        &mut self,
        turn: Turn,
        wanted: &'a Wanted<'a>,
        count: u32,
        from: usize,
    ) -> Result<bool, AllocateError> {
        if count == 0 {
            return self.request(turn.request + 1);
        }
        let pool = self.pool;
        for (at, device) in pool.devices.iter().enumerate().skip(from) {
            // As read: what is in use is passed over before its selectors are looked at, so that an
            // error in them does not come up.
            if !wanted.ask.admin && pool.taken.contains_key(&device.name) {
                continue;
            }
            if self.fails(turn, at)?.is_some() {
                continue;
            }
            let Ok(pick) = self.usable(wanted, device)? else { continue };
            // A device that several may have can be had again; any other is behind us.
            let next = if pick.consumed.is_some() { at } else { at + 1 };
            self.picks.push(pick);
            if self.some(turn, wanted, count - 1, next)? {
                return Ok(true);
            }
            self.picks.pop();
        }
        Ok(false)
    }

    /// Gives a request every device that its selectors let pass: all of them, or none.
    fn all(&mut self, turn: Turn, wanted: &'a Wanted<'a>) -> Result<bool, AllocateError> {
        let before = self.picks.len();
        for at in self.candidates(turn, wanted)? {
            let pool = self.pool;
            let Some(device) = pool.devices.get(at) else { continue };
            let taken = !wanted.ask.admin && pool.taken.contains_key(&device.name);
            match self.usable(wanted, device)? {
                Ok(pick) if !taken => self.picks.push(pick),
                _ => {
                    self.picks.truncate(before);
                    return Ok(false);
                }
            }
        }
        if self.picks.len() > before && self.request(turn.request + 1)? {
            return Ok(true);
        }
        self.picks.truncate(before);
        Ok(false)
    }

    /// The devices that a request for all means. As read: those that have not the capacity asked
    /// for are left out, as if a selector said so.
    pub(super) fn candidates(
        &mut self,
        turn: Turn,
        wanted: &Wanted<'_>,
    ) -> Result<Vec<usize>, AllocateError> {
        let mut found = Vec::new();
        let pool = self.pool;
        for (at, device) in pool.devices.iter().enumerate() {
            let none = BTreeMap::new();
            let enough = capacity::consumed(device, &pool.driver, &wanted.ask.capacity, &none);
            if self.fails(turn, at)?.is_none() && enough.is_ok() {
                found.push(at);
            }
        }
        Ok(found)
    }

    /// The first condition that a device does not meet, if there is one.
    pub(super) fn fails(&mut self, turn: Turn, at: usize) -> Result<Option<usize>, AllocateError> {
        self.looks += 1;
        if self.looks > MAX_LOOKS {
            return Err(self.too_much());
        }
        let key = (turn.request, turn.alternative, at);
        if let Some(verdict) = self.verdicts.get(&key) {
            return Ok(*verdict);
        }
        let wanted = self.wanted.get(turn.request).and_then(|all| all.get(turn.alternative));
        let (Some(wanted), Some(device)) = (wanted, self.pool.devices.get(at)) else {
            return Ok(Some(0));
        };
        let mut verdict = None;
        for (index, condition) in wanted.conditions.iter().enumerate() {
            if !self.holds(condition, device)? {
                verdict = Some(index);
                break;
            }
        }
        self.verdicts.insert(key, verdict);
        Ok(verdict)
    }

    fn holds(&self, condition: &Condition, device: &Device) -> Result<bool, AllocateError> {
        self.cel.holds(&condition.program, device, &self.pool.driver).map_err(|source| {
            AllocateError::Evaluation {
                place: condition.selector.place.clone(),
                expression: condition.selector.expression.clone(),
                device: device.name.clone(),
                source,
            }
        })
    }

    /// The device as a pick beside those there are, or why it is none.
    pub(super) fn usable(
        &mut self,
        wanted: &'a Wanted<'a>,
        device: &'a Device,
    ) -> Result<Result<Pick<'a>, String>, AllocateError> {
        self.tries += 1;
        if self.tries > MAX_TRIES {
            return Err(self.too_much());
        }
        Ok(self.pick(wanted, device))
    }

    fn too_much(&self) -> AllocateError {
        let (claim, tries) = (self.claim.title(), self.tries.min(MAX_TRIES));
        AllocateError::TooMuch { claim, tries }
    }

    fn pick(&self, wanted: &'a Wanted<'a>, device: &'a Device) -> Result<Pick<'a>, String> {
        if self.picks.len() >= MAX_RESULTS {
            return Err(format!("beyond the {MAX_RESULTS} devices of a claim"));
        }
        let shared = device.allow_multiple_allocations && !wanted.ask.admin;
        let same = || self.picks.iter().filter(|pick| pick.device.name == device.name);
        if !shared && same().next().is_some() {
            return Err("given to the claim already".to_owned());
        }
        if !wanted.ask.admin && same().next().is_none() && !self.counters_suffice(device) {
            return Err("overlapping what the claim is given already".to_owned());
        }
        if let Some(taint) = untolerated(&device.taints, &wanted.ask.tolerations) {
            let value =
                if taint.value.is_empty() { String::new() } else { format!("={}", taint.value) };
            return Err(format!("tainted {}{value}:{:?}", taint.key, taint.effect));
        }
        for constraint in &self.claim.constraints {
            self.keeps(constraint, wanted, device)?;
        }
        let mut before = self.pool.consumed.get(&device.name).cloned().unwrap_or_default();
        for (name, amount) in same().filter_map(|pick| pick.consumed.as_ref()).flatten() {
            let sum = before.entry(name.clone()).or_insert(Quantity::ZERO);
            *sum = sum.plus(*amount);
        }
        let asked = &wanted.ask.capacity;
        let consumed = capacity::consumed(device, &self.pool.driver, asked, &before)?;
        Ok(Pick { wanted, device, consumed: shared.then_some(consumed) })
    }

    /// True when the counters that a device consumes are left beside those of the picks.
    fn counters_suffice(&self, device: &Device) -> bool {
        let mut used: BTreeMap<(&str, &str), Quantity> = BTreeMap::new();
        let mut devices = vec![device];
        for pick in self.picks.iter().filter(|pick| !pick.wanted.ask.admin) {
            // A device that several have is there once.
            if devices.iter().all(|known| known.name != pick.device.name) {
                devices.push(pick.device);
            }
        }
        for consumption in devices.iter().flat_map(|device| &device.consumes_counters) {
            for (counter, amount) in &consumption.counters {
                let sum = used.entry((&consumption.counter_set, counter)).or_insert(Quantity::ZERO);
                *sum = sum.plus(*amount);
            }
        }
        let own = device.consumes_counters.iter().flat_map(|consumption| {
            consumption.counters.keys().map(|counter| (&*consumption.counter_set, &**counter))
        });
        own.into_iter().all(|(set, counter)| {
            let there = self.pool.counters.get(&(set.to_owned(), counter.to_owned()));
            there.is_some_and(|there| used.get(&(set, counter)).is_none_or(|used| used <= there))
        })
    }

    /// Whether a device keeps a constraint, with the picks that it is for; or how it breaks it.
    ///
    /// Kubernetes' code compares for `distinctAttribute` only the last device of each request, as
    /// read; its documentation says all, and so it is here.
    fn keeps(
        &self,
        constraint: &Constraint,
        wanted: &Wanted<'_>,
        device: &Device,
    ) -> Result<(), String> {
        let applies = |request: &str| {
            let names = &constraint.requests;
            names.is_empty() || names.iter().any(|name| covers(name, request))
        };
        if !applies(&wanted.request) {
            return Ok(());
        }
        let name = constraint.attribute.as_str();
        let value = |device: &'a Device| named(&device.attributes, name, &self.pool.driver);
        let Some((_, own)) = named(&device.attributes, name, &self.pool.driver) else {
            return Err(format!("without attribute {name}"));
        };
        let mut others = self.picks.iter().filter(|pick| applies(&pick.wanted.request));
        let same = |pick: &Pick<'a>| value(pick.device).is_some_and(|(_, value)| value == own);
        match constraint.rule {
            Rule::Match if others.all(same) => Ok(()),
            Rule::Match => Err(format!("with another {name} than the claim's other devices")),
            Rule::Distinct if others.any(same) => {
                Err(format!("with the {name} of another of the claim's devices"))
            }
            Rule::Distinct => Ok(()),
        }
    }

    fn chosen(&self, at: usize, pick: &Pick<'_>) -> Chosen {
        let share = pick.consumed.clone().map(|consumed| {
            // The same for the same claim and place in it.
            let name = format!("{}/{at}/{}", self.claim.uid, pick.device.name);
            let id = uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_OID, name.as_bytes()).to_string();
            Share { id, consumed }
        });
        Chosen {
            request: pick.wanted.request.clone(),
            device: pick.device.name.clone(),
            admin: pick.wanted.ask.admin,
            tolerations: pick.wanted.ask.tolerations.clone(),
            share,
        }
    }

    /// Keeps a pick beside what is chosen.
    pub(super) fn keep(&mut self, pick: Pick<'a>) {
        self.picks.push(pick);
    }

    /// How many picks there are.
    pub(super) fn kept(&self) -> usize {
        self.picks.len()
    }

    /// Keeps no more than the first of the picks.
    pub(super) fn forget(&mut self, but: usize) {
        self.picks.truncate(but);
    }
}

/// The first taint that keeps a device from those with these tolerations.
fn untolerated<'t>(taints: &'t [Taint], tolerations: &[Toleration]) -> Option<&'t Taint> {
    let tolerates = |toleration: &Toleration, taint: &Taint| {
        (toleration.key.is_empty() || toleration.key == taint.key)
            && toleration.effect.is_none_or(|effect| effect == taint.effect)
            && toleration.value.as_ref().is_none_or(|value| *value == taint.value)
    };
    taints
        .iter()
        .filter(|taint| taint.effect != Effect::None)
        .find(|taint| !tolerations.iter().any(|toleration| tolerates(toleration, taint)))
}
