//! The state of a simulated node is what was made on it: partitions and time slices. Whoever wants to see
//! an ill GPU writes that here:
//!
//! ```json
//! {"gpus": {"GPU-…": {"lost": true}, "GPU-…": {"health": {"remapPending": true}}},
//!  "events": [{"gpu": "GPU-…", "xid": 79}]}
//! ```

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use divvy_cdi::file::{Durability, FileError, Trust};
use serde::{Deserialize, Serialize};

use crate::{
    gpu::{ComputeMode, GpuError, Interval, Partition, Vitals},
    lock::Lock,
};

/// What is kept, by GPU.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct State {
    /// The boot in which it was made. Of another, as with real GPUs, nothing but MIG mode is left.
    #[serde(default)]
    boot: String,
    /// Counts the partitions ever made, so that no two have one UUID.
    #[serde(default)]
    pub(super) serial: u64,
    #[serde(default)]
    pub(super) gpus: BTreeMap<String, Kept>,
    /// What happened to GPUs in this boot, the last last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) events: Vec<Happened>,
}

/// What the driver reported of a GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Happened {
    pub(super) gpu: String,
    pub(super) xid: u64,
}

/// What is kept of one GPU.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Kept {
    #[serde(default)]
    pub(super) time_slice: Interval,
    #[serde(default)]
    pub(super) compute_mode: ComputeMode,
    #[serde(default)]
    pub(super) partitions: Vec<Partition>,
    /// MIG mode, where it is another than the node file says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) mig: Option<bool>,
    /// It has fallen off the bus.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) lost: bool,
    /// What it says of its health; what is left out is well.
    #[serde(default, skip_serializing_if = "is_well")]
    pub(super) health: Vitals,
}

/// Where the state lies.
#[derive(Debug)]
pub(super) struct Store {
    file: PathBuf,
    lock: PathBuf,
    boot: String,
}

const MAX_BYTES: usize = 1 << 20;

fn is_well(vitals: &Vitals) -> bool {
    *vitals == Vitals::default()
}

// === impl Store ===

impl Store {
    pub(super) fn beside(node_file: &Path) -> Result<Self, FileError> {
        Ok(Self {
            file: node_file.with_extension("state.json"),
            lock: node_file.with_extension("lock"),
            boot: divvy_hook::record::boot_id()?,
        })
    }

    /// The state; a node on which nothing was made yet has none.
    pub(super) fn read(&self) -> Result<State, GpuError> {
        let mut state: State =
            match divvy_cdi::file::read(&self.file, MAX_BYTES, &Trust::of_process()) {
                Ok(bytes) => serde_json::from_slice(&bytes).map_err(|e| GpuError::State {
                    path: self.file.clone(),
                    message: e.to_string(),
                })?,
                Err(FileError::NotFound { .. }) => State::default(),
                Err(error) => return Err(error.into()),
            };
        if state.boot != self.boot {
            // Written by a person, it is of this boot.
            let by_hand = std::mem::replace(&mut state.boot, self.boot.clone()).is_empty();
            if by_hand {
                return Ok(state);
            }
            state.events.clear();
            for kept in state.gpus.values_mut() {
                *kept = Kept { mig: kept.mig, ..Kept::default() };
            }
        }
        Ok(state)
    }

    /// Waits until nobody else writes beside the node's file.
    pub(super) fn lock(&self) -> Result<Lock, GpuError> {
        Ok(Lock::wait(&self.lock, None)?)
    }

    /// Changes the state; on an error it stays as it was.
    pub(super) fn change<T>(
        &self,
        change: impl FnOnce(&mut State) -> Result<T, GpuError>,
    ) -> Result<T, GpuError> {
        let _held = self.lock()?;
        if let Some(folder) = self.file.parent() {
            divvy_cdi::file::sweep(folder);
        }
        let mut state = self.read()?;
        let answer = change(&mut state)?;
        // A GPU on which nothing is left is as one that was never touched.
        state.gpus.retain(|_, kept| *kept != Kept::default());
        let bytes = serde_json::to_vec_pretty(&state)
            .map_err(|e| GpuError::State { path: self.file.clone(), message: e.to_string() })?;
        divvy_cdi::file::replace(&self.file, &bytes, 0o644, Durability::Durable)?;
        Ok(answer)
    }
}
