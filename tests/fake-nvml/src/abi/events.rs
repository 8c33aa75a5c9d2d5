//! The calls about events: a set is told what happens to the GPUs that it watches, from then on.

use std::{
    ffi::c_uint,
    sync::PoisonError,
    thread,
    time::{Duration, Instant},
};

use nvml_wrapper_sys::bindings as sys;

use super::{About, call, put, world::World};
use crate::state::{Event, INVALID_ARGUMENT, NOT_FOUND, State};

type Code = sys::nvmlReturn_t;

/// What a set is told.
#[derive(Debug, Default)]
pub(super) struct Set {
    /// How many of the host's events it was told, or was not to be told.
    told: usize,
    /// GPUs by UUID, and kinds of events.
    watched: Vec<(String, u64)>,
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlEventSetCreate(set: *mut sys::nvmlEventSet_t) -> Code {
    call("nvmlEventSetCreate", About::System, |world, state, _| {
        let mut sets = world.sets.lock().unwrap_or_else(PoisonError::into_inner);
        let serial = sets.last_key_value().map_or(1, |(last, _)| last + 1);
        sets.insert(serial, Set { told: state.events.len(), watched: Vec::new() });
        // SAFETY: the caller's handle.
        unsafe { put(set, About::Set(serial).handle()) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceRegisterEvents(
    device: sys::nvmlDevice_t,
    kinds: u64,
    set: sys::nvmlEventSet_t,
) -> Code {
    call("nvmlDeviceRegisterEvents", About::device(device), |world, state, gpu| {
        let gpu = gpu.ok_or(NOT_FOUND)?;
        world.with_set(About::set(set), |set| {
            // What happened to it before is told to nobody.
            let old = state.events.get(set.told..).unwrap_or_default();
            if set.watched.is_empty() || !old.iter().any(|event| set.is_told(event)) {
                set.told = state.events.len();
            }
            set.watched.push((gpu.uuid.clone(), kinds));
        })
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlEventSetWait_v2(
    set: sys::nvmlEventSet_t,
    data: *mut sys::nvmlEventData_t,
    timeout_ms: c_uint,
) -> Code {
    call("nvmlEventSetWait_v2", About::System, |world, _, _| {
        let end = Instant::now() + Duration::from_millis(timeout_ms.into());
        loop {
            let state = world.state()?;
            if let Some(event) = world.with_set(About::set(set), |set| set.next(&state))? {
                let gpu = state.gpus.iter().position(|gpu| gpu.uuid == event.gpu);
                let event = sys::nvmlEventData_t {
                    device: gpu.map_or(About::Nothing, About::Gpu).handle(),
                    eventType: event.kind,
                    eventData: event.data,
                    gpuInstanceId: u32::MAX,
                    computeInstanceId: u32::MAX,
                };
                // SAFETY: the caller's struct.
                return unsafe { put(data, event) };
            }
            if Instant::now() >= end {
                return Err(sys::nvmlReturn_enum_NVML_ERROR_TIMEOUT);
            }
            thread::sleep(Duration::from_millis(10));
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlEventSetFree(set: sys::nvmlEventSet_t) -> Code {
    call("nvmlEventSetFree", About::System, |world, _, _| {
        let mut sets = world.sets.lock().unwrap_or_else(PoisonError::into_inner);
        let About::Set(serial) = About::set(set) else { return Err(INVALID_ARGUMENT) };
        sets.remove(&serial).map(drop).ok_or(INVALID_ARGUMENT)
    })
}

// === impl World ===

impl World {
    fn with_set<T>(&self, about: About, act: impl FnOnce(&mut Set) -> T) -> Result<T, Code> {
        let mut sets = self.sets.lock().unwrap_or_else(PoisonError::into_inner);
        let About::Set(serial) = about else { return Err(INVALID_ARGUMENT) };
        sets.get_mut(&serial).map(act).ok_or(INVALID_ARGUMENT)
    }
}

// === impl Set ===

impl Set {
    fn is_told(&self, event: &Event) -> bool {
        self.watched.iter().any(|(gpu, kinds)| *gpu == event.gpu && kinds & event.kind != 0)
    }

    /// The next event that it is to be told.
    fn next(&mut self, state: &State) -> Option<Event> {
        while let Some(event) = state.events.get(self.told) {
            self.told += 1;
            if self.is_told(event) {
                return Some(event.clone());
            }
        }
        None
    }
}
