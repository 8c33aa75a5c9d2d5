//! What a worker finds out of the health of its GPU.

use nvml_wrapper_sys::bindings as sys;

use super::{
    api::{Caller, Failed},
    read::Desk,
    session::is_past,
};
use crate::gpu::{Checked, Vitals};

// === impl Desk ===

impl Desk {
    /// What the driver knows of the GPU. What it does not say now is none: only a GPU that is lost
    /// has no vitals at all.
    pub(super) fn check(&mut self, caller: &Caller) -> Result<Checked, Failed> {
        let device = self.device(caller)?;
        let gpu = known(caller.uuid(device))?;
        let remapped = known(caller.remapped(device))?;
        let retiring = match remapped {
            Some(_) => None,
            None => known(caller.retirement_pending(device))?,
        };
        let slowdowns = known(caller.slowdowns(device))?;
        let by = |reason: u32| slowdowns.map(|reasons| reasons & u64::from(reason) != 0);
        // In MIG mode a GPU's links are off.
        let mig = known(caller.mig_mode(device))?.is_some_and(|(on, _)| on);
        let nvlinks = if mig { None } else { known(caller.links_up(device))? };
        let vitals = Vitals {
            remap_pending: remapped.map(|(pending, _)| pending).or(retiring),
            remap_failed: remapped.map(|(_, failed)| failed),
            uncorrected: known(caller.uncorrected(device))?,
            hot: by(sys::nvmlClocksThrottleReasonHwThermalSlowdown),
            braked: by(sys::nvmlClocksThrottleReasonHwPowerBrakeSlowdown),
            recovery: known(caller.recovery(device))?,
            nvlinks,
            energy: known(caller.energy(device))?,
        };
        Ok(Checked { gpu: gpu.unwrap_or_default(), pci: self.pci(), vitals })
    }
}

/// What was said, if anything was. That the GPU or the driver is gone is no lack of an answer.
fn known<T>(answer: Result<T, Failed>) -> Result<Option<T>, Failed> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(failed) if failed.is(sys::nvmlReturn_enum_NVML_ERROR_GPU_IS_LOST) => Err(failed),
        Err(failed) if is_past(failed.code) => Err(failed),
        Err(_) => Ok(None),
    }
}
