//! The calls about MIG: modes, profiles, GPU instances, compute instances.

use nvml_wrapper_sys::bindings as sys;

use super::{Caller, Device, Failed, text, version};
use crate::gpu::{Engines, Placement};

/// A GPU instance, by NVML's handle.
#[derive(Debug, Clone, Copy)]
pub(in crate::gpu::nvml) struct Instance(sys::nvmlGpuInstance_t);

/// A compute instance, by NVML's handle.
#[derive(Debug, Clone, Copy)]
pub(in crate::gpu::nvml) struct ComputeInstance(sys::nvmlComputeInstance_t);

/// What NVML says of a GPU instance profile.
#[derive(Debug, Clone)]
pub(in crate::gpu::nvml) struct ProfileInfo {
    /// Its id: what makes and finds instances. Not the number by which it was asked for.
    pub(in crate::gpu::nvml) id: u32,
    /// Multiprocessors.
    pub(in crate::gpu::nvml) multiprocessors: u32,
    /// MiB.
    pub(in crate::gpu::nvml) memory: u64,
    /// Engines.
    pub(in crate::gpu::nvml) engines: Engines,
    /// `1g.10gb+me`
    pub(in crate::gpu::nvml) name: String,
}

/// More instances than any GPU holds, of one profile or of all.
const MOST: usize = 32;

// === impl Caller ===

impl Caller {
    /// MIG mode now, and after the next reset; NOT_SUPPORTED where the product has none.
    pub(in crate::gpu::nvml) fn mig_mode(&self, device: Device) -> Result<(bool, bool), Failed> {
        let (mut current, mut pending) = (0, 0);
        self.call("nvmlDeviceGetMigMode", || {
            let call = self.api.lib.nvmlDeviceGetMigMode.as_ref();
            // SAFETY: two ints to write.
            call.map(|call| unsafe { call(device.0, &raw mut current, &raw mut pending) })
        })?;
        Ok((current == 1, pending == 1))
    }

    /// Switches MIG mode; what became of it: the mode may be pending only, and IN_USE or
    /// RESET_REQUIRED say why. May change minors, says nvml.h.
    pub(in crate::gpu::nvml) fn set_mig_mode(
        &self,
        device: Device,
        on: bool,
    ) -> Result<u32, Failed> {
        let mut activation = 0;
        self.call("nvmlDeviceSetMigMode", || {
            let call = self.api.lib.nvmlDeviceSetMigMode.as_ref();
            // SAFETY: a code to write.
            call.map(|call| unsafe { call(device.0, u32::from(on), &raw mut activation) })
        })?;
        Ok(activation)
    }

    /// The profile of this number (`NVML_GPU_INSTANCE_PROFILE_…`); NOT_SUPPORTED where the product
    /// has none, INVALID_ARGUMENT where the driver does not know the number.
    pub(in crate::gpu::nvml) fn profile(
        &self,
        device: Device,
        number: u32,
    ) -> Result<ProfileInfo, Failed> {
        type Info = sys::nvmlGpuInstanceProfileInfo_v2_t;
        // SAFETY: numbers and characters, for which zero is a value.
        let mut info: Info = unsafe { std::mem::zeroed() };
        info.version = version::<Info>(2);
        self.call("nvmlDeviceGetGpuInstanceProfileInfoV", || {
            let call = self.api.lib.nvmlDeviceGetGpuInstanceProfileInfoV.as_ref();
            // SAFETY: a struct to write, that says which one it is.
            call.map(|call| unsafe { call(device.0, number, &raw mut info) })
        })?;
        // NVML says `MIG 1g.5gb`.
        let name = text(&info.name);
        let name = name.strip_prefix("MIG ").unwrap_or(&name).trim().to_owned();
        Ok(ProfileInfo {
            id: info.id,
            multiprocessors: info.multiprocessorCount,
            memory: info.memorySizeMB,
            engines: Engines {
                copy: info.copyEngineCount,
                decoders: info.decoderCount,
                encoders: info.encoderCount,
                jpeg: info.jpegCount,
                ofa: info.ofaCount,
            },
            name,
        })
    }

    /// Where instances of a profile may lie, free or not.
    pub(in crate::gpu::nvml) fn placements(
        &self,
        device: Device,
        profile: u32,
    ) -> Result<Vec<Placement>, Failed> {
        let mut places = [sys::nvmlGpuInstancePlacement_t { start: 0, size: 0 }; MOST];
        let mut count = u32::try_from(MOST).unwrap_or(0);
        self.call("nvmlDeviceGetGpuInstancePossiblePlacements_v2", || {
            let call = self.api.lib.nvmlDeviceGetGpuInstancePossiblePlacements_v2.as_ref();
            // SAFETY: an array of `count`, and that to write.
            call.map(|call| unsafe { call(device.0, profile, places.as_mut_ptr(), &raw mut count) })
        })?;
        Ok(first(&places, count).iter().filter_map(placement).collect())
    }

    /// Makes a GPU instance. A place that is taken gives INSUFFICIENT_RESOURCES, as every other
    /// shortage does: only a look at the instances tells which (dra-drivers.md 4.1).
    pub(in crate::gpu::nvml) fn create_instance(
        &self,
        device: Device,
        profile: u32,
        place: Placement,
    ) -> Result<Instance, Failed> {
        let place =
            sys::nvmlGpuInstancePlacement_t { start: place.start.into(), size: place.size.into() };
        let mut made = std::ptr::null_mut();
        self.call("nvmlDeviceCreateGpuInstanceWithPlacement", || {
            let call = self.api.lib.nvmlDeviceCreateGpuInstanceWithPlacement.as_ref();
            // SAFETY: a struct to read and a handle to write.
            call.map(|call| unsafe { call(device.0, profile, &raw const place, &raw mut made) })
        })?;
        Ok(Instance(made))
    }

    /// Ends a GPU instance. May take a second, and may be IN_USE for a while after its compute
    /// instance is gone (dra-drivers.md 1.10, 4.2).
    pub(in crate::gpu::nvml) fn destroy_instance(&self, instance: Instance) -> Result<(), Failed> {
        self.call("nvmlGpuInstanceDestroy", || {
            let call = self.api.lib.nvmlGpuInstanceDestroy.as_ref();
            // SAFETY: takes a handle.
            call.map(|call| unsafe { call(instance.0) })
        })
    }

    /// The GPU instances of a profile.
    pub(in crate::gpu::nvml) fn instances(
        &self,
        device: Device,
        profile: u32,
    ) -> Result<Vec<Instance>, Failed> {
        let mut handles = [std::ptr::null_mut(); MOST];
        let mut count = 0;
        self.call("nvmlDeviceGetGpuInstances", || {
            let call = self.api.lib.nvmlDeviceGetGpuInstances.as_ref();
            // SAFETY: NVML writes as many as the profile can have instances, which is fewer than MOST.
            call.map(|call| unsafe {
                call(device.0, profile, handles.as_mut_ptr(), &raw mut count)
            })
        })?;
        Ok(first(&handles, count).iter().copied().map(Instance).collect())
    }

    /// A GPU instance's id and place. Ids are used again after an instance is gone.
    pub(in crate::gpu::nvml) fn instance_info(
        &self,
        instance: Instance,
    ) -> Result<(u32, Placement), Failed> {
        // SAFETY: numbers and a handle, for which zero is a value.
        let mut info: sys::nvmlGpuInstanceInfo_t = unsafe { std::mem::zeroed() };
        self.call("nvmlGpuInstanceGetInfo", || {
            let call = self.api.lib.nvmlGpuInstanceGetInfo.as_ref();
            // SAFETY: a struct to write.
            call.map(|call| unsafe { call(instance.0, &raw mut info) })
        })?;
        Ok((info.id, placement(&info.placement).unwrap_or(Placement { start: 0, size: 0 })))
    }

    /// Id and slices of the compute instance profile of this number
    /// (`NVML_COMPUTE_INSTANCE_PROFILE_…`), all engines shared.
    pub(in crate::gpu::nvml) fn compute_profile(
        &self,
        instance: Instance,
        number: u32,
    ) -> Result<(u32, u32), Failed> {
        // SAFETY: numbers, for which zero is a value.
        let mut info: sys::nvmlComputeInstanceProfileInfo_t = unsafe { std::mem::zeroed() };
        let shared = sys::NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED;
        self.call("nvmlGpuInstanceGetComputeInstanceProfileInfo", || {
            let call = self.api.lib.nvmlGpuInstanceGetComputeInstanceProfileInfo.as_ref();
            // SAFETY: a struct to write.
            call.map(|call| unsafe { call(instance.0, number, shared, &raw mut info) })
        })?;
        Ok((info.id, info.sliceCount))
    }

    /// Makes a compute instance of this profile, by id.
    pub(in crate::gpu::nvml) fn create_compute(
        &self,
        instance: Instance,
        profile: u32,
    ) -> Result<ComputeInstance, Failed> {
        let mut made = std::ptr::null_mut();
        self.call("nvmlGpuInstanceCreateComputeInstance", || {
            let call = self.api.lib.nvmlGpuInstanceCreateComputeInstance.as_ref();
            // SAFETY: a handle to write.
            call.map(|call| unsafe { call(instance.0, profile, &raw mut made) })
        })?;
        Ok(ComputeInstance(made))
    }

    /// Ends a compute instance; IN_USE while a process computes on it.
    pub(in crate::gpu::nvml) fn destroy_compute(
        &self,
        compute: ComputeInstance,
    ) -> Result<(), Failed> {
        self.call("nvmlComputeInstanceDestroy", || {
            let call = self.api.lib.nvmlComputeInstanceDestroy.as_ref();
            // SAFETY: takes a handle.
            call.map(|call| unsafe { call(compute.0) })
        })
    }

    /// The compute instances of a profile, by id, in a GPU instance.
    pub(in crate::gpu::nvml) fn compute_instances(
        &self,
        instance: Instance,
        profile: u32,
    ) -> Result<Vec<ComputeInstance>, Failed> {
        let mut handles = [std::ptr::null_mut(); MOST];
        let mut count = 0;
        self.call("nvmlGpuInstanceGetComputeInstances", || {
            let call = self.api.lib.nvmlGpuInstanceGetComputeInstances.as_ref();
            // SAFETY: NVML writes as many as the profile can have instances, which is fewer than MOST.
            call.map(|call| unsafe {
                call(instance.0, profile, handles.as_mut_ptr(), &raw mut count)
            })
        })?;
        Ok(first(&handles, count).iter().copied().map(ComputeInstance).collect())
    }

    /// A compute instance's id, and the MIG device that it is: found so, without a walk over all
    /// MIG devices, which takes seconds under load (dra-drivers.md 1.10).
    pub(in crate::gpu::nvml) fn compute_info(
        &self,
        compute: ComputeInstance,
    ) -> Result<(u32, Device), Failed> {
        // SAFETY: numbers and handles, for which zero is a value.
        let mut info: sys::nvmlComputeInstanceInfo_t = unsafe { std::mem::zeroed() };
        self.call("nvmlComputeInstanceGetInfo_v2", || {
            let call = self.api.lib.nvmlComputeInstanceGetInfo_v2.as_ref();
            // SAFETY: a struct to write.
            call.map(|call| unsafe { call(compute.0, &raw mut info) })
        })?;
        Ok((info.id, Device(info.device)))
    }
}

fn placement(place: &sys::nvmlGpuInstancePlacement_t) -> Option<Placement> {
    let (start, size) = (u8::try_from(place.start).ok()?, u8::try_from(place.size).ok()?);
    Some(Placement { start, size })
}

fn first<T>(all: &[T], count: u32) -> &[T] {
    let count = usize::try_from(count).unwrap_or(0).min(all.len());
    all.get(..count).unwrap_or_default()
}
