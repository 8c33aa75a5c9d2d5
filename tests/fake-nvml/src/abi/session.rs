//! The calls about the library, the driver and which GPUs there are.

use std::ffi::{CStr, c_char, c_int, c_uint};

use nvml_wrapper_sys::bindings as sys;

use super::{About, call, put, put_text};
use crate::state::NOT_FOUND;

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlInit_v2() -> sys::nvmlReturn_t {
    call("nvmlInit_v2", About::System, |world, state, _| world.open(state))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlInitWithFlags(_flags: c_uint) -> sys::nvmlReturn_t {
    call("nvmlInitWithFlags", About::System, |world, state, _| world.open(state))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlShutdown() -> sys::nvmlReturn_t {
    call("nvmlShutdown", About::System, |world, _, _| world.shut())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlErrorString(result: sys::nvmlReturn_t) -> *const c_char {
    let text: &'static CStr = match result {
        sys::nvmlReturn_enum_NVML_SUCCESS => c"Success",
        sys::nvmlReturn_enum_NVML_ERROR_UNINITIALIZED => c"Uninitialized",
        sys::nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT => c"Invalid Argument",
        sys::nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED => c"Not Supported",
        sys::nvmlReturn_enum_NVML_ERROR_NO_PERMISSION => c"Insufficient Permissions",
        sys::nvmlReturn_enum_NVML_ERROR_NOT_FOUND => c"Not Found",
        sys::nvmlReturn_enum_NVML_ERROR_DRIVER_NOT_LOADED => c"Driver Not Loaded",
        sys::nvmlReturn_enum_NVML_ERROR_GPU_IS_LOST => c"GPU is lost",
        sys::nvmlReturn_enum_NVML_ERROR_RESET_REQUIRED => c"GPU requires reset",
        sys::nvmlReturn_enum_NVML_ERROR_IN_USE => c"In use by another client",
        sys::nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_RESOURCES => c"Insufficient Resources",
        _ => c"Unknown Error",
    };
    text.as_ptr()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlSystemGetDriverVersion(
    version: *mut c_char,
    length: c_uint,
) -> sys::nvmlReturn_t {
    call("nvmlSystemGetDriverVersion", About::System, |_, state, _| {
        // SAFETY: the caller's buffer, of the length it says.
        unsafe { put_text(version, length, &state.driver) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlSystemGetCudaDriverVersion_v2(version: *mut c_int) -> sys::nvmlReturn_t {
    call("nvmlSystemGetCudaDriverVersion_v2", About::System, |_, state, _| {
        // SAFETY: the caller's int.
        unsafe { put(version, state.cuda) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetCount_v2(count: *mut c_uint) -> sys::nvmlReturn_t {
    call("nvmlDeviceGetCount_v2", About::System, |_, state, _| {
        let present = state.gpus.iter().filter(|gpu| gpu.present).count();
        // SAFETY: the caller's int.
        unsafe { put(count, u32::try_from(present).unwrap_or(0)) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetHandleByIndex_v2(
    index: c_uint,
    device: *mut sys::nvmlDevice_t,
) -> sys::nvmlReturn_t {
    call("nvmlDeviceGetHandleByIndex_v2", About::System, |_, state, _| {
        let present = state.gpus.iter().enumerate().filter(|(_, gpu)| gpu.present);
        let found = present.map(|(place, _)| place).nth(usize::try_from(index).unwrap_or(0));
        let found = found.ok_or(sys::nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT)?;
        // SAFETY: the caller's handle.
        unsafe { put(device, About::Gpu(found).handle()) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetHandleByPciBusId_v2(
    bus_id: *const c_char,
    device: *mut sys::nvmlDevice_t,
) -> sys::nvmlReturn_t {
    let asked = if bus_id.is_null() {
        String::new()
    } else {
        // SAFETY: not null, so a C string of the caller's.
        unsafe { CStr::from_ptr(bus_id) }.to_string_lossy().to_lowercase()
    };
    // NVML takes domains of four digits and of eight.
    let same = |pci: &str| asked == pci || asked.strip_prefix("0000") == Some(pci);
    let about = super::world::world().and_then(|world| {
        let state = world.state().ok()?;
        state.gpus.iter().position(|gpu| same(&gpu.pci))
    });
    let about = about.map_or(About::Nothing, About::Gpu);
    call("nvmlDeviceGetHandleByPciBusId_v2", about, |_, _, gpu| {
        gpu.ok_or(NOT_FOUND)?;
        // SAFETY: the caller's handle.
        unsafe { put(device, about.handle()) }
    })
}
