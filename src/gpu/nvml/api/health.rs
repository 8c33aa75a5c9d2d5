//! The calls about a GPU's health: what its driver knows of it, and what it tells of it.

use std::sync::Arc;

use nvml_wrapper_sys::bindings as sys;

use super::{Api, Caller, Device, Failed};
use crate::gpu::Recovery;

/// What NVML tells events to; ended when nobody holds it any more.
pub(in crate::gpu::nvml) struct EventSet {
    api: Arc<Api>,
    set: sys::nvmlEventSet_t,
}

/// An event as NVML tells it.
#[derive(Debug, Clone, Copy)]
pub(in crate::gpu::nvml) struct Told {
    pub(in crate::gpu::nvml) device: Device,
    /// `nvmlEventType…`
    pub(in crate::gpu::nvml) kind: u64,
    /// Of an XID its number.
    pub(in crate::gpu::nvml) data: u64,
}

/// `NVML_GPU_RECOVERY_ACTION_SYSTEM_REBOOT`, newer than the bindings.
const SYSTEM_REBOOT: u32 = 7;

// SAFETY: a set is NVML's name for something of its own, and NVML is thread-safe.
unsafe impl Send for EventSet {}
// SAFETY: as above.
unsafe impl Sync for EventSet {}

// === impl EventSet ===

impl Drop for EventSet {
    fn drop(&mut self) {
        if let Ok(free) = &self.api.lib.nvmlEventSetFree {
            // SAFETY: nobody waits for it: whoever does holds it.
            let _freed = unsafe { free(self.set) };
        }
    }
}

impl std::fmt::Debug for EventSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("EventSet")
    }
}

// === impl Caller ===

impl Caller {
    /// Whether memory rows wait for a reset to be replaced, and whether replacing one failed. Ampere
    /// and newer.
    pub(in crate::gpu::nvml) fn remapped(&self, device: Device) -> Result<(bool, bool), Failed> {
        let (mut corrected, mut uncorrected, mut pending, mut failed) = (0, 0, 0, 0);
        self.call("nvmlDeviceGetRemappedRows", || {
            let call = self.api.lib.nvmlDeviceGetRemappedRows.as_ref();
            call.map(|call| {
                let counts = (&raw mut corrected, &raw mut uncorrected);
                // SAFETY: four ints to write.
                unsafe { call(device.0, counts.0, counts.1, &raw mut pending, &raw mut failed) }
            })
        })?;
        Ok((pending != 0, failed != 0))
    }

    /// Whether memory pages wait for a reset to be taken out of use. Before Ampere.
    pub(in crate::gpu::nvml) fn retirement_pending(&self, device: Device) -> Result<bool, Failed> {
        let pending: u32 = self.value("nvmlDeviceGetRetiredPagesPendingStatus", |place| {
            let call = self.api.lib.nvmlDeviceGetRetiredPagesPendingStatus.as_ref();
            // SAFETY: an enum to write.
            call.map(|call| unsafe { call(device.0, place) })
        })?;
        Ok(pending != 0)
    }

    /// Memory errors that were not corrected, since the last reset or load of the driver.
    pub(in crate::gpu::nvml) fn uncorrected(&self, device: Device) -> Result<u64, Failed> {
        let kind = sys::nvmlMemoryErrorType_enum_NVML_MEMORY_ERROR_TYPE_UNCORRECTED;
        let since = sys::nvmlEccCounterType_enum_NVML_VOLATILE_ECC;
        self.value("nvmlDeviceGetTotalEccErrors", |place| {
            let call = self.api.lib.nvmlDeviceGetTotalEccErrors.as_ref();
            // SAFETY: a long to write.
            call.map(|call| unsafe { call(device.0, kind, since, place) })
        })
    }

    /// What slows a GPU down now: bits of `nvmlClocksEventReason…`. Before driver 535 the call had
    /// another name.
    pub(in crate::gpu::nvml) fn slowdowns(&self, device: Device) -> Result<u64, Failed> {
        let new = self.value("nvmlDeviceGetCurrentClocksEventReasons", |place| {
            let call = self.api.lib.nvmlDeviceGetCurrentClocksEventReasons.as_ref();
            // SAFETY: a long to write.
            call.map(|call| unsafe { call(device.0, place) })
        });
        match new {
            Err(failed) if failed.is(sys::nvmlReturn_enum_NVML_ERROR_FUNCTION_NOT_FOUND) => {
                self.value("nvmlDeviceGetCurrentClocksThrottleReasons", |place| {
                    let call = self.api.lib.nvmlDeviceGetCurrentClocksThrottleReasons.as_ref();
                    // SAFETY: a long to write.
                    call.map(|call| unsafe { call(device.0, place) })
                })
            }
            new => new,
        }
    }

    /// What the driver wants done to a GPU.
    pub(in crate::gpu::nvml) fn recovery(&self, device: Device) -> Result<Recovery, Failed> {
        const CALL: &str = "nvmlDeviceGetFieldValues";
        let mut field = sys::nvmlFieldValue_t {
            fieldId: sys::field_id::NVML_FI_DEV_GET_GPU_RECOVERY_ACTION,
            scopeId: 0,
            timestamp: 0,
            latencyUsec: 0,
            valueType: 0,
            nvmlReturn: sys::nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED,
            value: sys::nvmlValue_t { ullVal: 0 },
        };
        self.call(CALL, || {
            let call = self.api.lib.nvmlDeviceGetFieldValues.as_ref();
            // SAFETY: one struct to read and write.
            call.map(|call| unsafe { call(device.0, 1, &raw mut field) })
        })?;
        // The field has an answer of its own.
        if field.nvmlReturn != sys::nvmlReturn_enum_NVML_SUCCESS {
            return Err(super::failed(&self.api.lib, CALL, field.nvmlReturn));
        }
        // SAFETY: every value of the union begins with its lowest bytes here, and all were zero.
        let action = unsafe { field.value.uiVal };
        Ok(match action {
            sys::nvmlDeviceGpuRecoveryAction_s_NVML_GPU_RECOVERY_ACTION_NONE => Recovery::Nothing,
            sys::nvmlDeviceGpuRecoveryAction_s_NVML_GPU_RECOVERY_ACTION_GPU_RESET => {
                Recovery::Reset
            }
            sys::nvmlDeviceGpuRecoveryAction_s_NVML_GPU_RECOVERY_ACTION_NODE_REBOOT
            | SYSTEM_REBOOT => Recovery::Reboot,
            sys::nvmlDeviceGpuRecoveryAction_s_NVML_GPU_RECOVERY_ACTION_DRAIN_P2P => {
                Recovery::DrainLinks
            }
            sys::nvmlDeviceGpuRecoveryAction_s_NVML_GPU_RECOVERY_ACTION_DRAIN_AND_RESET => {
                Recovery::DrainAndReset
            }
            _ => Recovery::Other,
        })
    }

    /// Millijoules since the GPU was initialized. Volta and newer.
    pub(in crate::gpu::nvml) fn energy(&self, device: Device) -> Result<u64, Failed> {
        self.value("nvmlDeviceGetTotalEnergyConsumption", |place| {
            let call = self.api.lib.nvmlDeviceGetTotalEnergyConsumption.as_ref();
            // SAFETY: a long to write.
            call.map(|call| unsafe { call(device.0, place) })
        })
    }

    /// A set that is told nothing yet.
    pub(in crate::gpu::nvml) fn event_set(&self) -> Result<EventSet, Failed> {
        let mut set = std::ptr::null_mut();
        self.call("nvmlEventSetCreate", || {
            let call = self.api.lib.nvmlEventSetCreate.as_ref();
            // SAFETY: a handle to write.
            call.map(|call| unsafe { call(&raw mut set) })
        })?;
        Ok(EventSet { api: Arc::clone(&self.api), set })
    }

    /// Has a set told what of these kinds happens to a GPU, as far as the GPU has such events.
    pub(in crate::gpu::nvml) fn watch(
        &self,
        device: Device,
        kinds: u64,
        set: &EventSet,
    ) -> Result<(), Failed> {
        let known: u64 = self.value("nvmlDeviceGetSupportedEventTypes", |place| {
            let call = self.api.lib.nvmlDeviceGetSupportedEventTypes.as_ref();
            // SAFETY: a long to write.
            call.map(|call| unsafe { call(device.0, place) })
        })?;
        self.call("nvmlDeviceRegisterEvents", || {
            let call = self.api.lib.nvmlDeviceRegisterEvents.as_ref();
            // SAFETY: the set is not freed as long as it is borrowed.
            call.map(|call| unsafe { call(device.0, known & kinds, set.set) })
        })
    }

    /// The next event that a set was told; none where there is none now.
    pub(in crate::gpu::nvml) fn next_event(&self, set: &EventSet) -> Result<Option<Told>, Failed> {
        let mut event = sys::nvmlEventData_t {
            device: std::ptr::null_mut(),
            eventType: 0,
            eventData: 0,
            gpuInstanceId: 0,
            computeInstanceId: 0,
        };
        let waited = self.call("nvmlEventSetWait_v2", || {
            let call = self.api.lib.nvmlEventSetWait_v2.as_ref();
            // SAFETY: the set is not freed as long as it is borrowed; a struct to write.
            call.map(|call| unsafe { call(set.set, &raw mut event, 0) })
        });
        match waited {
            Ok(()) => Ok(Some(Told {
                device: Device(event.device),
                kind: event.eventType,
                data: event.eventData,
            })),
            Err(failed) if failed.is(sys::nvmlReturn_enum_NVML_ERROR_TIMEOUT) => Ok(None),
            Err(failed) => Err(failed),
        }
    }
}
