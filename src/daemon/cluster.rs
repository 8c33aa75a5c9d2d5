//! A cluster is what a node can be one of: its kubelet calls, its API server is told what the node has.

use std::{collections::BTreeSet, path::PathBuf, sync::Arc, thread, time::Duration};

use tokio::sync::{Notify, watch};

use super::http::{Place, Watched};
use crate::{
    admin::exit::Failure,
    api::Api,
    claim::{is_uid, wrong_with},
    consumers::Pods,
    health,
    plugin::{Kubelet, Machine, Plugin},
    pool::Pool,
    publish::{self, Effect, View},
};

/// The cluster that the node is in.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Kubernetes")]
pub(super) struct ClusterArgs {
    /// The node's name in its cluster, and so that of its pool of devices; without it, there is no cluster
    #[arg(long, value_name = "NODE", value_parser = node_name)]
    pub(super) node_name: Option<String>,
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
    /// What becomes of the pods that have a GPU which is lost, or of no use until it is reset: NoSchedule
    /// keeps new ones from it, NoExecute also ends those that do not tolerate its taint
    #[arg(long, requires = "node_name", value_name = "EFFECT", default_value = "NoSchedule",
          value_parser = effect)]
    broken_gpu_effect: Effect,
    /// XIDs that taint no GPU, beside those that NVIDIA has as the application's
    #[arg(long, requires = "node_name", value_name = "XID", value_delimiter = ',')]
    ignore_xids: Vec<u64>,
    /// Answer /healthz, /readyz and /metrics there, to whoever asks; a port alone is that of every address
    #[arg(long, value_name = "[ADDRESS:]PORT", requires = "node_name")]
    pub(super) http: Option<Place>,
}

/// A driver of the node as one of its cluster's.
pub(super) struct Member {
    driver: String,
    pub(super) plugin: Plugin,
    /// How far its devices are published.
    published: watch::Receiver<publish::State>,
    /// Has the node looked at for what is to be published.
    notice: Arc<Notify>,
    /// All drivers' consumers.
    pods: Arc<Pods>,
}

/// How often the node is looked at for what is to be published.
const LOOK: Duration = Duration::from_secs(5);

// === impl Member ===

impl Member {
    /// Makes the node one of its cluster's, under this name, with each of its drivers.
    pub(super) async fn join(
        machines: &[Arc<Machine>],
        node: String,
        cluster: ClusterArgs,
    ) -> Result<Vec<Self>, Failure> {
        let api = Api::new(cluster.kubeconfig.as_deref()).await;
        let api = api.map_err(|e| Failure::of(e.code(), &e))?;
        // The kubelet is told where our socket is.
        let dir = std::path::absolute(&cluster.kubelet_dir)
            .map_err(|error| Failure::new("FAILED", format!("--kubelet-dir: {error}")))?;
        let kubelet = Kubelet { node: node.clone(), dir, pod: cluster.pod_uid };
        let Some(first) = machines.first() else { return Ok(Vec::new()) };
        let (run, boot) = (first.node().run.clone(), first.node().boot.to_owned());
        let drivers = machines.iter().map(|machine| machine.pool().driver().to_owned());
        let ours: BTreeSet<String> = drivers.collect();
        let pods = Pods::new(api.clone(), node.clone(), ours.clone(), run, boot);
        let ignored = cluster.ignore_xids.iter().copied().collect();
        let health = health::Options { effect: cluster.broken_gpu_effect, ignored };
        let mut members = Vec::new();
        for machine in machines {
            let (machine, consumers) = (Arc::clone(machine), pods.clone());
            let driver = machine.pool().driver().to_owned();
            let known = watch_health(&machine, &health)?;
            let plugin = Plugin::start(
                kubelet.clone(),
                Arc::clone(&machine),
                api.clone(),
                consumers,
                known.clone(),
            );
            let plugin = plugin.await.map_err(|e| Failure::of(e.code(), &e))?;
            let (state, published) = watch::channel(publish::State::default());
            let notice = Arc::new(Notify::new());
            let sole = machine.node().journal.lock_place(&format!("publish-{driver}"));
            let options = publish::Options {
                driver: driver.clone(),
                node: node.clone(),
                beside_other_driver: cluster.beside_other_driver,
                ours: ours.clone(),
                every: LOOK,
                notice: Arc::clone(&notice),
                sole: Some(sole.map_err(|e| Failure::of(e.code(), &e))?),
            };
            if let Some(mut known) = known.clone() {
                let notice = Arc::clone(&notice);
                tokio::spawn(async move {
                    while known.changed().await.is_ok() {
                        notice.notify_one();
                    }
                });
            }
            let look = move || {
                machine.reload();
                let journal = machine.node().journal;
                let known = known.as_ref().map(|known| publish::Health::from(&*known.borrow()));
                match machine.pool() {
                    Pool::Gpus(gpus) => View::of(gpus, journal, known.unwrap_or_default()),
                    Pool::Declared(file) => View::of_declared(file, journal),
                }
            };
            // It ends with the runtime, and so do the pods.
            tokio::spawn(publish::run(api.clone(), Arc::new(look), options, state));
            members.push(Self { driver, plugin, published, notice, pods: pods.clone() });
        }
        tokio::spawn(pods.run());
        Ok(members)
    }

    /// For whoever watches it.
    pub(super) fn watched(&self) -> Watched {
        let (driver, published) = (self.driver.clone(), self.published.clone());
        Watched { driver, monitor: self.plugin.monitor(), published }
    }

    /// What follows a round.
    pub(super) async fn look(&mut self) {
        self.notice.notify_one();
        self.pods.look_soon();
        self.plugin.look().await;
    }
}

/// Has the health of GPUs watched, by a thread that ends with the process; none where the devices are no GPUs.
fn watch_health(
    machine: &Arc<Machine>,
    options: &health::Options,
) -> Result<Option<watch::Receiver<health::Known>>, Failure> {
    let Pool::Gpus(_) = machine.pool() else { return Ok(None) };
    let node = machine.node();
    let (keeper, known) = health::Keeper::new(node.journal, node.boot, options.clone());
    let machine = Arc::clone(machine);
    let watch = move || {
        if let Pool::Gpus(gpus) = machine.pool() {
            keeper.run(gpus);
        }
    };
    let started = thread::Builder::new().name("health".to_owned()).spawn(watch);
    started.map_err(|error| Failure::new("FAILED", format!("threads: {error}")))?;
    Ok(Some(known))
}

fn effect(text: &str) -> Result<Effect, String> {
    match text {
        "NoSchedule" => Ok(Effect::NoSchedule),
        "NoExecute" => Ok(Effect::NoExecute),
        _ => Err("it is NoSchedule or NoExecute".to_owned()),
    }
}

/// A name that the API server would take for a node.
fn node_name(text: &str) -> Result<String, String> {
    match wrong_with(text) {
        None => Ok(text.to_owned()),
        Some(why) => Err(format!("it {why}")),
    }
}

/// A UID becomes a part of file names.
fn pod_uid(text: &str) -> Result<String, String> {
    match is_uid(text) {
        true => Ok(text.to_owned()),
        false => Err("it is no UID: at most 64 letters, digits and -".to_owned()),
    }
}
