//! Health is what is known of whether GPUs are well: from what NVML tells and what it is asked, kept over restarts,
//! and shown as taints, to the kubelet and in metrics. docs/health.md has the rules.

mod book;
mod cause;
mod keeper;
pub mod xid;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use crate::{
    gpu::PciAddress,
    publish::{Effect, Taint},
};

pub use book::{Book, Record};
pub use cause::{Cause, Weight};
pub use keeper::Keeper;

/// What is made of what is known.
#[derive(Debug, Clone)]
pub struct Options {
    /// The effect of the taint of a GPU that is of no use until it is reset.
    pub effect: Effect,
    /// XIDs that mean nothing here.
    pub ignored: BTreeSet<u64>,
}

/// What is known at one moment.
#[derive(Debug, Clone)]
pub struct Known {
    /// When the GPUs were last looked at; none before they ever were.
    pub seen: Option<Instant>,
    /// Why they could not be looked at since.
    pub trouble: Option<String>,
    /// Every GPU that was seen since the driver was loaded.
    pub gpus: Vec<GpuHealth>,
    /// How often each XID came, by the GPU's UUID, since the start.
    pub xids: BTreeMap<(String, u64), u64>,
    /// The effect of the taint of a GPU that is of no use.
    pub effect: Effect,
}

/// What is known of one GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuHealth {
    /// Where it sits.
    pub pci: PciAddress,
    /// Its UUID, if it ever said so.
    pub gpu: Option<String>,
    /// What ails it; what weighs most comes first.
    pub causes: Vec<Cause>,
}

/// The longest value of a label, in Kubernetes.
const MAX_VALUE: usize = 63;

// === impl Options ===

impl Default for Options {
    fn default() -> Self {
        Self { effect: Effect::NoSchedule, ignored: BTreeSet::new() }
    }
}

// === impl Known ===

impl Known {
    /// Nothing, yet.
    pub fn nothing(effect: Effect) -> Self {
        let (seen, trouble) = (None, None);
        Self { seen, trouble, gpus: Vec::new(), xids: BTreeMap::new(), effect }
    }

    /// What is known of the GPU with this UUID.
    pub fn of(&self, gpu: &str) -> Option<&GpuHealth> {
        self.gpus.iter().find(|known| known.gpu.as_deref() == Some(gpu))
    }

    /// The taints of GPUs that answer, by UUID.
    pub fn taints(&self) -> BTreeMap<String, Vec<Taint>> {
        let taints = |health: &GpuHealth| Some((health.gpu.clone()?, health.taints(self.effect)));
        self.gpus.iter().filter_map(taints).filter(|(_, taints)| !taints.is_empty()).collect()
    }

    /// Where GPUs were that the driver has no more.
    pub fn gone(&self) -> BTreeSet<PciAddress> {
        let gone = self.gpus.iter().filter(|health| health.causes.contains(&Cause::Gone));
        gone.map(|health| health.pci).collect()
    }
}

// === impl GpuHealth ===

impl GpuHealth {
    /// What ails it and what to do, in one line; none where it is well.
    pub fn says(&self) -> Option<String> {
        let all: Vec<String> = self.causes.iter().map(Cause::to_string).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }

    /// One taint of each name: the values of several are one.
    fn taints(&self, broken: Effect) -> Vec<Taint> {
        let mut taints: Vec<Taint> = Vec::new();
        for cause in &self.causes {
            let Some((name, value)) = cause.taint() else { continue };
            let taint = Taint::ours(name, &value, cause.effect(broken));
            match taints.iter_mut().find(|known| known.key == taint.key) {
                None => taints.push(taint),
                Some(known) if known.value.len() + 1 + value.len() <= MAX_VALUE => {
                    known.value.push('.');
                    known.value.push_str(&value);
                }
                Some(_) => {}
            }
        }
        taints
    }
}

#[cfg(test)]
mod tests;
