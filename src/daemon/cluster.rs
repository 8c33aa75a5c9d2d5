//! A cluster is what a node can be one of: its kubelet calls, its API server is told what the node has.

use std::{path::PathBuf, sync::Arc, time::Duration};

use tokio::sync::{Notify, watch};

use super::http::{Place, Watched};
use crate::{
    admin::exit::Failure,
    api::Api,
    claim::{is_uid, wrong_with},
    consumers::Pods,
    plugin::{Kubelet, Machine, Plugin},
    pool::Pool,
    publish::{self, View},
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
        let pods = Pods::new(api.clone(), node.clone(), drivers.collect(), run, boot);
        let mut members = Vec::new();
        for machine in machines {
            let (machine, consumers) = (Arc::clone(machine), pods.clone());
            let driver = machine.pool().driver().to_owned();
            let plugin =
                Plugin::start(kubelet.clone(), Arc::clone(&machine), api.clone(), consumers);
            let plugin = plugin.await.map_err(|e| Failure::of(e.code(), &e))?;
            let (state, published) = watch::channel(publish::State::default());
            let notice = Arc::new(Notify::new());
            let options = publish::Options {
                driver: driver.clone(),
                node: node.clone(),
                beside_other_driver: cluster.beside_other_driver,
                every: LOOK,
                notice: Arc::clone(&notice),
            };
            let look = move || {
                machine.reload();
                let journal = machine.node().journal;
                match machine.pool() {
                    Pool::Gpus(gpus) => View::of(gpus, journal, Default::default()),
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
