//! nvidia-smi sets the one thing that NVML has no public call for: the time slice.

use std::time::Duration;

use super::host::Host;
use crate::{
    gpu::{GpuError, Interval},
    program::{ProgramError, Run},
};

/// What a GPU's time slice is set to. Refuses a GPU, or a driver, that has none: in its own words,
/// as no compute capability tells (dra-drivers.md 2.1).
pub(super) fn time_slice(host: &Host, gpu: &str, patience: Duration) -> Result<Interval, GpuError> {
    let said = run(host, gpu, &["compute-policy", "-i", gpu, "-l"], patience)?;
    let plain = said.to_lowercase();
    if plain.contains("not supported") || plain.contains("[n/a]") {
        return Err(no_time_slice(gpu, &said));
    }
    let lines = plain.lines().filter(|line| line.contains("slice"));
    let mut words = lines.flat_map(|line| line.split(|c: char| !c.is_alphanumeric()));
    let interval = words.find_map(|word| {
        let mut all = Interval::ALL.into_iter();
        all.find(|(name, _)| word.eq_ignore_ascii_case(name)).map(|(_, interval)| interval)
    });
    // How it is written is promised nowhere. Where it cannot be read, it is put back to the default.
    Ok(interval.unwrap_or_default())
}

/// Sets a GPU's time slice.
pub(super) fn set_time_slice(
    host: &Host,
    gpu: &str,
    interval: Interval,
    patience: Duration,
) -> Result<(), GpuError> {
    let number = match interval {
        Interval::Default => "0",
        Interval::Short => "1",
        Interval::Medium => "2",
        Interval::Long => "3",
    };
    let args = ["compute-policy", "-i", gpu, "--set-timeslice", number];
    run(host, gpu, &args, patience).map(drop)
}

fn no_time_slice(gpu: &str, said: &str) -> GpuError {
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    let why = if said.is_empty() { "nvidia-smi says nothing".to_owned() } else { said };
    GpuError::NoTimeSlice { gpu: gpu.to_owned(), why: why.escape_debug().to_string() }
}

/// Runs it; what it said.
fn run(host: &Host, gpu: &str, args: &[&str], patience: Duration) -> Result<String, GpuError> {
    let program = host.program("nvidia-smi")?;
    let said = match program.run(&Run { args, ..Run::default() }, patience, |_| {}) {
        Ok(said) => said,
        Err(ProgramError::Silent { path }) => {
            return Err(GpuError::ProgramSilent { path, gpu: gpu.to_owned() });
        }
        Err(error) => return Err(error.into()),
    };
    if said.success { Ok(said.text) } else { Err(no_time_slice(gpu, &said.text)) }
}
