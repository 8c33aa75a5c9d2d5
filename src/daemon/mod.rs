//! The daemon keeps a node in step with its journal: records and CDI specs of prepared claims come
//! back after a reboot, which empties `/run`, and what a crash left half done is ended.

mod cluster;
mod http;
mod log;
mod traces;

use std::{collections::BTreeSet, ffi::OsString, process::ExitCode, sync::Arc, time::Duration};

use clap::{CommandFactory, Parser};
use tokio::{
    runtime::{self, Runtime},
    signal::unix::{Signal, SignalKind, signal},
    sync::watch,
    task::spawn_blocking,
    time::{Instant, MissedTickBehavior, interval},
};

use cluster::{ClusterArgs, Member};
use http::Door;
use traces::{Collector, Traces};

use crate::{
    admin::{
        Places, PlacesArgs, User,
        exit::{Exit, Failure},
        tell,
    },
    plugin::Machine,
    prepare::{Node, Reconciled},
};

/// Keeps this node in step with its journal.
///
/// At start, every INTERVAL and on SIGHUP, every prepared claim is verified: its partitions, time
/// slices, MPS daemons, CDI spec and record are brought back where they are missing. SIGTERM ends it.
///
/// With --node-name it is the node's DRA driver as well: it registers with the kubelet as gpu.divvy.dev, and
/// under the name of the driver of each file of --devices; and prepares and ends the claims of the node's
/// pods.
#[derive(Debug, Parser)]
#[command(name = "divvy-node", version, max_term_width = 100)]
struct Cli {
    /// Do it once, say what was done, and end
    #[arg(long, conflicts_with = "node_name")]
    once: bool,
    /// Seconds between two rounds
    #[arg(long, value_name = "SECONDS", default_value_t = 60,
          value_parser = clap::value_parser!(u16).range(1..=3600))]
    interval: u16,
    /// The form of its lines
    #[arg(long, value_name = "FORM", value_enum, default_value_t = log::Form::Text)]
    log: log::Form,
    /// Send a span for each claim that is prepared or ended, and one for each part of that, to this
    /// OpenTelemetry collector (OTLP by gRPC, without TLS)
    #[arg(long, value_name = "http://HOST:PORT", requires = "node_name")]
    traces: Option<Collector>,
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    places: PlacesArgs,
}

/// The failures of a round, as they were told.
type Told = BTreeSet<String>;

/// What wakes or ends the daemon. A round is never interrupted half way.
struct Signals {
    hangup: Signal,
    terminate: Signal,
    interrupt: Signal,
}

/// How long whatever still runs may take at the end. What is cut off is ended by whoever comes next.
const GRACE: Duration = Duration::from_secs(5);

/// How long a round may take: a GPU that does not answer is waited for.
const OVERDUE: Duration = Duration::from_secs(180);

/// Runs the daemon until a signal ends it.
pub fn run(args: impl IntoIterator<Item = OsString>, user: &User) -> ExitCode {
    let cli: Cli = match crate::admin::parse(Cli::command(), args) {
        Ok(cli) => cli,
        Err(exit) => return exit.into(),
    };
    let done = runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let done = done.map_err(|error| Failure::new("FAILED", format!("threads: {error}")));
    let done = done.and_then(|runtime| {
        let traces = begin(&cli, &runtime)?;
        let done = serve(cli, user, &runtime);
        if let Some(traces) = traces {
            traces.end();
        }
        runtime.shutdown_timeout(GRACE);
        done
    });
    match done {
        Ok(exit) => exit.into(),
        Err(failure) => {
            tell(&failure.to_string());
            failure.exit().into()
        }
    }
}

/// Has its lines written from here on, and its traces sent where they are wanted.
fn begin(cli: &Cli, runtime: &Runtime) -> Result<Option<Traces>, Failure> {
    let _in = runtime.enter();
    let node = cli.cluster.node_name.as_deref();
    let traces = cli.traces.clone().map(|collector| Traces::begin(collector, node));
    let (traces, layer) = traces.transpose()?.unzip();
    log::start(cli.log, layer);
    Ok(traces)
}

fn serve(cli: Cli, user: &User, runtime: &Runtime) -> Result<Exit, Failure> {
    let places = Places::new(cli.places, user).of_node(cli.cluster.node_name.clone());
    // A boot ends with the daemon, so it is asked once.
    let (boot, mut machines) = (crate::admin::boot()?, Vec::new());
    for opened in places.kept_pools()? {
        let kept = places.kept(opened.pool().driver())?;
        machines.push(Arc::new(Machine::new(opened, kept, boot.clone())));
    }
    if cli.once {
        let mut done = Exit::Ok;
        // One that fails keeps no other from its round.
        for machine in &machines {
            if !machine.reload() {
                done = Exit::Failed;
            }
            match round(&machine.node(), true, &mut Told::new()) {
                Exit::Ok => {}
                failed => done = failed,
            }
        }
        return Ok(done);
    }
    runtime.block_on(keep(machines, cli.cluster, cli.interval))?;
    Ok(Exit::Ok)
}

/// Round after round, and between them what the kubelet asks for.
async fn keep(
    machines: Vec<Arc<Machine>>,
    cluster: ClusterArgs,
    seconds: u16,
) -> Result<(), Failure> {
    let mut signals = Signals::take()
        .map_err(|error| Failure::new("FAILED", format!("taking signals: {error}")))?;
    let (every, http) = (Duration::from_secs(seconds.into()), cluster.http);
    let mut members = match cluster.node_name.clone() {
        Some(node) => Member::join(&machines, node, cluster).await?,
        None => Vec::new(),
    };
    let (ended, round) = watch::channel(Instant::now());
    if let Some(place) = http {
        let listener = Door::open(place).await?;
        let watched = members.iter().map(Member::watched).collect();
        let (overdue, collecting) = (every * 2 + OVERDUE, Arc::default());
        let door = Door { watched, round, overdue, collecting };
        tokio::spawn(door.serve(listener));
    }
    for machine in &machines {
        let journal = machine.node().journal.path().display();
        tell(&format!("keeping {} in step with {journal}\n", machine.pool().address()));
    }
    let mut told: Vec<Told> = machines.iter().map(|_| Told::new()).collect();
    let mut rounds = interval(every);
    rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while signals.wait(rounds.tick()).await {
        tokio::select! {
            biased;
            // What it is at it finishes.
            () = signals.end() => break,
            () = next_rounds(&machines, &mut told) => {}
        }
        tokio::select! {
            biased;
            () = signals.end() => break,
            () = look(&mut members) => {}
        }
        ended.send_replace(Instant::now());
    }
    // Each takes its time for what it is at.
    let ends = members.into_iter().map(|member| tokio::spawn(member.plugin.end()));
    for end in ends.collect::<Vec<_>>() {
        let _panicked = end.await;
    }
    Ok(())
}

async fn next_rounds(machines: &[Arc<Machine>], told: &mut [Told]) {
    for (machine, told) in machines.iter().zip(told) {
        next_round(machine, told).await;
    }
}

async fn look(members: &mut [Member]) {
    for member in members {
        member.look().await;
    }
}

/// One round, where it keeps nobody waiting. A defect that ends it ends no other.
async fn next_round(machine: &Arc<Machine>, told: &mut Told) {
    let (machine, mut earlier) = (Arc::clone(machine), std::mem::take(told));
    let round = spawn_blocking(move || {
        machine.reload();
        round(&machine.node(), false, &mut earlier);
        earlier
    });
    match round.await {
        Ok(now) => *told = now,
        Err(panic) => tell(&Failure::new("FAILED", format!("a round: {panic}")).to_string()),
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

// === impl Signals ===

impl Signals {
    fn take() -> std::io::Result<Self> {
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Waits for the next round, or for whoever wants one now; false when it is to end.
    async fn wait(&mut self, next: impl Future<Output = Instant>) -> bool {
        tokio::select! {
            // Whoever ends it need not wait for a round.
            biased;
            _signal = self.terminate.recv() => false,
            _signal = self.interrupt.recv() => false,
            _signal = self.hangup.recv() => true,
            _time = next => true,
        }
    }

    /// Waits until it is to end.
    async fn end(&mut self) {
        tokio::select! {
            _signal = self.terminate.recv() => {}
            _signal = self.interrupt.recv() => {}
        }
    }
}
