//! A client stands for a program that uses CUDA: it says what it got, and holds it until its
//! standard input ends. Without a daemon it would run alone, as CUDA does, and says that.

use std::{
    env,
    io::{self, Write},
    path::Path,
    process::ExitCode,
};

use rustix::event::{PollFd, PollFlags, poll};

use super::{packet, pipe};

pub(super) fn run() -> io::Result<ExitCode> {
    let mut out = io::stdout();
    let Ok(socket) = packet::connected(&pipe().join("control")) else {
        writeln!(out, "alone")?;
        return Ok(ExitCode::from(3));
    };
    packet::say(&socket, "client")?;
    let Some(given) = packet::hear(&socket)? else {
        writeln!(out, "refused")?;
        return Ok(ExitCode::from(5));
    };
    // What a server shares, its clients must find in their own /dev/shm.
    let segment = given.split(' ').find_map(|word| word.strip_prefix("shm="));
    let shared = segment.is_some_and(|name| Path::new("/dev/shm").join(name).exists());
    let own = ["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"];
    let own = own.map(|name| env::var_os(name).unwrap_or_default().display().to_string());
    let [percentage, memory] = own;
    writeln!(out, "{given} shared={shared} own={percentage}/{memory}")?;
    out.flush()?;
    let stdin = io::stdin();
    let mut fds = [PollFd::new(&stdin, PollFlags::IN), PollFd::new(&socket, PollFlags::IN)];
    poll(&mut fds, None)?;
    let lost = fds.get(1).is_some_and(|socket| !socket.revents().is_empty());
    Ok(if lost { ExitCode::from(4) } else { ExitCode::SUCCESS })
}
