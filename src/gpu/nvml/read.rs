//! A desk is what the worker of a GPU has before it: its handle, and what it has learned that does
//! not change while the driver is loaded.

use std::collections::BTreeMap;

use nvml_wrapper_sys::bindings as sys;

use super::{
    api::{Caller, Device, Failed, Instance, ProfileInfo},
    host::Host,
};
use crate::gpu::{
    Addressing, Gpu, GpuInstance, Mig, NvLink, Partition, PciAddress, Placement, Profile,
};

/// What a worker keeps.
#[derive(Debug)]
pub(super) struct Desk {
    pci: PciAddress,
    host: Host,
    device: Option<Device>,
    facts: Option<Facts>,
    /// By profile, the compute instance profiles of its instances: id and slices.
    compute: BTreeMap<u32, Vec<(u32, u32)>>,
}

/// What does not change while the driver is loaded.
#[derive(Debug, Clone)]
struct Facts {
    uuid: String,
    product: String,
    brand: &'static str,
    architecture: &'static str,
    compute: (u32, u32),
    memory: u64,
    addressing: Option<Addressing>,
    nvlinks: Vec<NvLink>,
    bandwidth: Option<u32>,
    profiles: Vec<Profile>,
}

/// A GPU instance as NVML shows it.
#[derive(Debug, Clone)]
pub(super) struct Found {
    pub(super) handle: Instance,
    pub(super) id: u32,
    pub(super) placement: Placement,
    pub(super) compute: Vec<FoundCompute>,
}

/// A compute instance as NVML shows it.
#[derive(Debug, Clone)]
pub(super) struct FoundCompute {
    pub(super) handle: super::api::ComputeInstance,
    id: u32,
    slices: u32,
    pub(super) uuid: String,
}

/// How often a GPU that changes meanwhile is looked at again.
const LOOKS: u32 = 4;

// === impl Desk ===

impl Desk {
    pub(super) fn new(pci: PciAddress, host: Host) -> Self {
        Self { pci, host, device: None, facts: None, compute: BTreeMap::new() }
    }

    /// Where the GPU sits.
    pub(super) fn pci(&self) -> PciAddress {
        self.pci
    }

    /// The GPU's handle: by its address, as looking one up by UUID takes seconds under load
    /// (dra-drivers.md 1.10).
    pub(super) fn device(&mut self, caller: &Caller) -> Result<Device, Failed> {
        match self.device {
            Some(device) => Ok(device),
            None => {
                let device = caller.by_pci(&self.pci.to_string())?;
                self.device = Some(device);
                Ok(device)
            }
        }
    }

    /// The GPU's profile of this name.
    pub(super) fn profile(
        &mut self,
        caller: &Caller,
        name: &str,
    ) -> Result<Option<Profile>, Failed> {
        let profiles = self.facts(caller)?.profiles;
        Ok(profiles.into_iter().find(|profile| profile.name == name))
    }

    /// All about the GPU, as it is now.
    pub(super) fn read(&mut self, caller: &Caller) -> Result<Gpu, Failed> {
        let mut again = LOOKS;
        loop {
            match self.read_once(caller) {
                // Another process ended an instance while it was looked at.
                Err(failed)
                    if failed.is(sys::nvmlReturn_enum_NVML_ERROR_NOT_FOUND) && again > 0 =>
                {
                    again -= 1;
                }
                read => return read,
            }
        }
    }

    fn read_once(&mut self, caller: &Caller) -> Result<Gpu, Failed> {
        let device = self.device(caller)?;
        let facts = self.facts(caller)?;
        let (mig, mig_pending) = match caller.mig_mode(device) {
            Ok((current, pending)) => (Some(current), pending),
            Err(failed) if unsupported(&failed) => (None, false),
            Err(failed) => return Err(failed),
        };
        let (mut partitions, mut instances) = (Vec::new(), Vec::new());
        if mig == Some(true) {
            for profile in &facts.profiles {
                for found in self.instances(caller, profile)? {
                    match found.as_partition(profile) {
                        Some(partition) => partitions.push(partition),
                        None => instances.push(found.as_instance(profile)),
                    }
                }
            }
        }
        partitions.sort_by_key(|partition| partition.placement);
        instances.sort_by_key(|instance| instance.placement);
        let numa = self.host.number(&format!("sys/bus/pci/devices/{}/numa_node", self.pci));
        Ok(Gpu {
            uuid: facts.uuid,
            pci: self.pci,
            minor: caller.minor(device)?,
            product: facts.product,
            brand: facts.brand.to_owned(),
            architecture: facts.architecture.to_owned(),
            compute: facts.compute,
            memory: facts.memory,
            bandwidth: facts.bandwidth,
            // -1 where the machine has but one.
            numa: numa.and_then(|node| u32::try_from(node).ok()),
            pcie_root: self.host.pcie_root(self.pci),
            addressing: facts.addressing,
            nvlinks: facts.nvlinks,
            fabric: caller.fabric(device),
            mig: match mig {
                None => Mig::Unsupported,
                Some(false) => Mig::Off,
                Some(true) => Mig::On(partitions),
            },
            mig_pending,
            profiles: facts.profiles.into(),
            instances,
            compute_mode: caller.compute_mode(device)?,
        })
    }

    /// The GPU instances of a profile, with their compute instances.
    pub(super) fn instances(
        &mut self,
        caller: &Caller,
        profile: &Profile,
    ) -> Result<Vec<Found>, Failed> {
        let device = self.device(caller)?;
        let mut all = Vec::new();
        for handle in caller.instances(device, profile.id)? {
            let (id, placement) = caller.instance_info(handle)?;
            let mut compute: Vec<FoundCompute> = Vec::new();
            for (kind, slices) in self.compute_profiles(caller, handle, profile)? {
                if compute.iter().map(|there| there.slices).sum::<u32>() >= profile.slices() {
                    break;
                }
                for handle in caller.compute_instances(handle, kind)? {
                    let (id, device) = caller.compute_info(handle)?;
                    let uuid = caller.uuid(device)?;
                    compute.push(FoundCompute { handle, id, slices, uuid });
                }
            }
            all.push(Found { handle, id, placement, compute });
        }
        Ok(all)
    }

    /// The compute instance profile that fills an instance, by id.
    pub(super) fn filling(
        &mut self,
        caller: &Caller,
        instance: Instance,
        profile: &Profile,
    ) -> Result<u32, Failed> {
        let kinds = self.compute_profiles(caller, instance, profile)?;
        let fills = |(_, slices): &(u32, u32)| *slices == profile.slices();
        kinds.into_iter().find(fills).map(|(kind, _)| kind).ok_or_else(|| Failed {
            call: "nvmlGpuInstanceGetComputeInstanceProfileInfo",
            code: sys::nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED,
            text: format!("no compute instance profile fills {}", profile.name),
        })
    }

    fn compute_profiles(
        &mut self,
        caller: &Caller,
        instance: Instance,
        profile: &Profile,
    ) -> Result<Vec<(u32, u32)>, Failed> {
        if let Some(known) = self.compute.get(&profile.id) {
            return Ok(known.clone());
        }
        let mut kinds = Vec::new();
        for number in 0..sys::NVML_COMPUTE_INSTANCE_PROFILE_COUNT {
            match caller.compute_profile(instance, number) {
                // Numbers share ids where the hardware makes no difference (1_SLICE_REV1).
                Ok(kind) if !kinds.contains(&kind) => kinds.push(kind),
                Ok(_) => {}
                Err(failed) if unsupported(&failed) => {}
                Err(failed) => return Err(failed),
            }
        }
        // The largest first: of most instances it is the only one.
        kinds.sort_by_key(|(_, slices)| std::cmp::Reverse(*slices));
        self.compute.insert(profile.id, kinds.clone());
        Ok(kinds)
    }

    fn facts(&mut self, caller: &Caller) -> Result<Facts, Failed> {
        if let Some(facts) = &self.facts {
            return Ok(facts.clone());
        }
        let device = self.device(caller)?;
        let facts = Facts {
            uuid: caller.uuid(device)?,
            product: caller.product(device)?,
            brand: caller.brand(device)?,
            architecture: caller.architecture(device)?,
            compute: caller.compute(device)?,
            memory: caller.memory(device)?,
            addressing: caller.addressing(device),
            nvlinks: caller.nvlinks(device),
            bandwidth: caller.bandwidth(device).ok().filter(|bandwidth| *bandwidth > 0),
            profiles: profiles(caller, device)?,
        };
        self.facts = Some(facts.clone());
        Ok(facts)
    }
}

/// The profiles of a GPU, smallest first.
fn profiles(caller: &Caller, device: Device) -> Result<Vec<Profile>, Failed> {
    let mut profiles: Vec<Profile> = Vec::new();
    for number in 0..sys::NVML_GPU_INSTANCE_PROFILE_COUNT {
        let info = match caller.profile(device, number) {
            Ok(info) => info,
            Err(failed) if unsupported(&failed) => continue,
            Err(failed) => return Err(failed),
        };
        let places = match caller.placements(device, info.id) {
            Ok(places) => places,
            Err(failed) if unsupported(&failed) => continue,
            Err(failed) => return Err(failed),
        };
        let Some(size) = places.first().map(|place| place.size) else { continue };
        let mut starts: Vec<u8> =
            places.iter().filter(|place| place.size == size).map(|place| place.start).collect();
        starts.sort_unstable();
        let ProfileInfo { id, multiprocessors, memory, engines, name } = info;
        let (name, starts) = (name.into(), starts.into());
        profiles.push(Profile { name, id, multiprocessors, memory, size, starts, engines });
    }
    profiles.sort_by_key(|p| (p.slices(), p.size, p.name.contains(['+', '-']), p.name.clone()));
    profiles.dedup_by(|one, other| one.name == other.name);
    Ok(profiles)
}

/// True when the product or the driver has no such thing.
pub(super) fn unsupported(failed: &Failed) -> bool {
    [
        sys::nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED,
        sys::nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT,
        sys::nvmlReturn_enum_NVML_ERROR_FUNCTION_NOT_FOUND,
    ]
    .contains(&failed.code)
}

// === impl Found ===

impl Found {
    /// The partition that it is: filled by one compute instance.
    fn as_partition(&self, profile: &Profile) -> Option<Partition> {
        match self.compute.as_slice() {
            [only] if only.slices == profile.slices() => Some(Partition {
                uuid: only.uuid.clone(),
                profile: profile.name.to_string(),
                placement: self.placement,
                gpu_instance: self.id,
                compute_instance: only.id,
            }),
            _ => None,
        }
    }

    fn as_instance(&self, profile: &Profile) -> GpuInstance {
        GpuInstance {
            id: self.id,
            profile: profile.name.to_string(),
            placement: self.placement,
            devices: self.compute.iter().map(|compute| compute.uuid.clone()).collect(),
        }
    }
}
