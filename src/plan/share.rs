//! Shares of one GPU are had side by side where one control daemon of MPS serves them all: they are
//! set up the same, and together they have no more memory than the GPU.

use super::{Held, PlanError, Planned};
use crate::{
    claim::{Claim, DRIVER, Share, Sharing},
    gpu::Gpu,
    quantity::Quantity,
};

/// The capacity that must not be given twice.
const MEMORY: &str = "memory";

/// The memory of a GPU as shares of it are counted: in whole MiB.
pub fn whole_memory(gpu: &Gpu) -> Quantity {
    Quantity::bytes(gpu.memory >> 20 << 20)
}

/// Refuses a share that is not shared by MPS: nothing else sets a part of a GPU up. A share of all the
/// memory is no part: nobody else has any.
pub(super) fn check(claim: &Claim, planned: &Planned, gpu: &Gpu) -> Result<(), PlanError> {
    match (&planned.share, &planned.sharing) {
        (None, _) | (_, Sharing::Mps(_)) => Ok(()),
        (Some(share), _) if memory(share) >= whole_memory(gpu) => Ok(()),
        (Some(share), sharing) => Err(PlanError::ShareWithoutMps {
            claim: claim.title(),
            device: planned.device.clone(),
            share: share.id.clone(),
            sharing: sharing.to_string(),
        }),
    }
}

/// What keeps a share from being given beside those that other claims, and this one, have of the
/// GPU, if anything does, to be read behind its name.
pub(super) fn obstacle(
    planned: &Planned,
    gpu: &Gpu,
    held: &[Held],
    earlier: &[Planned],
) -> Option<String> {
    let share = planned.share.as_ref()?;
    let beside: Vec<&Held> = held.iter().filter(|held| held.is_share_of(&planned.target)).collect();
    if let Some(Held { claim, sharing, .. }) =
        beside.iter().find(|held| held.sharing != planned.sharing)
    {
        return Some(format!("is shared by claim {claim} in another way: {sharing}"));
    }
    let own = earlier.iter().filter(|one| !one.admin && one.target == planned.target);
    let shares = own.filter_map(|one| one.share.as_ref());
    let all = beside.iter().filter_map(|held| held.share.as_ref()).chain(shares);
    let used = all.map(memory).fold(Quantity::ZERO, Quantity::plus);
    let left = Quantity::bytes(gpu.memory).minus(used);
    let wanted = memory(share);
    (wanted > left).then(|| {
        let left = left.max(Quantity::ZERO);
        format!("has {left} of memory left beside other shares, and {wanted} is consumed of it")
    })
}

fn memory(share: &Share) -> Quantity {
    consumed(share).unwrap_or(Quantity::ZERO)
}

fn consumed(share: &Share) -> Option<Quantity> {
    let own = share.consumed.get(MEMORY);
    own.or_else(|| share.consumed.get(&format!("{DRIVER}/{MEMORY}"))).copied()
}

// === impl Planned ===

impl Planned {
    /// The memory of which it is a share, in bytes, where that is said.
    pub fn shared_memory(&self) -> Option<u64> {
        let memory = consumed(self.share.as_ref()?)?;
        memory.integer().and_then(|bytes| u64::try_from(bytes).ok())
    }
}
