//! Timed GPUs are the same GPUs, and it is noted how long each answer takes.

use std::collections::BTreeSet;

use crate::{
    gpu::{
        ComputeMode, Files, Gpu, GpuError, Gpus, Interval, Inventory, MadePartition, Partition,
        PciAddress, Placement,
    },
    journal::{Call, Part},
    program::Program,
};

/// GPUs, as one call asks them.
#[derive(Debug)]
pub(super) struct Timed<'a> {
    pub(super) gpus: &'a dyn Gpus,
    pub(super) call: Call<'a>,
}

// === impl Timed ===

impl Timed<'_> {
    fn ask<T>(&self, ask: impl FnOnce(&dyn Gpus) -> T) -> T {
        self.call.at(Part::Nvml, || ask(self.gpus))
    }
}

impl Gpus for Timed<'_> {
    fn address(&self) -> &str {
        self.gpus.address()
    }

    fn inventory_of(&self, only: Option<&BTreeSet<PciAddress>>) -> Result<Inventory, GpuError> {
        self.ask(|gpus| gpus.inventory_of(only))
    }

    fn uuids(&self, at: &BTreeSet<PciAddress>) -> BTreeSet<String> {
        self.ask(|gpus| gpus.uuids(at))
    }

    fn create_partition(
        &self,
        gpu: &str,
        profile: &str,
        placement: Placement,
    ) -> Result<Partition, GpuError> {
        self.ask(|gpus| gpus.create_partition(gpu, profile, placement))
    }

    fn destroy_partition(&self, made: &MadePartition) -> Result<(), GpuError> {
        self.ask(|gpus| gpus.destroy_partition(made))
    }

    fn time_slice(&self, gpu: &str) -> Result<Interval, GpuError> {
        self.ask(|gpus| gpus.time_slice(gpu))
    }

    fn set_time_slice(&self, gpu: &str, interval: Interval) -> Result<(), GpuError> {
        self.ask(|gpus| gpus.set_time_slice(gpu, interval))
    }

    fn set_compute_mode(&self, gpu: &str, mode: ComputeMode) -> Result<(), GpuError> {
        self.ask(|gpus| gpus.set_compute_mode(gpu, mode))
    }

    fn set_mig(&self, gpu: &str, on: bool) -> Result<(), GpuError> {
        self.ask(|gpus| gpus.set_mig(gpu, on))
    }

    fn mps_control(&self) -> Result<Program, GpuError> {
        self.ask(|gpus| gpus.mps_control())
    }

    fn device_files(&self, gpu: &Gpu, partition: Option<&str>) -> Result<Files, GpuError> {
        self.ask(|gpus| gpus.device_files(gpu, partition))
    }

    fn display_files(&self, gpu: &Gpu) -> Result<Files, GpuError> {
        self.ask(|gpus| gpus.display_files(gpu))
    }

    fn driver_files(&self) -> Result<Files, GpuError> {
        self.ask(|gpus| gpus.driver_files())
    }
}
