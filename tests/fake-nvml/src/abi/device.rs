//! The calls about a GPU, but for MIG.

use std::ffi::{c_char, c_int, c_uint};

use nvml_wrapper_sys::bindings as sys;

use super::{About, call, chars, put, put_text};
use crate::state::{Gpu, INVALID_ARGUMENT, NOT_FOUND, NOT_SUPPORTED};

/// NVSwitches of an HGX board, by bus; they take a GPU's links in turns.
const SWITCHES: [u32; 4] = [5, 6, 7, 8];

/// A call that writes one value about a GPU.
macro_rules! about_gpu {
    ($($name:ident($kind:ty) = $value:expr;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(
            device: sys::nvmlDevice_t,
            place: *mut $kind,
        ) -> sys::nvmlReturn_t {
            call(stringify!($name), About::device(device), |_, _, gpu| {
                let value: fn(&Gpu) -> Result<$kind, sys::nvmlReturn_t> = $value;
                let value = value(gpu.ok_or(NOT_FOUND)?)?;
                // SAFETY: the caller's, of the type that nvml.h says.
                unsafe { put(place, value) }
            })
        }
    )*};
}

about_gpu! {
    nvmlDeviceGetMinorNumber(c_uint) = |gpu| Ok(gpu.minor);
    nvmlDeviceGetComputeMode(c_uint) = |gpu| Ok(gpu.compute_mode);
    nvmlDeviceGetBrand(c_uint) = |gpu| Ok(match gpu.model()?.brand {
        "Tesla" => sys::nvmlBrandType_enum_NVML_BRAND_TESLA,
        _ => sys::nvmlBrandType_enum_NVML_BRAND_NVIDIA,
    });
    nvmlDeviceGetArchitecture(c_uint) = |gpu| Ok(match gpu.model()?.architecture {
        "Turing" => sys::NVML_DEVICE_ARCH_TURING,
        "Ampere" => sys::NVML_DEVICE_ARCH_AMPERE,
        "Ada Lovelace" => sys::NVML_DEVICE_ARCH_ADA,
        "Hopper" => sys::NVML_DEVICE_ARCH_HOPPER,
        "Blackwell" => sys::NVML_DEVICE_ARCH_BLACKWELL,
        _ => sys::NVML_DEVICE_ARCH_UNKNOWN,
    });
    nvmlDeviceGetMemoryInfo(sys::nvmlMemory_t) = |gpu| {
        let total = gpu.model()?.memory << 20;
        Ok(sys::nvmlMemory_t { total, free: total, used: 0 })
    };
    nvmlDeviceGetPciInfo_v3(sys::nvmlPciInfo_t) = |gpu| pci(&gpu.pci);
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetName(
    device: sys::nvmlDevice_t,
    name: *mut c_char,
    length: c_uint,
) -> sys::nvmlReturn_t {
    call("nvmlDeviceGetName", About::device(device), |_, _, gpu| {
        // SAFETY: the caller's buffer, of the length it says.
        unsafe { put_text(name, length, gpu.ok_or(NOT_FOUND)?.model()?.product) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetUUID(
    device: sys::nvmlDevice_t,
    uuid: *mut c_char,
    length: c_uint,
) -> sys::nvmlReturn_t {
    let about = About::device(device);
    call("nvmlDeviceGetUUID", about, |_, state, gpu| {
        let text = match about {
            About::MigDevice(serial) => &state.find_compute(serial)?.1.uuid,
            _ => &gpu.ok_or(NOT_FOUND)?.uuid,
        };
        // SAFETY: the caller's buffer, of the length it says.
        unsafe { put_text(uuid, length, text) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetCudaComputeCapability(
    device: sys::nvmlDevice_t,
    major: *mut c_int,
    minor: *mut c_int,
) -> sys::nvmlReturn_t {
    call("nvmlDeviceGetCudaComputeCapability", About::device(device), |_, _, gpu| {
        let compute = gpu.ok_or(NOT_FOUND)?.model()?.compute;
        // SAFETY: the caller's int.
        unsafe { put(major, compute.0.cast_signed()) }?;
        // SAFETY: the caller's int.
        unsafe { put(minor, compute.1.cast_signed()) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceSetComputeMode(
    device: sys::nvmlDevice_t,
    mode: sys::nvmlComputeMode_t,
) -> sys::nvmlReturn_t {
    let about = About::device(device);
    call("nvmlDeviceSetComputeMode", about, |world, _, _| {
        if mode >= sys::nvmlComputeMode_enum_NVML_COMPUTEMODE_COUNT {
            return Err(INVALID_ARGUMENT);
        }
        world.change(|state| {
            let index = about.index(state).ok_or(NOT_FOUND)?;
            state.gpus.get_mut(index).ok_or(NOT_FOUND)?.compute_mode = mode;
            Ok(())
        })
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetAddressingMode(
    device: sys::nvmlDevice_t,
    mode: *mut sys::nvmlDeviceAddressingMode_t,
) -> sys::nvmlReturn_t {
    call("nvmlDeviceGetAddressingMode", About::device(device), |_, _, _| {
        if mode.is_null() {
            return Err(INVALID_ARGUMENT);
        }
        // SAFETY: not null, and so the caller's.
        let version = unsafe { (*mode).version };
        if version != 0x0100_0008 {
            return Err(sys::nvmlReturn_enum_NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
        }
        let value = sys::nvmlDeviceAddressingModeType_t_NVML_DEVICE_ADDRESSING_MODE_HMM;
        // SAFETY: as above.
        unsafe { put(mode, sys::nvmlDeviceAddressingMode_t { version, value }) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetNvLinkState(
    device: sys::nvmlDevice_t,
    link: c_uint,
    active: *mut sys::nvmlEnableState_t,
) -> sys::nvmlReturn_t {
    call("nvmlDeviceGetNvLinkState", About::device(device), |_, _, gpu| {
        let links = gpu.ok_or(NOT_FOUND)?.model()?.nvlinks;
        if link >= sys::NVML_NVLINK_MAX_LINKS {
            return Err(INVALID_ARGUMENT);
        }
        if link >= links {
            return Err(NOT_SUPPORTED);
        }
        let up = link >= gpu.ok_or(NOT_FOUND)?.health.links_down;
        // SAFETY: the caller's int.
        unsafe { put(active, u32::from(up)) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetNvLinkRemoteDeviceType(
    device: sys::nvmlDevice_t,
    _link: c_uint,
    kind: *mut sys::nvmlIntNvLinkDeviceType_t,
) -> sys::nvmlReturn_t {
    call("nvmlDeviceGetNvLinkRemoteDeviceType", About::device(device), |_, _, _| {
        // SAFETY: the caller's int.
        unsafe { put(kind, sys::nvmlIntNvLinkDeviceType_enum_NVML_NVLINK_DEVICE_TYPE_SWITCH) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetNvLinkRemotePciInfo_v2(
    device: sys::nvmlDevice_t,
    link: c_uint,
    place: *mut sys::nvmlPciInfo_t,
) -> sys::nvmlReturn_t {
    call("nvmlDeviceGetNvLinkRemotePciInfo_v2", About::device(device), |_, _, _| {
        let slot = usize::try_from(link).unwrap_or(0) % SWITCHES.len();
        let bus = SWITCHES.get(slot).copied().unwrap_or_default();
        // SAFETY: the caller's struct.
        unsafe { put(place, pci(&format!("0000:{bus:02x}:00.0"))?) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetGpuFabricInfoV(
    device: sys::nvmlDevice_t,
    place: *mut sys::nvmlGpuFabricInfoV_t,
) -> sys::nvmlReturn_t {
    call("nvmlDeviceGetGpuFabricInfoV", About::device(device), |_, _, gpu| {
        let model = gpu.ok_or(NOT_FOUND)?.model()?;
        // Ampere registers nowhere; an HGX board of one machine is a cluster without a UUID.
        if model.nvlinks == 0 || model.architecture == "Ampere" {
            return Err(NOT_SUPPORTED);
        }
        if place.is_null() {
            return Err(INVALID_ARGUMENT);
        }
        // SAFETY: not null, and so the caller's.
        let version = unsafe { (*place).version };
        let info = sys::nvmlGpuFabricInfoV_t {
            version,
            clusterUuid: [0; 16],
            status: sys::nvmlReturn_enum_NVML_SUCCESS,
            cliqueId: 0,
            state: u8::try_from(sys::NVML_GPU_FABRIC_STATE_COMPLETED).unwrap_or(0),
            healthMask: 0,
            healthSummary: 1,
        };
        // SAFETY: as above.
        unsafe { put(place, info) }
    })
}

/// As NVML writes a PCI address.
fn pci(address: &str) -> Result<sys::nvmlPciInfo_t, sys::nvmlReturn_t> {
    let number = |text: &str| u32::from_str_radix(text, 16).map_err(|_| INVALID_ARGUMENT);
    let mut parts = address.split([':', '.']);
    let mut next = || parts.next().ok_or(INVALID_ARGUMENT).and_then(number);
    let (domain, bus, device) = (next()?, next()?, next()?);
    Ok(sys::nvmlPciInfo_t {
        busIdLegacy: chars(&address.to_uppercase()),
        domain,
        bus,
        device,
        pciDeviceId: 0x2330_10de,
        pciSubSystemId: 0,
        busId: chars(&format!("{domain:08X}:{bus:02X}:{device:02X}.0")),
    })
}
