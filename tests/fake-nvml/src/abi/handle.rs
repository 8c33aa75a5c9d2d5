//! A handle is a number that C holds as a pointer: what it is of, and which one.

use std::ptr;

use nvml_wrapper_sys::bindings as sys;

use crate::state::{Code, Gpu, NOT_FOUND, State};

/// What a call is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum About {
    /// The driver, or nothing.
    System,
    /// A GPU, by its place in the state.
    Gpu(usize),
    /// A GPU instance, by serial.
    Instance(u64),
    /// A compute instance, by serial.
    Compute(u64),
    /// The MIG device of a compute instance, by serial.
    MigDevice(u64),
    /// An event set, by serial.
    Set(u64),
    /// Nothing that is.
    Nothing,
}

const KIND: u32 = 56;

// === impl About ===

impl About {
    /// What a device handle is of.
    pub(super) fn device(handle: sys::nvmlDevice_t) -> Self {
        Self::of(handle.addr())
    }

    /// What a handle of an event set is of.
    pub(super) fn set(handle: sys::nvmlEventSet_t) -> Self {
        Self::of(handle.addr())
    }

    /// What a handle of a GPU instance is of.
    pub(super) fn instance(handle: sys::nvmlGpuInstance_t) -> Self {
        Self::of(handle.addr())
    }

    /// What a handle of a compute instance is of.
    pub(super) fn compute(handle: sys::nvmlComputeInstance_t) -> Self {
        Self::of(handle.addr())
    }

    /// The handle of it.
    pub(super) fn handle<T>(self) -> *mut T {
        let (kind, number) = match self {
            Self::System | Self::Nothing => (0, 0),
            Self::Gpu(index) => (1, u64::try_from(index).unwrap_or(0)),
            Self::Instance(serial) => (2, serial),
            Self::Compute(serial) => (3, serial),
            Self::MigDevice(serial) => (4, serial),
            Self::Set(serial) => (5, serial),
        };
        let number = (kind << KIND) | number;
        ptr::without_provenance_mut(usize::try_from(number).unwrap_or(0))
    }

    /// The GPU that it is, or is on.
    pub(super) fn gpu(self, state: &State) -> Option<&Gpu> {
        state.gpus.get(self.index(state)?)
    }

    /// That GPU's place in the state.
    pub(super) fn index(self, state: &State) -> Option<usize> {
        match self {
            Self::System | Self::Set(_) | Self::Nothing => None,
            Self::Gpu(index) => Some(index).filter(|index| *index < state.gpus.len()),
            Self::Instance(serial) => state.find_instance(serial).ok().map(|(gpu, _)| gpu),
            Self::Compute(serial) | Self::MigDevice(serial) => {
                let (instance, _) = state.find_compute(serial).ok()?;
                state.find_instance(instance.serial).ok().map(|(gpu, _)| gpu)
            }
        }
    }

    /// The serial of an instance.
    pub(super) fn serial(self) -> Result<u64, Code> {
        match self {
            Self::Instance(serial) | Self::Compute(serial) | Self::MigDevice(serial) => Ok(serial),
            Self::System | Self::Gpu(_) | Self::Set(_) | Self::Nothing => Err(NOT_FOUND),
        }
    }

    fn of(handle: usize) -> Self {
        let handle = u64::try_from(handle).unwrap_or(0);
        let number = handle & ((1 << KIND) - 1);
        match handle >> KIND {
            1 => usize::try_from(number).map_or(Self::Nothing, Self::Gpu),
            2 => Self::Instance(number),
            3 => Self::Compute(number),
            4 => Self::MigDevice(number),
            5 => Self::Set(number),
            _ => Self::Nothing,
        }
    }
}
