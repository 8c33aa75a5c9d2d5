//! Mending makes an entry anew that cannot be read: from the claim's record, its spec and the GPUs.
//! Where they do not tell what the claim has, nothing is left of it that a container could start by.

use std::path::PathBuf;

use divvy_cdi::{
    file::{self, MAX_SPEC_BYTES, Trust},
    spec,
};
use divvy_hook::record::{self, ClaimRecord};

use super::{Node, PrepareError, StepError, absolute};
use crate::{
    claim::Sharing,
    emit,
    gpu::{Device, DeviceName, Inventory, MadePartition},
    journal::{Claimed, Entry, Stage, VERSION},
    plan::{Planned, Step, Target},
};

// === impl Node ===

impl Node<'_> {
    /// Puts another entry in the place of a damaged one, which is kept: the path says where. No
    /// entry, where it cannot be made anew.
    pub(super) fn mend(
        &self,
        claimed: &mut Claimed<'_>,
    ) -> Result<(PathBuf, Option<Entry>), PrepareError> {
        let kept = claimed.keep_damaged()?;
        // Whatever keeps the record from being read: without it there is nothing to go by.
        let record = self.run.claim(claimed.uid()).ok().flatten();
        let record = record.filter(|record| record.boot == self.boot);
        let entry = match record {
            Some(record) => self.made_anew(claimed, record)?,
            None => None,
        };
        match &entry {
            Some(entry) => claimed.write(entry)?,
            None => {
                let name = emit::spec_name(claimed.uid());
                spec::remove(self.cdi_dir, &name).map_err(StepError::from).map_err(|source| {
                    PrepareError::Step {
                        claim: claimed.uid().to_owned(),
                        doing: "removing the CDI spec".to_owned(),
                        source: Box::new(source),
                        left: Vec::new(),
                    }
                })?;
                claimed.discard()?;
            }
        }
        Ok((kept, entry))
    }

    /// The entry of a prepared claim, as far as it can be seen: none where its devices are not
    /// those of its spec.
    fn made_anew(
        &self,
        claimed: &Claimed<'_>,
        record: ClaimRecord,
    ) -> Result<Option<Entry>, PrepareError> {
        let inventory = self.gpus.inventory()?;
        let spec = record.specs.values().next().and_then(|spec| {
            let bytes = file::read(&spec.path, MAX_SPEC_BYTES, &Trust::of_process()).ok()?;
            (record::digest(&bytes) == spec.digest)
                .then_some(bytes)
                .and_then(|bytes| String::from_utf8(bytes).ok())
        });
        // What a control daemon was told is written nowhere else; the next round ends it.
        let spec = spec.filter(|spec| !spec.contains("CUDA_MPS_PIPE_DIRECTORY"));
        let Some(spec) = spec else { return Ok(None) };
        let (mut devices, mut steps) = (Vec::new(), Vec::new());
        for (request, names) in &record.requests {
            for name in names {
                let Some((device, step)) = self.seen(&record.uid, name, &inventory, &spec)? else {
                    return Ok(None);
                };
                let target = Target::of(&device);
                // It has what somebody else holds: then it only looks on.
                let held = claimed.held_by_others(Some(&[target.gpu().to_owned()].into()))?;
                let admin = held.iter().any(|held| held.target.overlaps(&target));
                let sharing = match &step {
                    Some(Step::TimeSlice { interval, .. }) if !admin => {
                        Sharing::TimeSlicing(*interval)
                    }
                    _ => Sharing::Exclusive,
                };
                devices.push(Planned {
                    request: request.clone(),
                    pool: inventory.node.clone(),
                    device: device.name().to_string(),
                    target,
                    sharing,
                    existing: None,
                    share: None,
                    admin,
                });
                steps.extend(step.filter(|step| !admin && !steps.contains(step)));
            }
        }
        Ok(Some(Entry {
            version: VERSION,
            uid: record.uid,
            namespace: record.namespace,
            name: record.name,
            origin: record.origin,
            // Not in the record: the next to prepare it says.
            asked: String::new(),
            gpus: self.gpus.address().to_owned(),
            cdi_dir: absolute(self.cdi_dir)?,
            run_dir: absolute(self.run.path())?,
            consumers: record.consumers,
            boot: record.boot,
            stage: Stage::Done,
            devices,
            steps,
        }))
    }

    /// The device with this CDI name, and the step that made it so. None where it is not there, or
    /// not the one of which the spec tells.
    fn seen<'i>(
        &self,
        uid: &str,
        cdi_name: &str,
        inventory: &'i Inventory,
        spec: &str,
    ) -> Result<Option<(Device<'i>, Option<Step>)>, PrepareError> {
        // A share is not known by its name: how much it has is written nowhere else.
        let prefix = format!("{}={uid}-", record::CLAIM_KIND);
        let name = cdi_name.strip_prefix(&prefix).and_then(|name| name.parse::<DeviceName>().ok());
        let Some(device) = name.and_then(|name| inventory.device(&name)) else { return Ok(None) };
        let tells = |uuid: &str| spec.contains(uuid);
        let gpu = device.gpu().uuid.clone();
        let Device::Partition { profile, placement, .. } = &device else {
            if !tells(&gpu) {
                return Ok(None);
            }
            // One that is not to be had exclusively for want of an answer is taken for it.
            let interval = self.gpus.time_slice(&gpu).unwrap_or_default();
            let step = (interval != Default::default()).then(|| Step::TimeSlice {
                gpu,
                interval,
                before: Default::default(),
            });
            return Ok(Some((device, step)));
        };
        let (profile, placement) = (profile.name.to_string(), *placement);
        let mut made = MadePartition { gpu, profile, placement, uuid: None };
        let there = device.gpu().partitions().iter().find(|there| made.is(there));
        let Some(there) = there.filter(|there| tells(&there.uuid)) else { return Ok(None) };
        made.uuid = Some(there.uuid.clone());
        Ok(Some((device, Some(Step::Partition(made)))))
    }
}
