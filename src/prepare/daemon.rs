//! A control daemon of MPS is started, brought back and ended here, with its GPUs' compute modes.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    time::Duration,
};

use super::{
    Node, PrepareError, StepError, absolute,
    step::{Failed, note},
};
use crate::{
    gpu::{ComputeMode, GpuError, Inventory},
    journal::{Claimed, Entry, Work},
    mps::{Access, Mps},
    plan::{Daemon, Planned, Step, Target},
};

/// Where below the directory of records the daemons have theirs: it is emptied by a reboot, which
/// ends them too.
const BELOW: &str = "mps";

/// How long is waited for each thing that a daemon does. It answers in milliseconds.
const PATIENCE: Duration = Duration::from_secs(10);

// === impl Node ===

impl Node<'_> {
    /// Notes how a daemon's GPUs were before it, and where it will be.
    pub(super) fn look_up_daemon(&self, daemon: &mut Daemon) -> Result<(), GpuError> {
        // Before anything is changed, where there is none to be had.
        self.pool.gpus()?.mps_control()?;
        daemon.dir = absolute(self.run.path())?.join(BELOW);
        daemon.modes = match self.mps(&daemon.dir)?.left(&daemon.name) {
            // As they are now, it has made them itself.
            Some(left) => left.modes,
            None => modes(daemon, &self.pool.gpus()?.inventory()?)?,
        };
        daemon.running = None;
        Ok(())
    }

    pub(super) fn start_daemon(
        &self,
        claimed: &Claimed<'_>,
        daemon: &mut Daemon,
    ) -> Result<(), StepError> {
        let (mps, setup) = (self.mps(&daemon.dir)?, daemon.setup());
        // One that others use is theirs too; without them, whatever has its name was left.
        let running = match is_others_too(claimed, daemon)? {
            true => mps.join(&setup)?,
            false => mps.start(&setup)?,
        };
        daemon.running = Some(running);
        Ok(())
    }

    /// Ends a daemon, unless other claims use it.
    pub(super) fn end_daemon(
        &self,
        claimed: &Claimed<'_>,
        daemon: &Daemon,
    ) -> Result<(), StepError> {
        if is_others_too(claimed, daemon)? {
            return Ok(());
        }
        let running = daemon.running.as_ref().map(|running| running.process);
        Ok(self.mps(&daemon.dir)?.stop(&daemon.setup(), running)?)
    }

    /// Brings a daemon of a prepared claim back, where it or what it serves has changed.
    pub(super) fn restore_daemon(
        &self,
        claimed: &mut Claimed<'_>,
        entry: &mut Entry,
        index: usize,
        seen: &Inventory,
    ) -> Result<bool, Failed> {
        let Some(mut step) = entry.steps.get(index).cloned() else { return Ok(false) };
        let doing = step.to_string();
        let failed = |error: StepError| (doing.clone(), error);
        let before = step.clone();
        resolve(&mut step, entry).map_err(|error| failed(error.into()))?;
        let Step::Mps(daemon) = &mut step else { return Ok(false) };
        let mps = self.mps(&daemon.dir).map_err(|error| failed(error.into()))?;
        // Somebody, or a reload of the driver, has set it back.
        let exclusive = |mode: &ComputeMode| *mode == ComputeMode::ExclusiveProcess;
        let modes = modes(daemon, seen).map_err(|error| failed(error.into()))?;
        let mut restored = !modes.values().all(exclusive);
        if restored {
            mps.exclude(&daemon.setup()).map_err(|error| failed(error.into()))?;
        }
        let same = matches!(&before, Step::Mps(before) if before.devices == daemon.devices);
        let setup = daemon.setup();
        let ensured = match &mut daemon.running {
            Some(running) if same => mps.ensure(&setup, running),
            // It has the devices that it had when it started, and these are others. Or a boot has
            // ended it, and another claim may have started it again.
            there => {
                if there.is_none() { mps.join(&setup) } else { mps.start(&setup) }.map(|running| {
                    daemon.running = Some(running);
                    true
                })
            }
        };
        restored |= ensured.map_err(|error| failed(error.into()))?;
        if step != before {
            if let Some(there) = entry.steps.get_mut(index) {
                *there = step;
            }
            note(claimed, entry)?;
        }
        Ok(restored)
    }

    /// What a container needs to be a client of a daemon.
    pub(super) fn access(&self, daemon: &Daemon, device: &Planned) -> Result<Access, StepError> {
        let access = self.mps(&daemon.dir)?.access(&daemon.setup())?;
        Ok(Access { pinned_memory: device.shared_memory().filter(|_| daemon.common), ..access })
    }

    fn mps<'a>(&'a self, dir: &'a Path) -> Result<Mps<'a>, GpuError> {
        Ok(Mps { gpus: self.pool.gpus()?, dir, cgroups: self.cgroups, patience: PATIENCE })
    }

    /// Ends the daemons whose claims have no entry: a damaged one could not be made anew, or somebody
    /// removed it. Their names; one that fails stops no other.
    pub(super) fn end_orphans(&self, work: &Work<'_>) -> Vec<Result<String, PrepareError>> {
        let dir = match absolute(self.run.path()) {
            Ok(run) => run.join(BELOW),
            Err(error) => return vec![Err(error.into())],
        };
        // Declared devices have none, and those there are not theirs.
        let Ok(mps) = self.mps(&dir) else { return Vec::new() };
        let names = mps.names().into_iter();
        names.filter_map(|name| end_orphan(work, &mps, name).transpose()).collect()
    }
}

/// Ends the daemon of this name, where its claim has no entry; none where that is not so.
fn end_orphan(
    work: &Work<'_>,
    mps: &Mps<'_>,
    name: String,
) -> Result<Option<String>, PrepareError> {
    let Some(uid) = Daemon::owner(&name) else { return Ok(None) };
    let Some(mut claimed) = work.attempt_claim(uid)? else { return Ok(None) };
    if !matches!(claimed.entry(), Ok(None)) {
        return Ok(None);
    }
    let Some(mut setup) = mps.left(&name) else { return Ok(None) };
    let gpus: BTreeSet<String> = setup.modes.keys().cloned().collect();
    if !claimed.attempt_gpus(&gpus)? {
        return Ok(None);
    }
    let held = claimed.held_by_others(Some(&gpus))?;
    if uid == name && held.iter().any(|held| held.share.is_some()) {
        return Ok(None);
    }
    // Who has them by now has set them as they should be.
    setup.modes.retain(|gpu, _| held.iter().all(|held| held.target.gpu() != gpu));
    let stopped = mps.stop(&setup, None).map_err(StepError::from);
    stopped.map_err(|source| PrepareError::Step {
        claim: uid.to_owned(),
        doing: format!("ending the MPS control daemon {name}"),
        source: Box::new(source),
        left: Vec::new(),
    })?;
    Ok(Some(name))
}

/// Whether other claims use this daemon. Whoever asks has its GPU in hand.
fn is_others_too(claimed: &Claimed<'_>, daemon: &Daemon) -> Result<bool, StepError> {
    if !daemon.common {
        return Ok(false);
    }
    let gpus = daemon.targets.iter().map(|target| target.gpu().to_owned()).collect();
    let held = claimed.held_by_others(Some(&gpus))?;
    Ok(held.iter().any(|held| held.share.is_some() && daemon.serves(&held.target)))
}

/// Notes in a daemon's step the devices that the steps before it have made.
pub(super) fn resolve(step: &mut Step, entry: &Entry) -> Result<(), GpuError> {
    let Step::Mps(daemon) = step else { return Ok(()) };
    let uuid = |target: &Target| match target {
        Target::Gpu { gpu } | Target::Declared { device: gpu } => Ok(gpu.clone()),
        Target::Partition { gpu, profile, placement } => {
            let made = entry.partition(target).map(str::to_owned);
            made.ok_or_else(|| GpuError::NoPartition {
                gpu: gpu.clone(),
                partition: format!("{profile} at {placement}"),
            })
        }
    };
    daemon.devices = daemon.targets.iter().map(uuid).collect::<Result<_, _>>()?;
    Ok(())
}

/// The compute modes of the GPUs that a daemon has to itself.
fn modes(
    daemon: &Daemon,
    inventory: &Inventory,
) -> Result<BTreeMap<String, ComputeMode>, GpuError> {
    // None is left out: it would never be set, nor set back.
    let mode = |uuid: &str| inventory.find(uuid).map(|gpu| (gpu.uuid.clone(), gpu.compute_mode));
    daemon.whole_gpus().map(mode).collect()
}
