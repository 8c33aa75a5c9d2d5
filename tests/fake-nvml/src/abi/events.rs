//! The calls about events: a set is told what happens from its making on.

use std::{
    ffi::c_uint,
    sync::atomic::Ordering::Relaxed,
    thread,
    time::{Duration, Instant},
};

use nvml_wrapper_sys::bindings as sys;

use super::{About, call, put};

type Code = sys::nvmlReturn_t;

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlEventSetCreate(set: *mut sys::nvmlEventSet_t) -> Code {
    call("nvmlEventSetCreate", About::System, |_, _, _| {
        // One set is as another here, so all have one handle.
        // SAFETY: the caller's handle.
        unsafe { put(set, About::Gpu(0).handle()) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceRegisterEvents(
    device: sys::nvmlDevice_t,
    _kinds: u64,
    _set: sys::nvmlEventSet_t,
) -> Code {
    call("nvmlDeviceRegisterEvents", About::device(device), |_, _, _| Ok(()))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlEventSetWait_v2(
    _set: sys::nvmlEventSet_t,
    data: *mut sys::nvmlEventData_t,
    timeout_ms: c_uint,
) -> Code {
    call("nvmlEventSetWait_v2", About::System, |world, _, _| {
        let end = Instant::now() + Duration::from_millis(timeout_ms.into());
        loop {
            let state = world.state()?;
            let told = world.told.load(Relaxed);
            if let Some(event) = state.events.get(told) {
                world.told.store(told + 1, Relaxed);
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
unsafe extern "C" fn nvmlEventSetFree(_set: sys::nvmlEventSet_t) -> Code {
    call("nvmlEventSetFree", About::System, |_, _, _| Ok(()))
}
