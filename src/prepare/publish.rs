//! Publishing writes what containers start by: the claim's CDI spec and its record. Files that are
//! as they should be are left alone, so that no engine reads its specs again for nothing.

use std::borrow::Cow;

use divvy_cdi::{
    file::{self, Durability, MAX_SPEC_BYTES, Trust},
    host::ThisHost,
    spec::{self, ContainerEdits, Spec},
};
use divvy_hook::record::{Origin, digest};

use super::{Node, StepError, metadata};
use crate::{
    declared::{self, DeclaredError, DeviceFile},
    emit,
    gpu::{Files, Gpu, GpuError, Gpus, Inventory},
    journal::{Entry, Part},
    plan::{self, Planned, Target},
    pool::Pool,
};

// === impl Node ===

impl Node<'_> {
    /// Writes spec and record of an entry, where they are not there already; false when both were.
    /// `seen` is what its GPUs are now, if that is known.
    pub(super) fn publish(
        &self,
        entry: &Entry,
        seen: Option<&Inventory>,
    ) -> Result<bool, (String, StepError)> {
        let made = self.spec(entry, seen);
        if let Err(StepError::Declared(DeclaredError::Undeclared { .. })) = made
            && is_published(entry)
        {
            // Nobody else gets it, and what its claim was given works as it did.
            return Ok(false);
        }
        let (mut spec, driver) = made.map_err(|e| ("finding the devices' files".to_owned(), e))?;
        let doing = || format!("writing what containers are told into {}", entry.run_dir.display());
        let told = metadata::write(entry).map_err(|e| (doing(), e))?;
        emit::tell(&mut spec, entry);
        let doing = || format!("writing the CDI spec into {}", entry.cdi_dir.display());
        let write = || write_spec(entry, &spec);
        let (spec, wrote_spec) = self.call.at(Part::Cdi, write).map_err(|e| (doing(), e))?;
        let doing = || format!("writing the record into {}", entry.run_dir.display());
        let write = || write_record(entry, &spec, &driver);
        let wrote_record = self.call.at(Part::Cdi, write).map_err(|e| (doing(), e))?;
        Ok(told || wrote_spec || wrote_record)
    }

    /// The spec of an entry, and the version of the driver that it is for.
    fn spec(&self, entry: &Entry, seen: Option<&Inventory>) -> Result<(Spec, String), StepError> {
        let gpus = match self.pool {
            Pool::Gpus(gpus) => gpus,
            Pool::Declared(file) => return Ok((declared(entry, file)?, String::new())),
        };
        let seen = match seen {
            Some(seen) => Cow::Borrowed(seen),
            None => Cow::Owned(gpus_of(gpus, entry)?),
        };
        let mut parts: Vec<emit::Part<'_>> = Vec::new();
        for device in &entry.devices {
            let name = emit::device_name(&entry.uid, device);
            // Two requests may be the same time-sliced GPU.
            if parts.iter().any(|part| part.name == name) {
                continue;
            }
            let gpu = device.target.gpu();
            // Never the whole GPU for want of a part.
            let partition = match (&device.target, entry.partition_of(device)) {
                (Target::Gpu { .. } | Target::Declared { .. }, _) => None,
                (Target::Partition { .. }, Some(uuid)) => Some(uuid),
                (Target::Partition { .. }, None) => {
                    let (gpu, partition) = (gpu.to_owned(), device.device.clone());
                    return Err(GpuError::NoPartition { gpu, partition }.into());
                }
            };
            let files = files(gpus, entry, device, seen.find(gpu)?, partition)?;
            let uuid = partition.unwrap_or(gpu);
            let daemon = entry.daemon_of(device);
            let mps = daemon.map(|daemon| self.access(daemon, device)).transpose()?;
            parts.push(emit::Part { name, device: &device.device, uuid, files, mps });
        }
        let common = gpus.driver_files()?;
        let driver = common.driver.clone();
        Ok((emit::spec(parts, common, self.hook)?, driver))
    }
}

fn files(
    gpus: &dyn Gpus,
    entry: &Entry,
    device: &Planned,
    gpu: &Gpu,
    partition: Option<&str>,
) -> Result<Files, GpuError> {
    let mut files = gpus.device_files(gpu, partition)?;
    // Requests that have it in turns have one device.
    let mut same = entry.devices.iter().filter(|same| same.target == device.target);
    if same.any(|same| same.display) {
        let mut display = gpus.display_files(gpu)?;
        files.nodes.append(&mut display.nodes);
        files.links.append(&mut display.links);
    }
    Ok(files)
}

/// The GPUs of an entry as they are now: where they sat, or else wherever they sit.
fn gpus_of(gpus: &dyn Gpus, entry: &Entry) -> Result<Inventory, GpuError> {
    let devices = entry.devices.iter();
    let at = plan::addresses(devices.clone().map(|device| device.device.as_str()));
    let seen = gpus.inventory_of(Some(&at))?;
    match devices.into_iter().all(|device| seen.gpu(device.target.gpu()).is_some()) {
        true => Ok(seen),
        false => gpus.inventory(),
    }
}

/// The spec of an entry on declared devices, as they are declared now.
fn declared(entry: &Entry, file: &DeviceFile) -> Result<Spec, DeclaredError> {
    let declaration = file.now();
    let mut parts: Vec<(String, &str, ContainerEdits)> = Vec::new();
    for device in &entry.devices {
        let (name, of) = (emit::device_name(&entry.uid, device), device.device.as_str());
        // Two requests may look on the same one.
        if parts.iter().any(|(known, ..)| *known == name) {
            continue;
        }
        let Some(found) = declaration.device(of) else {
            let (device, driver) = (of.to_owned(), entry.driver.clone());
            return Err(DeclaredError::Undeclared { device, driver });
        };
        declared::check(of, &found.edits, &ThisHost)?;
        parts.push((name, of, found.edits.clone()));
    }
    Ok(emit::declared(&entry.driver, parts))
}

/// Whether spec and record are there, and belong together.
fn is_published(entry: &Entry) -> bool {
    let spec = file::read(&entry.spec_path(), MAX_SPEC_BYTES, &Trust::of_process());
    let record = entry.run().claim(&entry.uid).ok().flatten();
    let (Ok(spec), Some(record)) = (spec, record) else { return false };
    let digest = digest(&spec);
    record.boot == entry.boot && record.specs.values().all(|spec| spec.digest == digest)
}

/// The spec's bytes, and whether they were not there already.
fn write_spec(entry: &Entry, spec: &Spec) -> Result<(Vec<u8>, bool), StepError> {
    file::make_dir(&entry.cdi_dir, 0o755, Durability::Durable)?;
    Ok(spec::keep(&entry.cdi_dir, &emit::spec_name(&entry.driver, &entry.uid), spec)?)
}

fn write_record(entry: &Entry, spec: &[u8], driver: &str) -> Result<bool, StepError> {
    let record = emit::record(entry, spec, driver);
    let run = entry.run();
    let there = match entry.origin {
        Origin::Api => run.claim(&entry.uid),
        Origin::Local => run.local_claim(&entry.namespace, &entry.name),
    };
    if matches!(there, Ok(Some(there)) if there == record) {
        return Ok(false);
    }
    run.write_claim(&record)?;
    Ok(true)
}
