//! The daemon keeps a node in step with its journal: records and CDI specs of prepared claims come
//! back after a reboot, which empties `/run`, and what a crash left half done is ended.

use std::{collections::BTreeSet, ffi::OsString, os::fd::AsFd, process::ExitCode};

use clap::{CommandFactory, Parser};
use nix::{
    poll::{PollFd, PollFlags, PollTimeout},
    sys::{
        signal::{SigSet, Signal},
        signalfd::{SfdFlags, SignalFd},
    },
};

use crate::{
    admin::{
        Places, PlacesArgs, User,
        exit::{Exit, Failure},
        tell,
    },
    prepare::{Node, Reconciled},
};

/// Keeps this node in step with its journal.
///
/// At start, every INTERVAL and on SIGHUP, every prepared claim is verified: its partitions, time
/// slices, MPS daemons, CDI spec and record are brought back where they are missing. SIGTERM ends it.
#[derive(Debug, Parser)]
#[command(name = "divvy-node", version, max_term_width = 100)]
struct Cli {
    /// Do it once, say what was done, and end
    #[arg(long)]
    once: bool,
    /// Seconds between two rounds
    #[arg(long, value_name = "SECONDS", default_value_t = 60,
          value_parser = clap::value_parser!(u16).range(1..=3600))]
    interval: u16,
    #[command(flatten)]
    places: PlacesArgs,
}

/// How often it is done.
#[derive(Clone, Copy)]
enum Rounds {
    Once,
    /// Seconds.
    Every(u16),
}

/// The failures of a round, as they were told.
type Told = BTreeSet<String>;

/// Why the daemon goes on.
enum Woken {
    Round,
    End,
}

/// Runs the daemon until a signal ends it.
pub fn run(args: impl IntoIterator<Item = OsString>, user: &User) -> ExitCode {
    let cli: Cli = match crate::admin::parse(Cli::command(), args) {
        Ok(cli) => cli,
        Err(exit) => return exit.into(),
    };
    let rounds = if cli.once { Rounds::Once } else { Rounds::Every(cli.interval) };
    match serve(&Places::new(cli.places, user), rounds) {
        Ok(exit) => exit.into(),
        Err(failure) => {
            tell(&failure.to_string());
            failure.exit().into()
        }
    }
}

fn serve(places: &Places<'_>, rounds: Rounds) -> Result<Exit, Failure> {
    let signals = signals()?;
    let (gpus, kept) = (places.gpus()?, places.kept()?);
    // A boot ends with the daemon, so it is asked once.
    let boot = crate::admin::boot()?;
    let node = kept.node(gpus.as_ref(), &boot);
    let Rounds::Every(seconds) = rounds else {
        return Ok(round(&node, true, &mut Told::new()));
    };
    let mut told = Told::new();
    let journal = kept.journal.path().display();
    tell(&format!("keeping {} in step with {journal}\n", gpus.address()));
    loop {
        round(&node, false, &mut told);
        if let Woken::End = wait(&signals, seconds)? {
            return Ok(Exit::Ok);
        }
    }
}

/// One round; says what it changed, which failures are new since the last one, and with `all` also
/// what it found in step.
fn round(node: &Node<'_>, all: bool, told: &mut Told) -> Exit {
    let found = node.reconcile().unwrap_or_else(|error| vec![Reconciled::Failed(error)]);
    let mut failures = Told::new();
    for one in found {
        match one {
            Reconciled::InStep { entry, restored: true } => {
                tell(&format!("claim {}: brought back in step\n", entry.title()));
            }
            Reconciled::InStep { entry, restored: false } if all => {
                tell(&format!("claim {}: in step\n", entry.title()));
            }
            Reconciled::InStep { .. } => {}
            Reconciled::Ended(entry) => {
                tell(&format!("claim {}: was left half done, and is ended\n", entry.title()));
            }
            Reconciled::Elsewhere(entry) if all => {
                tell(&format!("claim {}: on other GPUs, {}\n", entry.title(), entry.gpus));
            }
            Reconciled::InHand { uid } if all => {
                tell(&format!("claim with UID {uid}: somebody else is at it\n"));
            }
            Reconciled::Elsewhere(_) | Reconciled::InHand { .. } => {}
            Reconciled::Damaged { error, kept, entry } => {
                let became = match entry {
                    Some(entry) => format!("claim {}: its entry was made anew", entry.title()),
                    None => {
                        "no container gets its claim any more, and what it had on the GPUs stays"
                            .to_owned()
                    }
                };
                tell(&format!("{error}; kept as {}; {became}\n", kept.display()));
            }
            Reconciled::Orphan { daemon } => {
                tell(&format!(
                    "MPS control daemon {daemon}: was there for no claim, and is ended\n"
                ));
            }
            Reconciled::Failed(error) => {
                let failure = crate::admin::failure(&error).to_string();
                if !told.contains(&failure) {
                    tell(&failure);
                }
                failures.insert(failure);
            }
        }
    }
    *told = failures;
    if told.is_empty() { Exit::Ok } else { Exit::Failed }
}

/// The signals that wake or end the daemon, as a file to wait on: no handler, so nothing is ever
/// interrupted half way.
fn signals() -> Result<SignalFd, Failure> {
    let mut set = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        set.add(signal);
    }
    let taken = set
        .thread_block()
        .and_then(|()| SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK));
    taken.map_err(|errno| Failure::new("FAILED", format!("taking signals: {errno}")))
}

fn wait(signals: &SignalFd, seconds: u16) -> Result<Woken, Failure> {
    let timeout = PollTimeout::try_from(u32::from(seconds) * 1000).unwrap_or(PollTimeout::MAX);
    let mut fds = [PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
    let failed = |errno| Failure::new("FAILED", format!("waiting for signals: {errno}"));
    match nix::poll::poll(&mut fds, timeout) {
        Ok(_) | Err(nix::errno::Errno::EINTR) => {}
        Err(errno) => return Err(failed(errno)),
    }
    let mut woken = Woken::Round;
    while let Some(signal) = signals.read_signal().map_err(failed)? {
        if i32::try_from(signal.ssi_signo) != Ok(Signal::SIGHUP as i32) {
            woken = Woken::End;
        }
    }
    Ok(woken)
}
