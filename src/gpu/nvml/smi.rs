//! nvidia-smi sets the one thing that NVML has no public call for: the time slice.

use std::{
    io::Read,
    os::fd::AsFd,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use nix::poll::{PollFd, PollFlags, PollTimeout};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::host::Host;
use crate::gpu::{GpuError, Interval};

/// Where it is below a driver root.
const PLACES: [&str; 4] =
    ["usr/bin/nvidia-smi", "bin/nvidia-smi", "usr/local/bin/nvidia-smi", "opt/bin/nvidia-smi"];

/// More than it has to say of one GPU.
const MAX_BYTES: u64 = 16 << 10;

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

/// Runs it to its end, or ends it at the deadline; what it said.
fn run(host: &Host, gpu: &str, args: &[&str], patience: Duration) -> Result<String, GpuError> {
    let program = find(host)?;
    let failed = |source| GpuError::Program { path: program.clone(), source };
    let mut command = Command::new(&program);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    command.env_clear().env("PATH", "/usr/bin:/bin").env("LC_ALL", "C");
    // It opens libnvidia-ml.so.1 by name, and must find that of its own driver. Not by LD_PRELOAD,
    // with which it crashes on some systems (dra-drivers.md 8, 34).
    command.env("LD_LIBRARY_PATH", host.library_dir());
    let mut child = command.spawn().map_err(failed)?;
    let out = child.stdout.take();
    let (done, said) = mpsc::channel();
    // Of a thread of its own: a grandchild may hold the pipe open for ever.
    let reader = thread::Builder::new().name("nvidia-smi".to_owned()).spawn(move || {
        let mut bytes = Vec::new();
        let read = out.map(|out| out.take(MAX_BYTES).read_to_end(&mut bytes));
        let _nobody_waits = done.send(read.map(|_| bytes).unwrap_or_default());
    });
    reader.map_err(|source| GpuError::Thread { source })?;
    let deadline = Instant::now() + patience;
    if !ended(&child, deadline) {
        let _gone = child.kill();
        // In the kernel, at a GPU that hangs, it may not end: nobody waits for that.
        let _reaped = thread::Builder::new().spawn(move || child.wait());
        return Err(GpuError::ProgramSilent { path: program, gpu: gpu.to_owned() });
    }
    let status = child.wait().map_err(failed)?;
    let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(100));
    let said = said.recv_timeout(left).unwrap_or_default();
    let said = String::from_utf8_lossy(&said).into_owned();
    if status.success() { Ok(said) } else { Err(no_time_slice(gpu, &said)) }
}

/// Waits for the end of a process without looking again and again.
fn ended(child: &Child, deadline: Instant) -> bool {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let Some(fd) = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()) else {
        return false;
    };
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        let mut fds = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
        match nix::poll::poll(&mut fds, timeout) {
            Ok(0) => return false,
            Ok(_) => return true,
            Err(nix::errno::Errno::EINTR) => {}
            Err(_) => return false,
        }
    }
}

/// The driver's nvidia-smi: root's, or this user's own, as it is run with our rights.
fn find(host: &Host) -> Result<PathBuf, GpuError> {
    let root = host.driver_root();
    let found = PLACES.iter().map(|place| root.join(place)).find(|path| path.is_file());
    let Some(path) = found else {
        let looked_at = PLACES.iter().map(|place| root.join(place)).collect();
        return Err(GpuError::NoProgram { looked_at });
    };
    Host::trusted(&path)?;
    Ok(path)
}
