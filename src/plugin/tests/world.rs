//! A world is a folder with a simulated node, an API server, and a plugin that serves both.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use clap::Parser;
use tokio::sync::watch;
use tonic::transport::Channel;

use super::api::Double;
use crate::{
    admin::{Places, PlacesArgs, User},
    api::Api,
    claim::Claim,
    health::Known,
    journal::Entry,
    plugin::{
        Consumers, Kubelet, Machine, Plugin,
        proto::dra_v1::{
            Claim as Reference, NodePrepareResourceResponse, NodePrepareResourcesRequest,
            NodeUnprepareResourcesRequest, dra_plugin_client::DraPluginClient,
        },
    },
    publish::Effect,
};

pub(super) const WHOLE: &str = "gpu-0000-1b-00";
pub(super) const SMALL: [&str; 3] =
    ["gpu-0000-43-00-1g10gb-0", "gpu-0000-43-00-1g10gb-1", "gpu-0000-43-00-1g10gb-2"];

const NODE: &str =
    "node = \"n\"\n[[gpu]]\nmodel = \"H100-80GB\"\n[[gpu]]\nmodel = \"H100-80GB\"\nmig = true\n";

#[derive(Parser)]
struct Args {
    #[command(flatten)]
    places: PlacesArgs,
}

/// Remembers what it is told.
#[derive(Debug, Default)]
pub(super) struct Told {
    pub(super) lines: Mutex<Vec<String>>,
    /// A claim at which it panics.
    pub(super) panics: Mutex<Option<String>>,
}

pub(super) struct World {
    dir: tempfile::TempDir,
    pub(super) api: Double,
    pub(super) told: Arc<Told>,
    /// What is known of the health of GPUs.
    pub(super) known: watch::Sender<Known>,
    pub(super) plugin: Option<Plugin>,
}

// === impl Told ===

impl Consumers for Told {
    fn prepared(&self, claim: &Claim, entry: &Entry) {
        let panics = self.panics.lock().unwrap().clone();
        assert_ne!(panics.as_ref(), Some(&claim.name), "the consumer fell over");
        self.lines.lock().unwrap().push(format!(
            "prepared {} {}",
            claim.title(),
            entry.devices.len()
        ));
    }

    fn unprepared(&self, _: &str, uid: &str) {
        self.lines.lock().unwrap().push(format!("unprepared {uid}"));
    }
}

// === impl World ===

#[expect(clippy::disallowed_methods, reason = "a test's own input")]
impl World {
    pub(super) async fn new() -> Self {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(dir.path().join("node.toml"), NODE).unwrap();
        let (api, port) = Double::start().await;
        let kubeconfig = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{{name: c, context: {{cluster: \
             c, user: u}}}}]\nusers: [{{name: u, user: {{}}}}]\nclusters: [{{name: c, cluster: {{server: \
             'http://127.0.0.1:{port}'}}}}]\n"
        );
        fs::write(dir.path().join("kubeconfig"), kubeconfig).unwrap();
        let mut known = Known::nothing(Effect::NoSchedule);
        known.seen = Some(Instant::now());
        let known = watch::channel(known).0;
        let mut world = Self { dir, api, told: Arc::default(), known, plugin: None };
        world.start(None).await;
        world
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(super) fn machine(&self) -> Machine {
        let mut line =
            vec!["t".to_owned(), format!("--gpus=sim:{}", self.path("node.toml").display())];
        for dir in ["cdi", "run", "state"] {
            line.push(format!("--{dir}-dir={}", self.path(dir).display()));
        }
        let args = Args::try_parse_from(line).unwrap();
        let user = User::default();
        let places = Places::new(args.places, &user).of_node(Some("worker-1".to_owned()));
        let opened = places.pool().unwrap();
        let kept = places.kept(opened.pool().driver()).unwrap();
        Machine::new(opened, kept, crate::admin::boot().unwrap())
    }

    /// Starts the plugin, as another one in this pod.
    pub(super) async fn start(&mut self, pod: Option<&str>) {
        let api = Api::new(Some(&self.path("kubeconfig"))).await.unwrap();
        let kubelet = Kubelet {
            node: "worker-1".to_owned(),
            dir: self.path("kubelet"),
            pod: pod.map(str::to_owned),
        };
        let told: Arc<Told> = Arc::clone(&self.told);
        let (machine, known) = (Arc::new(self.machine()), self.known.subscribe());
        let plugin = Plugin::start(kubelet, machine, api, told, Some(known)).await.unwrap();
        self.plugin = Some(plugin);
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.path("kubelet/plugins/gpu.divvy.dev/dra.sock")
    }

    pub(super) fn registration(&self) -> PathBuf {
        self.path("kubelet/plugins_registry/gpu.divvy.dev-reg.sock")
    }

    pub(super) async fn client(&self) -> DraPluginClient<Channel> {
        DraPluginClient::connect(format!("unix://{}", self.socket().display())).await.unwrap()
    }

    /// Prepares claims by name and UID in one call, each answer as it came.
    pub(super) async fn prepare_all(
        &self,
        claims: &[(&str, &str)],
    ) -> Vec<NodePrepareResourceResponse> {
        let request = NodePrepareResourcesRequest { claims: references(claims) };
        let answer = self.client().await.node_prepare_resources(request).await.unwrap();
        let mut answers = answer.into_inner().claims;
        claims.iter().map(|(_, uid)| answers.remove(*uid).unwrap()).collect()
    }

    /// The CDI names of one, or what went wrong.
    pub(super) async fn prepare(&self, name: &str, uid: &str) -> Result<Vec<String>, String> {
        let answer = self.prepare_all(&[(name, uid)]).await.remove(0);
        match answer.error.as_str() {
            "" => Ok(answer.devices.into_iter().flat_map(|device| device.cdi_device_ids).collect()),
            error => Err(error.to_owned()),
        }
    }

    pub(super) async fn unprepare(&self, name: &str, uid: &str) -> Result<(), String> {
        let request = NodeUnprepareResourcesRequest { claims: references(&[(name, uid)]) };
        let answer = self.client().await.node_unprepare_resources(request).await.unwrap();
        match answer.into_inner().claims.remove(uid).unwrap().error {
            error if error.is_empty() => Ok(()),
            error => Err(error),
        }
    }

    /// The names of the entries, and of the CDI specs, and partitions: what is there of claims.
    pub(super) fn left(&self) -> Vec<String> {
        let mut left = Vec::new();
        for dir in ["state/claims", "cdi", "run/claims"] {
            let listing = fs::read_dir(self.path(dir)).into_iter().flatten();
            left.extend(
                listing.map(|entry| format!("{dir}/{}", entry.unwrap().file_name().display())),
            );
        }
        let gpus = self.machine().pool().gpus().unwrap().inventory().unwrap().gpus;
        left.extend(gpus.iter().flat_map(|gpu| gpu.partitions()).map(|one| one.uuid.clone()));
        left.sort();
        left
    }

    pub(super) async fn soon(&self, what: &str, is: impl Fn(&Self) -> bool) {
        for _ in 0..1000 {
            if is(self) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{what} did not come");
    }
}

pub(super) fn references(claims: &[(&str, &str)]) -> Vec<Reference> {
    let reference = |(name, uid): &(&str, &str)| Reference {
        namespace: "team".to_owned(),
        uid: (*uid).to_owned(),
        name: (*name).to_owned(),
    };
    claims.iter().map(reference).collect()
}
