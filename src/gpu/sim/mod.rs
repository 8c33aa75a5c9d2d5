//! A simulated node: GPUs out of a small file, with the real placement rules and harmless device
//! nodes. A backend that a person can choose (`--gpus sim:FILE`), so everything but the hardware
//! is the product's own.
//!
//! What is made on it stays: the state lies beside the file, changed under a lock, so that daemon,
//! command line and tests see one node. Both files decide what containers are given, so they are
//! trusted like a spec: nobody but root, or the caller, may be able to write them or their folder.

mod file;
mod state;

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use divvy_cdi::{
    file::{Durability, Trust},
    host::{Host, ThisHost},
};

use super::{
    Addressing, Checked, Checkup, ComputeMode, Driver, Event, EventKind, Fault, FaultKind, Files,
    Gpu, GpuError, Gpus, Interval, Inventory, MadePartition, Mig, MountFile, MountKind, NodeFile,
    NvLink, NvLinkPeer, Partition, PciAddress, Placement, Policy,
};
use crate::program::Program;
use file::NodeConfig;
use state::{State, Store};

/// A simulated node.
#[derive(Debug)]
pub struct Sim {
    address: String,
    config: NodeConfig,
    store: Store,
    driver_file: PathBuf,
    policy: Policy,
    /// In place of its own.
    name: Option<String>,
    /// How many events were told, once any were asked for.
    told: Mutex<Option<usize>>,
}

/// How often the state is looked at for events.
const GLANCE: Duration = Duration::from_millis(100);

/// PCI buses of the GPUs in an HGX board, so that the names look like those of a real node.
const BUSES: [u8; 8] = [0x1b, 0x43, 0x52, 0x61, 0x9d, 0xc3, 0xd1, 0xdf];

/// Where a container finds the stand-in for a driver's files.
const DRIVER_FILE: &str = "/usr/share/divvy/simulated-driver";

// === impl Sim ===

impl Sim {
    /// The node that `file` describes.
    ///
    /// # Errors
    /// The file cannot be read or does not describe a node, or others can write its folder.
    pub fn open(file: &Path) -> Result<Self, GpuError> {
        let file = std::path::absolute(file).map_err(|source| divvy_cdi::file::FileError::Io {
            path: file.to_owned(),
            doing: "read",
            source,
        })?;
        let config = NodeConfig::read(&file)?;
        // Whoever can write the folder can put another state in the place of ours.
        if let Some(folder) = file.parent() {
            divvy_cdi::file::check_dir(folder, &Trust::of_process())?;
        }
        Ok(Self {
            address: format!("sim:{}", file.display()),
            config,
            store: Store::beside(&file)?,
            driver_file: file.with_extension("driver"),
            policy: Policy::default(),
            name: None,
            told: Mutex::default(),
        })
    }

    /// The same, with this allowed.
    pub fn allowing(self, policy: Policy) -> Self {
        Self { policy, ..self }
    }

    /// The same under this name, if there is one.
    pub fn named(self, name: Option<&str>) -> Self {
        Self { name: name.map(str::to_owned), ..self }
    }

    fn gpus(&self, state: &State) -> Vec<Gpu> {
        let models = self
            .config
            .gpus
            .iter()
            .flat_map(|group| std::iter::repeat_n(group, usize::from(group.count)));
        let gpus = (0u32..).zip(models).map(|(index, group)| {
            let model = group.model;
            let name = format!("{}/{index}/{}", self.config.node, model.key);
            let gpu = in_slot(Gpu::of_model(
                model,
                format!("GPU-{}", uuid(&name)),
                address(index),
                index,
            ));
            let kept = state.gpus.get(&gpu.uuid).cloned().unwrap_or_default();
            let mig_on = kept.mig.unwrap_or(group.mig);
            let mig = if mig_on { Mig::On(kept.partitions) } else { gpu.mig };
            let nvlinks = (0..model.nvlinks).map(nvlink).collect();
            Gpu { mig, mig_pending: mig_on, nvlinks, compute_mode: kept.compute_mode, ..gpu }
        });
        gpus.collect()
    }

    /// The GPUs that answer, and those that do not.
    fn answering(&self, state: &State) -> (Vec<Gpu>, Vec<Fault>) {
        let is_lost = |gpu: &Gpu| state.gpus.get(&gpu.uuid).is_some_and(|kept| kept.lost);
        let (lost, gpus): (Vec<Gpu>, Vec<Gpu>) = self.gpus(state).into_iter().partition(is_lost);
        let fault = |gpu: Gpu| Fault { pci: gpu.pci, uuid: Some(gpu.uuid), kind: FaultKind::Lost };
        (gpus, lost.into_iter().map(fault).collect())
    }

    fn gpu(&self, state: &State, uuid: &str) -> Result<Gpu, GpuError> {
        let found = self.gpus(state).into_iter().find(|gpu| gpu.uuid == uuid);
        found.ok_or_else(|| GpuError::NoGpu { gpu: uuid.to_owned() })
    }

    /// A node of the host stands in for each of the driver's, the same for the same `number`.
    fn node(&self, path: String, number: u32) -> Result<NodeFile, GpuError> {
        let nodes = &self.config.host_nodes;
        let index = usize::try_from(number).unwrap_or(0) % nodes.len().max(1);
        let host_path = nodes.get(index).cloned().unwrap_or_else(|| path.clone());
        let no_node = |source| GpuError::NoNode { path: PathBuf::from(&host_path), source };
        let node = ThisHost
            .node(Path::new(&host_path))
            .map_err(|source| no_node(Some(source)))?
            .ok_or_else(|| no_node(None))?;
        Ok(NodeFile { path, host_path, node })
    }
}

impl Gpus for Sim {
    fn address(&self) -> &str {
        &self.address
    }

    fn inventory_of(&self, only: Option<&BTreeSet<PciAddress>>) -> Result<Inventory, GpuError> {
        let (name, version) = ("sim".to_owned(), self.config.driver.clone());
        let driver = Driver { name, version, cuda: (13, 0) };
        let (mut gpus, mut faults) = self.answering(&self.store.read()?);
        gpus.retain(|gpu| only.is_none_or(|only| only.contains(&gpu.pci)));
        faults.retain(|fault| only.is_none_or(|only| only.contains(&fault.pci)));
        let node = self.name.as_ref().unwrap_or(&self.config.node).clone();
        let policy = self.policy;
        Ok(Inventory { node, driver, gpus, faults, policy })
    }

    fn checkup(&self) -> Result<Checkup, GpuError> {
        let state = self.store.read()?;
        let (gpus, faults) = self.answering(&state);
        let checked = |gpu: Gpu| {
            let kept = state.gpus.get(&gpu.uuid).map(|kept| kept.health.clone());
            let mut vitals = kept.unwrap_or_default().or_well();
            if !matches!(gpu.mig, Mig::On(_)) {
                vitals.nvlinks = vitals.nvlinks.or(u32::try_from(gpu.nvlinks.len()).ok());
            }
            Checked { gpu: gpu.uuid, pci: gpu.pci, vitals }
        };
        let load = self.config.driver.clone();
        Ok(Checkup { load, gpus: gpus.into_iter().map(checked).collect(), faults })
    }

    fn events(&self, patience: Duration) -> Result<Vec<Event>, GpuError> {
        let end = Instant::now() + patience;
        loop {
            let events = self.store.read()?.events;
            let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
            // Fewer than before: they were written anew.
            let before = told.replace(events.len()).unwrap_or(events.len());
            let new = events.get(before..).unwrap_or(&events);
            if !new.is_empty() || Instant::now() >= end {
                let event = |one: &state::Happened| Event {
                    gpu: one.gpu.clone(),
                    kind: EventKind::Xid(one.xid),
                };
                return Ok(new.iter().map(event).collect());
            }
            drop(told);
            thread::sleep(GLANCE.min(end.saturating_duration_since(Instant::now())));
        }
    }

    fn create_partition(
        &self,
        gpu: &str,
        profile: &str,
        placement: Placement,
    ) -> Result<Partition, GpuError> {
        self.store.change(|state| {
            let found = self.gpu(state, gpu)?;
            let Mig::On(partitions) = &found.mig else {
                return Err(GpuError::MigOff { gpu: gpu.to_owned() });
            };
            let known = found
                .profile(profile)
                .filter(|known| known.placements().any(|place| place == placement));
            let Some(known) = known else {
                let (gpu, profile) = (gpu.to_owned(), profile.to_owned());
                return Err(GpuError::NoPlacement { gpu, profile, placement });
            };
            if let Some(there) = found.in_the_way(known, placement) {
                let by = there.to_string();
                let (gpu, profile) = (gpu.to_owned(), profile.to_owned());
                return Err(GpuError::Occupied { gpu, profile, placement, by });
            }
            let gpu_instance =
                (1..).find(|&id| partitions.iter().all(|p| p.gpu_instance != id)).unwrap_or(0);
            state.serial += 1;
            let name = format!("{gpu}/{gpu_instance}/{placement}/{}", state.serial);
            let partition = Partition {
                uuid: format!("MIG-{}", uuid(&name)),
                profile: profile.to_owned(),
                placement,
                gpu_instance,
                compute_instance: 0,
            };
            let kept = state.gpus.entry(gpu.to_owned()).or_default();
            kept.partitions.push(partition.clone());
            kept.partitions.sort_by_key(|partition| partition.placement);
            Ok(partition)
        })
    }

    fn destroy_partition(&self, made: &MadePartition) -> Result<(), GpuError> {
        self.store.change(|state| {
            if let Some(kept) = state.gpus.get_mut(&made.gpu) {
                kept.partitions.retain(|partition| !made.is(partition));
            }
            Ok(())
        })
    }

    fn time_slice(&self, gpu: &str) -> Result<Interval, GpuError> {
        let state = self.store.read()?;
        self.gpu(&state, gpu)?;
        Ok(state.gpus.get(gpu).map(|kept| kept.time_slice).unwrap_or_default())
    }

    fn set_time_slice(&self, gpu: &str, interval: Interval) -> Result<(), GpuError> {
        self.store.change(|state| {
            self.gpu(state, gpu)?;
            state.gpus.entry(gpu.to_owned()).or_default().time_slice = interval;
            Ok(())
        })
    }

    fn set_compute_mode(&self, gpu: &str, mode: ComputeMode) -> Result<(), GpuError> {
        self.store.change(|state| {
            self.gpu(state, gpu)?;
            state.gpus.entry(gpu.to_owned()).or_default().compute_mode = mode;
            Ok(())
        })
    }

    fn set_mig(&self, gpu: &str, on: bool) -> Result<(), GpuError> {
        self.store.change(|state| {
            if !self.gpu(state, gpu)?.may_set_mig(on)? {
                state.gpus.entry(gpu.to_owned()).or_default().mig = Some(on);
            }
            Ok(())
        })
    }

    fn mps_control(&self) -> Result<Program, GpuError> {
        Err(GpuError::NoMps { address: self.address.clone() })
    }

    fn device_files(&self, gpu: &Gpu, partition: Option<&str>) -> Result<Files, GpuError> {
        let mut nodes = vec![self.node(format!("/dev/nvidia{}", gpu.minor), gpu.minor)?];
        if let Some(uuid) = partition {
            let partition = gpu.partition_with(uuid)?;
            // As the driver numbers them: /proc/driver/nvidia-caps/mig-minors.
            let cap = 3 + gpu.minor * 135 + partition.gpu_instance * 9;
            for cap in [cap, cap + 1 + partition.compute_instance] {
                nodes.push(self.node(format!("/dev/nvidia-caps/nvidia-cap{cap}"), cap)?);
            }
        }
        Ok(Files { nodes, ..Files::default() })
    }

    fn display_files(&self, _: &Gpu) -> Result<Files, GpuError> {
        // It has no host of its own, and so no node to show.
        Ok(Files::default())
    }

    fn driver_files(&self) -> Result<Files, GpuError> {
        let text = format!("a simulated driver, version {}\n", self.config.driver);
        let known = divvy_cdi::file::read(&self.driver_file, 4096, &Trust::of_process());
        if known.is_ok_and(|known| known == text.as_bytes()) {
            // As it should be.
        } else {
            let (_held, durability) = (self.store.lock()?, Durability::Volatile);
            divvy_cdi::file::replace(&self.driver_file, text.as_bytes(), 0o644, durability)?;
        }
        let control = ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"];
        // From the end of the list, so that a small node shows other nodes for its GPUs.
        let last = u32::try_from(self.config.host_nodes.len().saturating_sub(1)).unwrap_or(0);
        let nodes = (0u32..)
            .zip(control)
            .map(|(n, path)| self.node(path.to_owned(), last.saturating_sub(n)));
        let mounts = vec![MountFile {
            path: DRIVER_FILE.to_owned(),
            host_path: self.driver_file.display().to_string(),
            kind: MountKind::File,
        }];
        let driver = self.config.driver.clone();
        Ok(Files { nodes: nodes.collect::<Result<_, _>>()?, mounts, driver, ..Files::default() })
    }
}

fn address(index: u32) -> PciAddress {
    let slot = usize::try_from(index).unwrap_or(0) % BUSES.len();
    let bus = BUSES.get(slot).copied().unwrap_or_default();
    PciAddress { domain: index / 8, bus, device: 0, function: 0 }
}

/// A GPU as an HGX board with two sockets surrounds it.
fn in_slot(gpu: Gpu) -> Gpu {
    let PciAddress { domain, bus, .. } = gpu.pci;
    Gpu {
        numa: Some(u32::from(bus >= 0x80)),
        pcie_root: Some(format!("pci{domain:04x}:{:02x}", bus.saturating_sub(1))),
        addressing: Some(Addressing::Hmm),
        ..gpu
    }
}

/// NVSwitches take the links of a GPU in turns.
fn nvlink(link: u32) -> NvLink {
    let bus = [5, 6, 7, 8].into_iter().cycle().nth(usize::try_from(link).unwrap_or(0));
    let pci = PciAddress { domain: 0, bus: bus.unwrap_or_default(), device: 0, function: 0 };
    NvLink { link, peer: NvLinkPeer::Switch(pci) }
}

fn uuid(name: &str) -> uuid::Uuid {
    uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_URL, format!("sim.gpu.divvy.dev/{name}").as_bytes())
}

#[cfg(test)]
mod tests;
