//! The state of a fake host is its driver, its GPUs and what was made on them; and the rules by
//! which NVML changes it.

use nvml_wrapper_sys::bindings as sys;
use serde::{Deserialize, Serialize};

use crate::{
    layout::Layout,
    model::{Model, Placement, Profile, collide},
};

/// NVML's return code.
pub(crate) type Code = sys::nvmlReturn_t;

/// A fake host.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct State {
    /// The driver's version.
    pub driver: String,
    /// How its files are laid out.
    pub layout: Layout,
    /// As `nvmlSystemGetCudaDriverVersion` counts: 13000.
    pub cuda: i32,
    /// False while the kernel module is out.
    pub loaded: bool,
    /// Counts the loads of the driver: sessions of an earlier one are dead.
    pub generation: u64,
    /// Counts what was ever made, so that no two have one handle or UUID.
    pub serial: u64,
    /// Whether a change of MIG mode turns the minors around, as NVML says it may.
    pub renumbers: bool,
    /// In the order of NVML's indices.
    pub gpus: Vec<Gpu>,
    /// What event sets will be told.
    pub events: Vec<Event>,
}

/// A GPU.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Gpu {
    /// `GPU-…`
    pub uuid: String,
    /// Key of its model.
    pub model: String,
    /// `0000:1b:00.0`
    pub pci: String,
    /// In `/dev/nvidia<minor>`.
    pub minor: u32,
    /// NUMA node.
    pub numa: i32,
    /// False after it was taken out.
    pub present: bool,
    /// It has fallen off the bus.
    pub lost: bool,
    /// MIG mode now.
    pub mig: bool,
    /// MIG mode after the next reset.
    pub mig_pending: bool,
    /// Processes that use it, so that its MIG mode stays.
    pub clients: u32,
    /// NVML's compute mode.
    pub compute_mode: u32,
    /// Its GPU instances.
    pub instances: Vec<Instance>,
    /// What ails it.
    #[serde(default)]
    pub health: Health,
}

/// What the driver knows of a GPU's health.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Health {
    /// Memory rows, or before Ampere pages, wait for a reset to be replaced.
    pub remap_pending: bool,
    /// Replacing one failed.
    pub remap_failed: bool,
    /// Memory errors that were not corrected.
    pub uncorrected: u64,
    /// `nvmlClocksEventReason…`
    pub slowdowns: u64,
    /// NVML's recovery action, where the driver says one.
    pub recovery: Option<u32>,
    /// So many of its NVLinks are down, the first first.
    pub links_down: u32,
    /// Millijoules since it was initialized.
    pub energy: u64,
}

/// A GPU instance.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Instance {
    /// Its handle.
    pub serial: u64,
    /// Lowest that was free.
    pub id: u32,
    /// Profile, by name.
    pub profile: String,
    /// First memory slice.
    pub start: u8,
    /// Memory slices.
    pub size: u8,
    /// A client holds it: it cannot be destroyed.
    pub busy: bool,
    /// Its compute instances.
    pub compute: Vec<Compute>,
}

/// A compute instance.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Compute {
    /// Its handle.
    pub serial: u64,
    /// Lowest that was free.
    pub id: u32,
    /// Compute slices.
    pub slices: u32,
    /// UUID of the MIG device that it is.
    pub uuid: String,
    /// A client computes on it: it cannot be destroyed.
    pub busy: bool,
}

/// What an event set is told.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Event {
    /// Its GPU.
    pub gpu: String,
    /// `nvmlEventType…`
    pub kind: u64,
    /// Such as the XID.
    pub data: u64,
}

pub(crate) const INVALID_ARGUMENT: Code = sys::nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT;
pub(crate) const NOT_SUPPORTED: Code = sys::nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED;
pub(crate) const NOT_FOUND: Code = sys::nvmlReturn_enum_NVML_ERROR_NOT_FOUND;
pub(crate) const IN_USE: Code = sys::nvmlReturn_enum_NVML_ERROR_IN_USE;
pub(crate) const OCCUPIED: Code = sys::nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_RESOURCES;

// === impl State ===

impl State {
    /// A number that nothing had before.
    pub(crate) fn next(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    /// A UUID that nothing had before: MIG devices have new ones whenever they are made.
    pub(crate) fn uuid(serial: u64) -> String {
        let mixed = serial.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let (high, low) = (mixed >> 32, mixed & 0xffff_ffff);
        format!(
            "{high:08x}-{:04x}-5{:03x}-8{:03x}-{serial:012x}",
            low >> 16,
            low & 0xfff,
            high & 0xfff
        )
    }

    /// Makes a GPU instance; its handle.
    pub(crate) fn create_instance(
        &mut self,
        gpu: usize,
        profile_id: u32,
        place: Placement,
    ) -> Result<u64, Code> {
        let serial = self.next();
        let gpu = self.gpus.get_mut(gpu).ok_or(NOT_FOUND)?;
        gpu.in_mig_mode()?;
        let profile = gpu.profile_by_id(profile_id).ok_or(NOT_SUPPORTED)?;
        if !profile.placements().any(|possible| possible == place) {
            return Err(INVALID_ARGUMENT);
        }
        let in_the_way = gpu
            .instances
            .iter()
            .any(|there| collide((&profile.name, place), (&there.profile, there.placement())));
        if in_the_way {
            return Err(OCCUPIED);
        }
        let id = free(gpu.instances.iter().map(|instance| instance.id), 1);
        let (profile, Placement { start, size }) = (profile.name.to_string(), place);
        let compute = Vec::new();
        gpu.instances.push(Instance { serial, id, profile, start, size, busy: false, compute });
        Ok(serial)
    }

    /// Ends a GPU instance.
    pub(crate) fn destroy_instance(&mut self, serial: u64) -> Result<(), Code> {
        let (gpu, index) = self.find_instance(serial)?;
        let gpu = self.gpus.get_mut(gpu).ok_or(NOT_FOUND)?;
        let instance = gpu.instances.get(index).ok_or(NOT_FOUND)?;
        // As long as it has compute instances, and after that too when a client holds it.
        if instance.busy || !instance.compute.is_empty() {
            return Err(IN_USE);
        }
        gpu.instances.remove(index);
        Ok(())
    }

    /// Makes a compute instance of that many slices; its handle.
    pub(crate) fn create_compute(&mut self, instance: u64, slices: u32) -> Result<u64, Code> {
        let serial = self.next();
        let (gpu, index) = self.find_instance(instance)?;
        let gpu = self.gpus.get_mut(gpu).ok_or(NOT_FOUND)?;
        let all = gpu.slices_of(index).ok_or(NOT_FOUND)?;
        let instance = gpu.instances.get_mut(index).ok_or(NOT_FOUND)?;
        let taken: u32 = instance.compute.iter().map(|compute| compute.slices).sum();
        if slices == 0 || slices > all {
            return Err(NOT_SUPPORTED);
        }
        if taken + slices > all {
            return Err(OCCUPIED);
        }
        let id = free(instance.compute.iter().map(|compute| compute.id), 0);
        let uuid = format!("MIG-{}", Self::uuid(serial));
        instance.compute.push(Compute { serial, id, slices, uuid, busy: false });
        Ok(serial)
    }

    /// Ends a compute instance.
    pub(crate) fn destroy_compute(&mut self, serial: u64) -> Result<(), Code> {
        let all = self.gpus.iter_mut().flat_map(|gpu| gpu.instances.iter_mut());
        for instance in all {
            let found = instance.compute.iter().position(|compute| compute.serial == serial);
            if let Some(index) = found {
                if instance.compute.get(index).is_some_and(|compute| compute.busy) {
                    return Err(IN_USE);
                }
                instance.compute.remove(index);
                return Ok(());
            }
        }
        Err(NOT_FOUND)
    }

    /// Switches MIG mode; the status of its activation.
    pub(crate) fn set_mig(&mut self, gpu: usize, on: bool) -> Result<Code, Code> {
        let renumbers = self.renumbers;
        let gpu = self.gpus.get_mut(gpu).ok_or(NOT_FOUND)?;
        if gpu.model()?.profiles.is_empty() {
            return Err(NOT_SUPPORTED);
        }
        if !on && !gpu.instances.is_empty() {
            return Err(IN_USE);
        }
        gpu.mig_pending = on;
        // dra-drivers.md 4.3: Ampere waits for a reset, Hopper and newer for clients to leave.
        if gpu.model()?.architecture == "Ampere" {
            return Ok(sys::nvmlReturn_enum_NVML_ERROR_RESET_REQUIRED);
        }
        if gpu.clients > 0 {
            return Ok(IN_USE);
        }
        gpu.mig = on;
        let event = Event {
            gpu: gpu.uuid.clone(),
            kind: u64::from(sys::nvmlEventMigConfigChange),
            data: 0,
        };
        self.events.push(event);
        if renumbers {
            self.turn_minors();
        }
        Ok(sys::nvmlReturn_enum_NVML_SUCCESS)
    }

    /// Gives each GPU the minor of the next.
    pub fn turn_minors(&mut self) {
        let mut minors: Vec<u32> = self.gpus.iter().map(|gpu| gpu.minor).collect();
        minors.rotate_left(1);
        for (gpu, minor) in self.gpus.iter_mut().zip(minors) {
            gpu.minor = minor;
        }
    }

    /// What a reset, a reboot or another load of the driver leaves: pending modes, no instances.
    pub fn reset(&mut self) {
        for gpu in &mut self.gpus {
            gpu.instances.clear();
            gpu.mig = gpu.mig_pending;
            (gpu.lost, gpu.clients, gpu.compute_mode) = (false, 0, 0);
            // What could not be replaced stays.
            let Health { remap_failed, recovery, .. } = gpu.health;
            gpu.health =
                Health { remap_failed, recovery: recovery.map(|_| 0), ..Health::default() };
        }
    }

    /// The GPU and the place in it of the instance with this handle.
    pub(crate) fn find_instance(&self, serial: u64) -> Result<(usize, usize), Code> {
        let found = self.gpus.iter().enumerate().find_map(|(index, gpu)| {
            let place = gpu.instances.iter().position(|instance| instance.serial == serial)?;
            Some((index, place))
        });
        found.ok_or(NOT_FOUND)
    }

    /// The compute instance with this handle, and the instance that it is in.
    pub(crate) fn find_compute(&self, serial: u64) -> Result<(&Instance, &Compute), Code> {
        let mut all = self.gpus.iter().flat_map(|gpu| gpu.instances.iter());
        let found = all.find_map(|instance| {
            let found = instance.compute.iter().find(|compute| compute.serial == serial)?;
            Some((instance, found))
        });
        found.ok_or(NOT_FOUND)
    }
}

/// The lowest number from `first` on that is not taken.
fn free(taken: impl Iterator<Item = u32>, first: u32) -> u32 {
    let taken: Vec<u32> = taken.collect();
    (first..).find(|id| !taken.contains(id)).unwrap_or(first)
}

// === impl Gpu ===

impl Gpu {
    /// Its model.
    pub(crate) fn model(&self) -> Result<&'static Model, Code> {
        Model::by_key(&self.model).ok_or(NOT_FOUND)
    }

    /// The MIG profile with this id of NVML.
    pub(crate) fn profile_by_id(&self, id: u32) -> Option<&'static Profile> {
        self.model().ok()?.profiles.iter().find(|profile| profile.id == id)
    }

    /// Whether it replaces rows of its memory; before Ampere it takes pages out of use.
    pub(crate) fn replaces_rows(&self) -> Result<bool, Code> {
        Ok(self.model()?.compute.0 >= 8)
    }

    /// Refuses what only a GPU in MIG mode can do.
    pub(crate) fn in_mig_mode(&self) -> Result<(), Code> {
        if self.mig { Ok(()) } else { Err(NOT_SUPPORTED) }
    }

    /// Compute slices of an instance.
    pub(crate) fn slices_of(&self, index: usize) -> Option<u32> {
        let instance = self.instances.get(index)?;
        self.model().ok()?.profile(&instance.profile).map(Profile::slices)
    }
}

// === impl Instance ===

impl Instance {
    /// Where it lies.
    pub(crate) fn placement(&self) -> Placement {
        Placement { start: self.start, size: self.size }
    }
}
