//! The calls about MIG.

use std::ffi::c_uint;

use nvml_wrapper_sys::bindings as sys;

use super::{About, call, chars, put};
use crate::{
    model::{Model, Placement, Profile},
    state::{Compute, INVALID_ARGUMENT, Instance, NOT_FOUND, NOT_SUPPORTED, State},
};

type Code = sys::nvmlReturn_t;

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMigMode(
    device: sys::nvmlDevice_t,
    current: *mut c_uint,
    pending: *mut c_uint,
) -> Code {
    call("nvmlDeviceGetMigMode", About::device(device), |_, _, gpu| {
        let gpu = gpu.ok_or(NOT_FOUND)?;
        if gpu.model()?.profiles.is_empty() {
            return Err(NOT_SUPPORTED);
        }
        // SAFETY: the caller's int.
        unsafe { put(current, c_uint::from(gpu.mig)) }?;
        // SAFETY: the caller's int.
        unsafe { put(pending, c_uint::from(gpu.mig_pending)) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceSetMigMode(
    device: sys::nvmlDevice_t,
    mode: c_uint,
    activation: *mut Code,
) -> Code {
    let about = About::device(device);
    call("nvmlDeviceSetMigMode", about, |world, _, _| {
        let status = world.change(|state| {
            let index = about.index(state).ok_or(NOT_FOUND)?;
            state.set_mig(index, mode == 1)
        })?;
        // SAFETY: the caller's int.
        unsafe { put(activation, status) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetGpuInstanceProfileInfo(
    device: sys::nvmlDevice_t,
    profile: c_uint,
    place: *mut sys::nvmlGpuInstanceProfileInfo_t,
) -> Code {
    call("nvmlDeviceGetGpuInstanceProfileInfo", About::device(device), |_, _, gpu| {
        let known = by_number(gpu.ok_or(NOT_FOUND)?.model()?, profile)?;
        let info = sys::nvmlGpuInstanceProfileInfo_t {
            id: known.id,
            isP2pSupported: 0,
            sliceCount: known.slices(),
            instanceCount: instances(known),
            multiprocessorCount: known.multiprocessors,
            copyEngineCount: known.engines.copy,
            decoderCount: known.engines.decoders,
            encoderCount: known.engines.encoders,
            jpegCount: known.engines.jpeg,
            ofaCount: known.engines.ofa,
            memorySizeMB: known.memory,
        };
        // SAFETY: the caller's struct.
        unsafe { put(place, info) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetGpuInstanceProfileInfoV(
    device: sys::nvmlDevice_t,
    profile: c_uint,
    place: *mut sys::nvmlGpuInstanceProfileInfo_v2_t,
) -> Code {
    call("nvmlDeviceGetGpuInstanceProfileInfoV", About::device(device), |_, _, gpu| {
        let known = by_number(gpu.ok_or(NOT_FOUND)?.model()?, profile)?;
        if place.is_null() {
            return Err(INVALID_ARGUMENT);
        }
        // SAFETY: not null, and so the caller's.
        let version = unsafe { (*place).version };
        let size = u32::try_from(size_of::<sys::nvmlGpuInstanceProfileInfo_v2_t>()).unwrap_or(0);
        if version != size | 2 << 24 {
            return Err(sys::nvmlReturn_enum_NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
        }
        let info = sys::nvmlGpuInstanceProfileInfo_v2_t {
            version,
            id: known.id,
            isP2pSupported: 0,
            sliceCount: known.slices(),
            instanceCount: instances(known),
            multiprocessorCount: known.multiprocessors,
            copyEngineCount: known.engines.copy,
            decoderCount: known.engines.decoders,
            encoderCount: known.engines.encoders,
            jpegCount: known.engines.jpeg,
            ofaCount: known.engines.ofa,
            memorySizeMB: known.memory,
            name: chars(&format!("MIG {}", known.name)),
        };
        // SAFETY: as above.
        unsafe { put(place, info) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetGpuInstancePossiblePlacements_v2(
    device: sys::nvmlDevice_t,
    profile_id: c_uint,
    places: *mut sys::nvmlGpuInstancePlacement_t,
    count: *mut c_uint,
) -> Code {
    call("nvmlDeviceGetGpuInstancePossiblePlacements_v2", About::device(device), |_, _, gpu| {
        let known = gpu.ok_or(NOT_FOUND)?.profile_by_id(profile_id).ok_or(NOT_SUPPORTED)?;
        let all = known.placements().map(|place| sys::nvmlGpuInstancePlacement_t {
            start: place.start.into(),
            size: place.size.into(),
        });
        // SAFETY: the caller's array, of the length it says.
        unsafe { put_all(places, count, all.collect()) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceCreateGpuInstanceWithPlacement(
    device: sys::nvmlDevice_t,
    profile_id: c_uint,
    place: *const sys::nvmlGpuInstancePlacement_t,
    instance: *mut sys::nvmlGpuInstance_t,
) -> Code {
    let about = About::device(device);
    call("nvmlDeviceCreateGpuInstanceWithPlacement", about, |world, _, _| {
        if place.is_null() {
            return Err(INVALID_ARGUMENT);
        }
        // SAFETY: not null, and so the caller's.
        let place = unsafe { place.read() };
        let byte = |number: c_uint| u8::try_from(number).map_err(|_| INVALID_ARGUMENT);
        let place = Placement { start: byte(place.start)?, size: byte(place.size)? };
        let serial = world.change(|state| {
            let index = about.index(state).ok_or(NOT_FOUND)?;
            state.create_instance(index, profile_id, place)
        })?;
        // SAFETY: the caller's handle.
        unsafe { put(instance, About::Instance(serial).handle()) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetGpuInstances(
    device: sys::nvmlDevice_t,
    profile_id: c_uint,
    instances: *mut sys::nvmlGpuInstance_t,
    count: *mut c_uint,
) -> Code {
    call("nvmlDeviceGetGpuInstances", About::device(device), |_, _, gpu| {
        let gpu = gpu.ok_or(NOT_FOUND)?;
        gpu.in_mig_mode()?;
        let profile = gpu.profile_by_id(profile_id).ok_or(NOT_SUPPORTED)?;
        let those = gpu.instances.iter().filter(|there| there.profile == profile.name);
        let all = those.map(|there| About::Instance(there.serial).handle());
        // NVML says only how many it wrote, and asks for room for all that could be.
        // SAFETY: the caller's array, with room for the profile's instances.
        unsafe { write_all(instances, count, all.collect()) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetGpuInstanceById(
    device: sys::nvmlDevice_t,
    id: c_uint,
    place: *mut sys::nvmlGpuInstance_t,
) -> Code {
    call("nvmlDeviceGetGpuInstanceById", About::device(device), |_, _, gpu| {
        let gpu = gpu.ok_or(NOT_FOUND)?;
        gpu.in_mig_mode()?;
        let found = gpu.instances.iter().find(|instance| instance.id == id).ok_or(NOT_FOUND)?;
        // SAFETY: the caller's handle.
        unsafe { put(place, About::Instance(found.serial).handle()) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlGpuInstanceGetInfo(
    instance: sys::nvmlGpuInstance_t,
    place: *mut sys::nvmlGpuInstanceInfo_t,
) -> Code {
    let about = About::instance(instance);
    call("nvmlGpuInstanceGetInfo", about, |_, state, gpu| {
        let (index, found) = found(state, about)?;
        let profile = gpu.ok_or(NOT_FOUND)?.model()?.profile(&found.profile).ok_or(NOT_FOUND)?;
        let (start, size) = (found.start.into(), found.size.into());
        let info = sys::nvmlGpuInstanceInfo_t {
            device: About::Gpu(index).handle(),
            id: found.id,
            profileId: profile.id,
            placement: sys::nvmlGpuInstancePlacement_t { start, size },
        };
        // SAFETY: the caller's struct.
        unsafe { put(place, info) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlGpuInstanceDestroy(instance: sys::nvmlGpuInstance_t) -> Code {
    let about = About::instance(instance);
    call("nvmlGpuInstanceDestroy", about, |world, _, _| {
        world.change(|state| state.destroy_instance(about.serial()?))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlGpuInstanceGetComputeInstanceProfileInfo(
    instance: sys::nvmlGpuInstance_t,
    profile: c_uint,
    _engines: c_uint,
    place: *mut sys::nvmlComputeInstanceProfileInfo_t,
) -> Code {
    let about = About::instance(instance);
    call("nvmlGpuInstanceGetComputeInstanceProfileInfo", about, |_, state, gpu| {
        let (_, found) = found(state, about)?;
        let whole = gpu.ok_or(NOT_FOUND)?.model()?.profile(&found.profile).ok_or(NOT_FOUND)?;
        let slices = slices(profile).filter(|slices| *slices <= whole.slices());
        let slices = slices.ok_or(NOT_SUPPORTED)?;
        let engines = whole.engines;
        let info = sys::nvmlComputeInstanceProfileInfo_t {
            id: profile,
            sliceCount: slices,
            instanceCount: whole.slices() / slices,
            multiprocessorCount: whole.multiprocessors * slices / whole.slices().max(1),
            sharedCopyEngineCount: engines.copy,
            sharedDecoderCount: engines.decoders,
            sharedEncoderCount: engines.encoders,
            sharedJpegCount: engines.jpeg,
            sharedOfaCount: engines.ofa,
        };
        // SAFETY: the caller's struct.
        unsafe { put(place, info) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlGpuInstanceCreateComputeInstance(
    instance: sys::nvmlGpuInstance_t,
    profile_id: c_uint,
    place: *mut sys::nvmlComputeInstance_t,
) -> Code {
    let about = About::instance(instance);
    call("nvmlGpuInstanceCreateComputeInstance", about, |world, _, _| {
        let slices = slices(profile_id).ok_or(NOT_SUPPORTED)?;
        let serial = world.change(|state| state.create_compute(about.serial()?, slices))?;
        // SAFETY: the caller's handle.
        unsafe { put(place, About::Compute(serial).handle()) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlGpuInstanceGetComputeInstances(
    instance: sys::nvmlGpuInstance_t,
    profile_id: c_uint,
    places: *mut sys::nvmlComputeInstance_t,
    count: *mut c_uint,
) -> Code {
    let about = About::instance(instance);
    call("nvmlGpuInstanceGetComputeInstances", about, |_, state, _| {
        let (_, found) = found(state, about)?;
        let slices = slices(profile_id).ok_or(NOT_SUPPORTED)?;
        let those = found.compute.iter().filter(|compute| compute.slices == slices);
        let all = those.map(|compute| About::Compute(compute.serial).handle());
        // SAFETY: the caller's array, with room for the profile's instances.
        unsafe { write_all(places, count, all.collect()) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlComputeInstanceGetInfo_v2(
    compute: sys::nvmlComputeInstance_t,
    place: *mut sys::nvmlComputeInstanceInfo_t,
) -> Code {
    let about = About::compute(compute);
    call("nvmlComputeInstanceGetInfo_v2", about, |_, state, _| {
        let (instance, Compute { serial, id, slices, .. }) = state.find_compute(about.serial()?)?;
        let info = sys::nvmlComputeInstanceInfo_t {
            device: About::MigDevice(*serial).handle(),
            gpuInstance: About::Instance(instance.serial).handle(),
            id: *id,
            profileId: counted(*slices).ok_or(NOT_FOUND)?,
            placement: sys::nvmlComputeInstancePlacement_t { start: 0, size: *slices },
        };
        // SAFETY: the caller's struct.
        unsafe { put(place, info) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlComputeInstanceDestroy(compute: sys::nvmlComputeInstance_t) -> Code {
    let about = About::compute(compute);
    call("nvmlComputeInstanceDestroy", about, |world, _, _| {
        world.change(|state| state.destroy_compute(about.serial()?))
    })
}

/// The profile that NVML counts by this number: by slices, and by which of those with as many.
fn by_number(model: &'static Model, wanted: c_uint) -> Result<&'static Profile, Code> {
    let smallest = model.profiles.iter().map(|profile| profile.size).min();
    let number = |profile: &Profile| match (profile.slices(), profile.name.ends_with("+me")) {
        (1, true) => Some(sys::NVML_GPU_INSTANCE_PROFILE_1_SLICE_REV1),
        (2, true) => Some(sys::NVML_GPU_INSTANCE_PROFILE_2_SLICE_REV1),
        (1, false) if Some(profile.size) != smallest => {
            Some(sys::NVML_GPU_INSTANCE_PROFILE_1_SLICE_REV2)
        }
        (slices, _) => counted(slices),
    };
    model.profiles.iter().find(|profile| number(profile) == Some(wanted)).ok_or(NOT_SUPPORTED)
}

/// How NVML counts the profile of so many slices, of GPU and of compute instances.
fn counted(slices: u32) -> Option<c_uint> {
    match slices {
        1..=4 => Some(slices - 1),
        7 => Some(sys::NVML_COMPUTE_INSTANCE_PROFILE_7_SLICE),
        8 => Some(sys::NVML_COMPUTE_INSTANCE_PROFILE_8_SLICE),
        6 => Some(sys::NVML_COMPUTE_INSTANCE_PROFILE_6_SLICE),
        _ => None,
    }
}

/// [`counted`], the other way.
fn slices(wanted: c_uint) -> Option<u32> {
    (1..=8).find(|slices| counted(*slices) == Some(wanted))
}

fn instances(profile: &Profile) -> u32 {
    let places = u32::try_from(profile.starts.len()).unwrap_or(0);
    if profile.name.ends_with("+me") { 1 } else { places }
}

fn found(state: &State, about: About) -> Result<(usize, &Instance), Code> {
    let (gpu, place) = state.find_instance(about.serial()?)?;
    let instance = state.gpus.get(gpu).and_then(|gpu| gpu.instances.get(place));
    Ok((gpu, instance.ok_or(NOT_FOUND)?))
}

/// Writes an array, or says how long it is.
///
/// # Safety
/// `places` is null, or has room for as many as `count` says.
unsafe fn put_all<T>(places: *mut T, count: *mut c_uint, all: Vec<T>) -> Result<(), Code> {
    if count.is_null() {
        return Err(INVALID_ARGUMENT);
    }
    // SAFETY: not null, and so the caller's.
    let room = usize::try_from(unsafe { count.read() }).unwrap_or(0);
    if !places.is_null() && room < all.len() {
        return Err(sys::nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_SIZE);
    }
    // SAFETY: there is room for all.
    unsafe { write_all(places, count, all) }
}

/// Writes an array and how long it is.
///
/// # Safety
/// `places` is null, or has room for all.
unsafe fn write_all<T>(places: *mut T, count: *mut c_uint, all: Vec<T>) -> Result<(), Code> {
    // SAFETY: the caller's int.
    unsafe { put(count, u32::try_from(all.len()).unwrap_or(0)) }?;
    if places.is_null() {
        return Ok(());
    }
    for (index, value) in all.into_iter().enumerate() {
        // SAFETY: there is room for all.
        let place = unsafe { places.add(index) };
        // SAFETY: as above.
        unsafe { place.write(value) };
    }
    Ok(())
}
