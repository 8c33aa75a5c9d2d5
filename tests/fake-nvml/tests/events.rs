//! Event sets are told of XIDs and changes of MIG mode, of the GPUs that they watch.
#![allow(unsafe_code, reason = "NVML is a C library")]

use std::{mem::zeroed, ptr::null_mut};

use divvy_fake_nvml::FakeHost;
use nvml_wrapper_sys::bindings::{
    NvmlLib, nvmlEventData_t, nvmlEventMigConfigChange, nvmlEventTypeXidCriticalError,
    nvmlReturn_enum_NVML_ERROR_TIMEOUT as TIMEOUT, nvmlReturn_enum_NVML_SUCCESS as SUCCESS,
};

#[test]
fn an_event_set_is_told_what_happens_from_its_session_on() {
    let folder = tempfile::tempdir().unwrap();
    let host = FakeHost::make(folder.path(), &[("T4-16GB", false), ("H100-80GB", false)]).unwrap();
    let gpus = host.state().unwrap().gpus;
    host.xid(&gpus[0].uuid, 31).unwrap();
    let path = host.root().join("usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1");
    // SAFETY: the library that this workspace built.
    let nvml = unsafe { NvmlLib::new(path) }.unwrap();
    // SAFETY: takes a number.
    assert_eq!(unsafe { nvml.nvmlInitWithFlags(0) }, SUCCESS);
    let mut set = null_mut();
    // SAFETY: a handle to write.
    assert_eq!(unsafe { nvml.nvmlEventSetCreate(&raw mut set) }, SUCCESS);
    let wait = || {
        // SAFETY: numbers and a handle, for which zero is a value.
        let mut event: nvmlEventData_t = unsafe { zeroed() };
        // SAFETY: a struct to write.
        let code = unsafe { nvml.nvmlEventSetWait_v2(set, &raw mut event, 20) };
        (code, event)
    };
    assert_eq!(wait().0, TIMEOUT);
    // Nobody watches it yet.
    host.xid(&gpus[1].uuid, 48).unwrap();
    let mut device = null_mut();
    // SAFETY: a handle to write.
    let found = unsafe { nvml.nvmlDeviceGetHandleByIndex_v2(1, &raw mut device) };
    assert_eq!(found, SUCCESS);
    let mut kinds = 0;
    // SAFETY: a long to write.
    assert_eq!(unsafe { nvml.nvmlDeviceGetSupportedEventTypes(device, &raw mut kinds) }, SUCCESS);
    // SAFETY: takes handles and a number.
    assert_eq!(unsafe { nvml.nvmlDeviceRegisterEvents(device, kinds, set) }, SUCCESS);
    assert_eq!(wait().0, TIMEOUT);
    host.xid(&gpus[0].uuid, 79).unwrap();
    host.xid(&gpus[1].uuid, 79).unwrap();
    let mut activation = 99;
    // SAFETY: a code to write.
    let set_mig = unsafe { nvml.nvmlDeviceSetMigMode(device, 1, &raw mut activation) };
    assert_eq!((set_mig, activation), (SUCCESS, SUCCESS));
    let (code, event) = wait();
    assert_eq!((code, event.device, event.eventData), (SUCCESS, device, 79));
    assert_eq!(event.eventType, u64::from(nvmlEventTypeXidCriticalError));
    let (code, event) = wait();
    assert_eq!((code, event.eventType), (SUCCESS, u64::from(nvmlEventMigConfigChange)));
    assert_eq!(wait().0, TIMEOUT);
    // SAFETY: nobody waits for it.
    assert_eq!(unsafe { nvml.nvmlEventSetFree(set) }, SUCCESS);
    assert_ne!(wait().0, TIMEOUT);
    // SAFETY: takes nothing.
    assert_eq!(unsafe { nvml.nvmlShutdown() }, SUCCESS);
    assert_ne!(wait().0, TIMEOUT);
}
