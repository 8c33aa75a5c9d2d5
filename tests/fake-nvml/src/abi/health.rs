//! The calls about a GPU's health.

use std::ffi::{c_int, c_uint, c_ulonglong};

use nvml_wrapper_sys::bindings as sys;

use super::{About, call, put};
use crate::state::{Gpu, INVALID_ARGUMENT, NOT_FOUND, NOT_SUPPORTED};

type Code = sys::nvmlReturn_t;

/// A call that writes one value about a GPU.
macro_rules! about_gpu {
    ($($name:ident($kind:ty) = $value:expr;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(device: sys::nvmlDevice_t, place: *mut $kind) -> Code {
            call(stringify!($name), About::device(device), |_, _, gpu| {
                let value: fn(&Gpu) -> Result<$kind, Code> = $value;
                let value = value(gpu.ok_or(NOT_FOUND)?)?;
                // SAFETY: the caller's, of the type that nvml.h says.
                unsafe { put(place, value) }
            })
        }
    )*};
}

about_gpu! {
    nvmlDeviceGetRetiredPagesPendingStatus(sys::nvmlEnableState_t) = |gpu| {
        if gpu.replaces_rows()? {
            return Err(NOT_SUPPORTED);
        }
        Ok(u32::from(gpu.health.remap_pending))
    };
    nvmlDeviceGetCurrentClocksEventReasons(c_ulonglong) = |gpu| Ok(gpu.health.slowdowns);
    nvmlDeviceGetTotalEnergyConsumption(c_ulonglong) = |gpu| Ok(gpu.health.energy);
    nvmlDeviceGetMemoryBusWidth(c_uint) = |gpu| Ok(gpu.model()?.bus.0);
    nvmlDeviceGetSupportedEventTypes(c_ulonglong) = |gpu| {
        let mig = if gpu.model()?.profiles.is_empty() { 0 } else { sys::nvmlEventMigConfigChange };
        Ok(u64::from(sys::nvmlEventTypeXidCriticalError | sys::nvmlEventTypeDoubleBitEccError | mig))
    };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetRemappedRows(
    device: sys::nvmlDevice_t,
    corrected: *mut c_uint,
    uncorrected: *mut c_uint,
    pending: *mut c_uint,
    failed: *mut c_uint,
) -> Code {
    call("nvmlDeviceGetRemappedRows", About::device(device), |_, _, gpu| {
        let gpu = gpu.ok_or(NOT_FOUND)?;
        if !gpu.replaces_rows()? {
            return Err(NOT_SUPPORTED);
        }
        let health = &gpu.health;
        for (place, value) in [
            (corrected, 0),
            (uncorrected, u32::from(health.remap_pending)),
            (pending, u32::from(health.remap_pending)),
            (failed, u32::from(health.remap_failed)),
        ] {
            // SAFETY: the caller's int.
            unsafe { put(place, value) }?;
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetTotalEccErrors(
    device: sys::nvmlDevice_t,
    kind: sys::nvmlMemoryErrorType_t,
    _since: sys::nvmlEccCounterType_t,
    count: *mut c_ulonglong,
) -> Code {
    call("nvmlDeviceGetTotalEccErrors", About::device(device), |_, _, gpu| {
        let health = &gpu.ok_or(NOT_FOUND)?.health;
        let uncorrected = sys::nvmlMemoryErrorType_enum_NVML_MEMORY_ERROR_TYPE_UNCORRECTED;
        // SAFETY: the caller's.
        unsafe { put(count, if kind == uncorrected { health.uncorrected } else { 0 }) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMaxClockInfo(
    device: sys::nvmlDevice_t,
    kind: sys::nvmlClockType_t,
    clock: *mut c_uint,
) -> Code {
    call("nvmlDeviceGetMaxClockInfo", About::device(device), |_, _, gpu| {
        if kind != sys::nvmlClockType_enum_NVML_CLOCK_MEM {
            return Err(NOT_SUPPORTED);
        }
        // SAFETY: the caller's int.
        unsafe { put(clock, gpu.ok_or(NOT_FOUND)?.model()?.bus.1) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetFieldValues(
    device: sys::nvmlDevice_t,
    count: c_int,
    fields: *mut sys::nvmlFieldValue_t,
) -> Code {
    call("nvmlDeviceGetFieldValues", About::device(device), |_, _, gpu| {
        let health = &gpu.ok_or(NOT_FOUND)?.health;
        if fields.is_null() || count != 1 {
            return Err(INVALID_ARGUMENT);
        }
        // SAFETY: not null, and one field is the caller's.
        let asked = unsafe { (*fields).fieldId };
        let known = asked == sys::field_id::NVML_FI_DEV_GET_GPU_RECOVERY_ACTION;
        let action = health.recovery.filter(|_| known);
        let field = sys::nvmlFieldValue_t {
            fieldId: asked,
            scopeId: 0,
            timestamp: 0,
            latencyUsec: 0,
            valueType: sys::nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_INT,
            nvmlReturn: action.map_or(NOT_SUPPORTED, |_| sys::nvmlReturn_enum_NVML_SUCCESS),
            value: sys::nvmlValue_t { ullVal: action.unwrap_or(0).into() },
        };
        // SAFETY: as above.
        unsafe { put(fields, field) }
    })
}
