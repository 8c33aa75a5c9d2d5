//! GPUs that are missing: a claim was prepared on them, and they cannot be reached now. What needs
//! them fails and says so; everything else about the claim can still be done.

use std::{collections::BTreeSet, sync::Arc};

use super::{
    Checkup, ComputeMode, Files, Gpu, GpuError, Gpus, Interval, Inventory, MadePartition,
    Partition, PciAddress, Placement,
};
use crate::program::Program;

/// GPUs that cannot be reached.
#[derive(Debug)]
pub struct Missing {
    address: String,
    why: Arc<GpuError>,
}

// === impl Missing ===

impl Missing {
    /// The GPUs at `address`, and why they cannot be reached.
    pub fn new(address: &str, why: GpuError) -> Self {
        Self { address: address.to_owned(), why: Arc::new(why) }
    }

    fn error<T>(&self) -> Result<T, GpuError> {
        let source = Arc::clone(&self.why);
        Err(GpuError::Missing { address: self.address.clone(), source })
    }
}

impl Gpus for Missing {
    fn address(&self) -> &str {
        &self.address
    }

    fn inventory_of(&self, _: Option<&BTreeSet<PciAddress>>) -> Result<Inventory, GpuError> {
        self.error()
    }

    fn checkup(&self) -> Result<Checkup, GpuError> {
        self.error()
    }

    fn create_partition(&self, _: &str, _: &str, _: Placement) -> Result<Partition, GpuError> {
        self.error()
    }

    fn destroy_partition(&self, _: &MadePartition) -> Result<(), GpuError> {
        self.error()
    }

    fn time_slice(&self, _: &str) -> Result<Interval, GpuError> {
        self.error()
    }

    fn set_time_slice(&self, _: &str, _: Interval) -> Result<(), GpuError> {
        self.error()
    }

    fn set_compute_mode(&self, _: &str, _: ComputeMode) -> Result<(), GpuError> {
        self.error()
    }

    fn set_mig(&self, _: &str, _: bool) -> Result<(), GpuError> {
        self.error()
    }

    fn mps_control(&self) -> Result<Program, GpuError> {
        self.error()
    }

    fn device_files(&self, _: &Gpu, _: Option<&str>) -> Result<Files, GpuError> {
        self.error()
    }

    fn display_files(&self, _: &Gpu) -> Result<Files, GpuError> {
        self.error()
    }

    fn driver_files(&self) -> Result<Files, GpuError> {
        self.error()
    }
}
