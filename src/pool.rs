//! A pool is what one driver has on a node: GPUs, or the devices that a file declares.

use std::sync::Arc;

use crate::{
    allocate::{self, AllocateError, Allocated},
    claim::{Claim, Class, DRIVER},
    declared::{Declaration, DeviceFile},
    gpu::{GpuError, Gpus, Inventory},
    plan::{Held, Target},
};

/// The devices of a driver.
#[derive(Debug, Clone, Copy)]
pub enum Pool<'a> {
    /// GPUs.
    Gpus(&'a dyn Gpus),
    /// What a file declares.
    Declared(&'a DeviceFile),
}

/// A pool that is somebody's own.
#[derive(Debug)]
pub enum Opened {
    /// GPUs.
    Gpus(Box<dyn Gpus>),
    /// What a file declares.
    Declared(DeviceFile),
}

/// What is in a pool at one moment.
#[derive(Debug, Clone)]
pub enum Stock {
    /// GPUs.
    Gpus(Inventory),
    /// What a file declares.
    Declared {
        /// The node's name.
        node: String,
        /// Its devices.
        declaration: Arc<Declaration>,
    },
}

/// What the address of declared devices begins with; the driver's name is behind it.
const DECLARED: &str = "devices:";

// === impl Pool ===

impl<'a> Pool<'a> {
    /// The name of the driver.
    pub fn driver(self) -> &'a str {
        match self {
            Self::Gpus(_) => DRIVER,
            Self::Declared(file) => file.driver(),
        }
    }

    /// How a later process finds it again: [`Gpus::address`], or `devices:DRIVER`.
    pub fn address(self) -> String {
        match self {
            Self::Gpus(gpus) => gpus.address().to_owned(),
            Self::Declared(file) => format!("{DECLARED}{}", file.driver()),
        }
    }

    /// Its GPUs.
    ///
    /// # Errors
    /// It has none.
    pub fn gpus(self) -> Result<&'a dyn Gpus, GpuError> {
        match self {
            Self::Gpus(gpus) => Ok(gpus),
            Self::Declared(file) => {
                Err(GpuError::NoGpu { gpu: format!("of driver {}", file.driver()) })
            }
        }
    }

    /// What is in it now.
    ///
    /// # Errors
    /// GPUs cannot be looked at.
    pub fn look(self) -> Result<Stock, GpuError> {
        Ok(match self {
            Self::Gpus(gpus) => Stock::Gpus(gpus.inventory()?),
            Self::Declared(file) => {
                let (node, declaration) = (file.node().to_owned(), file.now());
                Stock::Declared { node, declaration }
            }
        })
    }

    /// The driver of declared devices with this address; none where it is that of GPUs.
    pub fn declared_driver(address: &str) -> Option<&str> {
        address.strip_prefix(DECLARED)
    }
}

// === impl Stock ===

impl Stock {
    /// The name of the driver.
    pub fn driver(&self) -> &str {
        match self {
            Self::Gpus(_) => DRIVER,
            Self::Declared { declaration, .. } => &declaration.driver,
        }
    }

    /// Chooses devices for a claim, beside what others hold.
    ///
    /// # Errors
    /// When it asks for what cannot be evaluated, or for more than is free.
    pub fn allocate(
        &self,
        claim: &Claim,
        classes: &[Class],
        held: &[Held],
    ) -> Result<Allocated, AllocateError> {
        match self {
            Self::Gpus(inventory) => allocate::allocate(claim, classes, inventory, held),
            Self::Declared { node, declaration } => {
                allocate::declared(claim, classes, (node, declaration), held)
            }
        }
    }

    /// What its device of this name is on the node.
    pub fn target(&self, device: &str) -> Option<Target> {
        match self {
            Self::Gpus(inventory) => Some(Target::of(&inventory.device(&device.parse().ok()?)?)),
            Self::Declared { declaration, .. } => {
                declaration.device(device).map(|_| Target::Declared { device: device.to_owned() })
            }
        }
    }
}

// === impl Opened ===

impl Opened {
    /// The pool.
    pub fn pool(&self) -> Pool<'_> {
        match self {
            Self::Gpus(gpus) => Pool::Gpus(gpus.as_ref()),
            Self::Declared(file) => Pool::Declared(file),
        }
    }
}
