//! A declared device is one of the host that a file says is there: an FPGA, a network card, a video
//! card. It is published, allocated, prepared and given as a GPU is, under the driver's name that the
//! file has.
//!
//! What a driver is on a node is a [`Pool`](crate::pool::Pool): GPUs, or a file's devices. Journal, locks,
//! records, kubelet sockets and slices are the same for both, each driver with its own below
//! `drivers/<driver>`. A declared device needs no step: it is there. So all that this module has is
//! reading the file, planning without steps, and finding on the host what a spec will name.

mod decode;
mod error;
mod file;
mod host;
mod plan;

use divvy_cdi::{host::Host, spec::ContainerEdits};

use crate::publish;

pub use error::DeclaredError;
pub use file::{DeviceFile, Looked};
pub(crate) use host::check;

/// What a file declares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Declaration {
    /// Whose devices they are: a DNS subdomain, as Kubernetes names drivers.
    pub driver: String,
    /// The devices, in the order of the file.
    pub devices: Vec<Device>,
}

/// A declared device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// As others see it.
    pub published: publish::Device,
    /// What its containers get.
    pub edits: ContainerEdits,
}

// === impl Device ===

impl Device {
    /// What of it is not on the host.
    pub(crate) fn absence(&self, host: &dyn Host) -> Option<DeclaredError> {
        check(&self.published.name, &self.edits, host).err()
    }
}

// === impl Declaration ===

impl Declaration {
    /// Its device of this name.
    pub fn device(&self, name: &str) -> Option<&Device> {
        self.devices.iter().find(|device| device.published.name == name)
    }

    /// The devices as others see them.
    pub fn published(&self) -> Vec<publish::Device> {
        self.devices.iter().map(|device| device.published.clone()).collect()
    }
}

#[cfg(test)]
mod tests;
