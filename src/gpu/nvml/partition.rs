//! Making and ending partitions: a GPU instance, then the compute instance that fills it, and the
//! other way round. What is half made is undone at once.

use std::{collections::BTreeMap, thread, time::Duration};

use nvml_wrapper_sys::bindings as sys;

use super::{
    api::{Caller, Failed, Instance},
    read::{Desk, Found, unsupported},
};
use crate::gpu::{GpuError, MadePartition, Partition, Placement, Profile};

/// How often a GPU instance that is in use is tried again, and after how long each time.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(100);

// === impl Desk ===

impl Desk {
    /// Makes a partition exactly there.
    pub(super) fn create(
        &mut self,
        caller: &Caller,
        gpu: &str,
        profile: &str,
        placement: Placement,
    ) -> Result<Partition, GpuError> {
        let wrong = |failed: Failed| GpuError::nvml(&format!("GPU {gpu}"), &failed);
        let device = self.device(caller).map_err(wrong)?;
        match caller.mig_mode(device) {
            Ok((true, _)) => {}
            Ok((false, _)) => return Err(GpuError::MigOff { gpu: gpu.to_owned() }),
            Err(failed) if unsupported(&failed) => {
                return Err(GpuError::MigOff { gpu: gpu.to_owned() });
            }
            Err(failed) => return Err(wrong(failed)),
        }
        let known = self.profile(caller, profile).map_err(wrong)?;
        let known = known.filter(|known| known.placements().any(|place| place == placement));
        let Some(known) = known else {
            let (gpu, profile) = (gpu.to_owned(), profile.to_owned());
            return Err(GpuError::NoPlacement { gpu, profile, placement });
        };
        let before = self.at(caller, &known, placement).map_err(wrong)?;
        let (source, undone) = match caller.create_instance(device, known.id, placement) {
            Ok(instance) => match self.fill(caller, instance, &known, placement) {
                Ok(partition) => return Ok(partition),
                Err(failed) => (wrong(failed), self.undo(caller, instance, &known)),
            },
            Err(failed) => (
                self.why_not(caller, gpu, &known, placement, &failed),
                self.undo_unsaid(caller, &known, placement, &before, &failed),
            ),
        };
        Err(match undone {
            Ok(()) => source,
            Err(left) => {
                let (gpu, profile) = (gpu.to_owned(), known.name.to_string());
                let (left, source) = (left.to_string(), Box::new(source));
                GpuError::HalfMade { gpu, profile, placement, left, source }
            }
        })
    }

    /// Switches MIG mode, or leaves all as it is.
    pub(super) fn set_mig(&mut self, caller: &Caller, gpu: &str, on: bool) -> Result<(), GpuError> {
        let wrong = |failed: Failed| GpuError::nvml(&format!("GPU {gpu}"), &failed);
        let now = self.read(caller).map_err(wrong)?;
        if now.may_set_mig(on)? {
            return Ok(());
        }
        let device = self.device(caller).map_err(wrong)?;
        let activation = caller.set_mig_mode(device, on).map_err(wrong)?;
        let (current, _) = caller.mig_mode(device).map_err(wrong)?;
        if current == on {
            return Ok(());
        }
        // Else the next reset would surprise whoever does it.
        caller.set_mig_mode(device, !on).map_err(wrong)?;
        let by = match activation {
            sys::nvmlReturn_enum_NVML_ERROR_IN_USE => {
                "a process uses it: nvidia-smi shows which".to_owned()
            }
            code => format!("NVML answers {code}"),
        };
        Err(GpuError::MigBusy { gpu: gpu.to_owned(), by })
    }

    /// Ends the partition that divvy made, and nothing else: what lies there must have its profile,
    /// place and UUID. Where its compute instance is gone, the GPU instance at its place is what is
    /// left of it.
    pub(super) fn destroy(
        &mut self,
        caller: &Caller,
        made: &MadePartition,
    ) -> Result<(), GpuError> {
        let wrong = |failed: Failed| GpuError::nvml(&format!("GPU {}", made.gpu), &failed);
        let Some(profile) = self.profile(caller, &made.profile).map_err(wrong)? else {
            return Ok(());
        };
        let instances = match self.instances(caller, &profile) {
            Ok(instances) => instances,
            // MIG is off by now, and so all its instances are gone.
            Err(failed) if unsupported(&failed) => return Ok(()),
            Err(failed) => return Err(wrong(failed)),
        };
        let mut there = instances.into_iter().filter(|found| found.placement == made.placement);
        let Some(Found { handle, compute, .. }) = there.next() else { return Ok(()) };
        match compute.as_slice() {
            [] => {}
            [only] if made.uuid.as_ref().is_none_or(|uuid| *uuid == only.uuid) => {
                caller.destroy_compute(only.handle).map_err(wrong)?;
            }
            // Made by somebody else after ours was gone.
            _ => return Ok(()),
        }
        destroy(caller, handle).map_err(wrong)
    }

    /// Fills a new GPU instance with a compute instance.
    fn fill(
        &mut self,
        caller: &Caller,
        instance: Instance,
        profile: &Profile,
        placement: Placement,
    ) -> Result<Partition, Failed> {
        let (gpu_instance, _) = caller.instance_info(instance)?;
        let kind = self.filling(caller, instance, profile)?;
        let compute = caller.create_compute(instance, kind)?;
        let (compute_instance, device) = caller.compute_info(compute)?;
        let uuid = caller.uuid(device)?;
        let profile = profile.name.to_string();
        Ok(Partition { uuid, profile, placement, gpu_instance, compute_instance })
    }

    /// Ends a GPU instance that was just made, and whatever is in it: all of it is ours.
    fn undo(
        &mut self,
        caller: &Caller,
        instance: Instance,
        profile: &Profile,
    ) -> Result<(), Failed> {
        // Where none can fill it there is none in it.
        if let Ok(kind) = self.filling(caller, instance, profile) {
            for compute in caller.compute_instances(instance, kind)? {
                caller.destroy_compute(compute)?;
            }
        }
        destroy(caller, instance)
    }

    /// Ends the GPU instance that a call made although it says that it failed: it lies exactly there,
    /// and did not before. Had somebody else been faster, the call would have said so.
    fn undo_unsaid(
        &mut self,
        caller: &Caller,
        profile: &Profile,
        placement: Placement,
        before: &BTreeMap<u32, Instance>,
        failed: &Failed,
    ) -> Result<(), Failed> {
        if failed.is(sys::nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_RESOURCES) {
            return Ok(());
        }
        let now = self.at(caller, profile, placement)?;
        let mut made = now.into_iter().filter(|(id, _)| !before.contains_key(id));
        made.try_for_each(|(_, instance)| self.undo(caller, instance, profile))
    }

    /// The GPU instances of a profile at a place, by id.
    fn at(
        &mut self,
        caller: &Caller,
        profile: &Profile,
        placement: Placement,
    ) -> Result<BTreeMap<u32, Instance>, Failed> {
        let device = self.device(caller)?;
        let mut there = BTreeMap::new();
        for instance in caller.instances(device, profile.id)? {
            let (id, place) = caller.instance_info(instance)?;
            if place == placement {
                there.insert(id, instance);
            }
        }
        Ok(there)
    }

    /// INSUFFICIENT_RESOURCES is said of every shortage: the instances tell which it is.
    fn why_not(
        &mut self,
        caller: &Caller,
        gpu: &str,
        profile: &Profile,
        placement: Placement,
        failed: &Failed,
    ) -> GpuError {
        let short = failed.is(sys::nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_RESOURCES);
        let there = short.then(|| self.read(caller).ok()).flatten();
        let by = there.and_then(|there| Some(there.in_the_way(profile, placement)?.to_string()));
        match by {
            Some(by) => {
                let (gpu, profile) = (gpu.to_owned(), profile.name.to_string());
                GpuError::Occupied { gpu, profile, placement, by }
            }
            None => {
                let what = format!("GPU {gpu}: making {} at {placement}", profile.name);
                GpuError::nvml(&what, failed)
            }
        }
    }
}

/// Ends a GPU instance without compute instances. It may stay in use for a moment after those are
/// gone (dra-drivers.md 4.2), and then is left to be ended by the next try.
fn destroy(caller: &Caller, instance: Instance) -> Result<(), Failed> {
    let mut tries = 0;
    loop {
        match caller.destroy_instance(instance) {
            Err(failed) if failed.is(sys::nvmlReturn_enum_NVML_ERROR_IN_USE) && tries < TRIES => {
                tries += 1;
                thread::sleep(PAUSE * tries);
            }
            other => return other,
        }
    }
}
