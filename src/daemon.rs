//! The daemon keeps a node in step with its journal: records and CDI specs of prepared claims come
//! back after a reboot, which empties `/run`, and what a crash left half done is ended.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    path::PathBuf,
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use clap::{CommandFactory, Parser};
use tokio::{
    runtime,
    signal::unix::{Signal, SignalKind, signal},
    sync::watch,
    task::spawn_blocking,
    time::{MissedTickBehavior, interval},
};

use crate::{
    admin::{
        Places, PlacesArgs, User,
        exit::{Exit, Failure},
        tell,
    },
    api::Api,
    consumers::Pods,
    plugin::{Kubelet, Machine, Plugin},
    prepare::{Node, Reconciled},
    publish::{self, View},
};

/// Keeps this node in step with its journal.
///
/// At start, every INTERVAL and on SIGHUP, every prepared claim is verified: its partitions, time
/// slices, MPS daemons, CDI spec and record are brought back where they are missing. SIGTERM ends it.
///
/// With --node-name it is the node's DRA driver as well: it registers with the kubelet as gpu.divvy.dev, and
/// prepares and ends the claims of the node's pods.
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
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    places: PlacesArgs,
}

/// The cluster that the node is in.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Kubernetes")]
struct ClusterArgs {
    /// The node's name in its cluster, and so that of its pool of devices; without it, there is no cluster
    #[arg(long, value_name = "NODE", value_parser = node_name)]
    node_name: Option<String>,
    /// How to reach the API server [default: the service account of the pod that this is in]
    #[arg(long, value_name = "FILE", requires = "node_name")]
    kubeconfig: Option<PathBuf>,
    /// The kubelet's directory, by the same path as the kubelet has it
    #[arg(long, value_name = "DIR", requires = "node_name", default_value = "/var/lib/kubelet")]
    kubelet_dir: PathBuf,
    /// The UID of the pod that this is in: its sockets are its own, and the next pod of a rolling update
    /// serves beside it
    #[arg(long, value_name = "UID", requires = "node_name", value_parser = pod_uid)]
    pod_uid: Option<String>,
    /// Publish this node's devices also where another DRA driver or a device plugin gives its GPUs
    #[arg(long, requires = "node_name")]
    beside_other_driver: bool,
}

/// The failures of a round, as they were told.
type Told = BTreeSet<String>;

/// What wakes or ends the daemon. A round is never interrupted half way.
struct Signals {
    hangup: Signal,
    terminate: Signal,
    interrupt: Signal,
}

/// How often the node is looked at for what is to be published of it.
const LOOK: Duration = Duration::from_secs(5);

/// How long whatever still runs may take at the end. What is cut off is ended by whoever comes next.
const GRACE: Duration = Duration::from_secs(10);

/// Runs the daemon until a signal ends it.
pub fn run(args: impl IntoIterator<Item = OsString>, user: &User) -> ExitCode {
    let cli: Cli = match crate::admin::parse(Cli::command(), args) {
        Ok(cli) => cli,
        Err(exit) => return exit.into(),
    };
    match serve(cli, user) {
        Ok(exit) => exit.into(),
        Err(failure) => {
            tell(&failure.to_string());
            failure.exit().into()
        }
    }
}

fn serve(cli: Cli, user: &User) -> Result<Exit, Failure> {
    let places = Places::new(cli.places, user).of_node(cli.cluster.node_name.clone());
    let (gpus, kept) = (places.gpus()?, places.kept()?);
    let journal = kept.journal.path().display().to_string();
    // A boot ends with the daemon, so it is asked once.
    let machine = Machine::new(gpus, kept, crate::admin::boot()?);
    if cli.once {
        return Ok(round(&machine.node(), true, &mut Told::new()));
    }
    let mut builder = runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|error| Failure::new("FAILED", format!("threads: {error}")))?;
    let kept = runtime.block_on(keep(Arc::new(machine), &journal, cli.cluster, cli.interval));
    runtime.shutdown_timeout(GRACE);
    kept.map(|()| Exit::Ok)
}

/// Round after round, and between them what the kubelet asks for.
async fn keep(
    machine: Arc<Machine>,
    journal: &str,
    cluster: ClusterArgs,
    seconds: u16,
) -> Result<(), Failure> {
    let mut signals = Signals::take()
        .map_err(|error| Failure::new("FAILED", format!("taking signals: {error}")))?;
    let mut plugin = match cluster.node_name.clone() {
        Some(node) => Some(join(Arc::clone(&machine), node, cluster).await?),
        None => None,
    };
    tell(&format!("keeping {} in step with {journal}\n", machine.gpus().address()));
    let mut told = Told::new();
    let mut rounds = interval(Duration::from_secs(seconds.into()));
    rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while signals.wait(rounds.tick()).await {
        let machine = Arc::clone(&machine);
        let earlier = std::mem::take(&mut told);
        let round = spawn_blocking(move || {
            let mut told = earlier;
            round(&machine.node(), false, &mut told);
            told
        });
        told = round.await.map_err(|panic| Failure::new("FAILED", format!("a round: {panic}")))?;
        if let Some(plugin) = &mut plugin {
            plugin.look().await;
        }
    }
    if let Some(plugin) = plugin {
        plugin.end().await;
    }
    Ok(())
}

/// Makes the node one of its cluster's.
async fn join(
    machine: Arc<Machine>,
    node: String,
    cluster: ClusterArgs,
) -> Result<Plugin, Failure> {
    let api = Api::new(cluster.kubeconfig.as_deref()).await;
    let api = api.map_err(|e| Failure::of(e.code(), &e))?;
    // The kubelet is told where our socket is.
    let dir = std::path::absolute(&cluster.kubelet_dir)
        .map_err(|error| Failure::new("FAILED", format!("--kubelet-dir: {error}")))?;
    let kubelet = Kubelet { dir, pod: cluster.pod_uid };
    let (run, boot) = (machine.node().run.clone(), machine.node().boot.to_owned());
    let pods = Pods::new(api.clone(), node.clone(), run, boot);
    let plugin = Plugin::start(kubelet, Arc::clone(&machine), api.clone(), pods.clone()).await;
    let plugin = plugin.map_err(|e| Failure::of(e.code(), &e))?;
    let options = publish::Options {
        node,
        beside_other_driver: cluster.beside_other_driver,
        every: LOOK,
        notice: Arc::default(),
    };
    let source = move || View::of(machine.gpus(), machine.node().journal, BTreeMap::new());
    let (state, _nobody_asks_yet) = watch::channel(publish::State::default());
    // They end with the runtime.
    tokio::spawn(pods.run());
    tokio::spawn(publish::run(api, Arc::new(source), options, state));
    Ok(plugin)
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

/// A name that the API server would take for a node.
fn node_name(text: &str) -> Result<String, String> {
    match crate::claim::wrong_with(text) {
        None => Ok(text.to_owned()),
        Some(why) => Err(format!("it {why}")),
    }
}

/// A UID becomes a part of file names.
fn pod_uid(text: &str) -> Result<String, String> {
    match crate::claim::is_uid(text) {
        true => Ok(text.to_owned()),
        false => Err("it is no UID: at most 64 letters, digits and -".to_owned()),
    }
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
    async fn wait(&mut self, next: impl Future<Output = tokio::time::Instant>) -> bool {
        tokio::select! {
            // Whoever ends it need not wait for a round.
            biased;
            _signal = self.terminate.recv() => false,
            _signal = self.interrupt.recv() => false,
            _signal = self.hangup.recv() => true,
            _time = next => true,
        }
    }
}
