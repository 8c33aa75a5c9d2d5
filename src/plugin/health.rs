//! Health is what the kubelet shows of devices in the status of their pods: the whole list at once, when
//! something changes, and as a heartbeat.

use std::{
    collections::BTreeMap,
    pin::Pin,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use divvy_cdi::{host::ThisHost, problem::chain};
use tokio::{
    sync::{mpsc, watch},
    task::spawn_blocking,
    time::{Instant, MissedTickBehavior, interval, sleep, timeout},
};
use tokio_stream::{Stream, StreamExt, wrappers::ReceiverStream};
use tonic::{Request, Response, Status, async_trait};

use super::{
    Machine, Metrics,
    proto::{health_v1 as v1, health_v1alpha1 as v1alpha1},
};
use crate::{
    declared::{Declaration, DeclaredError},
    gpu::{Fault, FaultKind, Inventory},
    health::Known,
    journal::Entry,
    pool::Stock,
};

/// What is known of every device, and the stream of it.
#[derive(Debug, Clone)]
pub(super) struct Health {
    devices: watch::Receiver<Arc<Devices>>,
    ending: watch::Receiver<bool>,
}

/// The devices of a node at one moment.
#[derive(Debug, Clone, Default)]
pub struct Devices {
    /// The pool that they are in.
    pool: String,
    /// Names and how they are; in order.
    devices: Vec<(String, Condition)>,
    /// When they were looked at; none before they ever were.
    seen: Option<Instant>,
}

/// Who looks at devices.
pub(super) struct Looking {
    pub(super) machine: Arc<Machine>,
    pub(super) metrics: Arc<Metrics>,
    /// What is known of the health of GPUs, where the devices are such.
    pub(super) known: Option<watch::Receiver<Known>>,
    /// Told of what is seen.
    pub(super) devices: watch::Sender<Arc<Devices>>,
}

/// How a device is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Condition {
    Healthy,
    /// What is wrong with it, and what to do.
    Unhealthy(String),
    /// Nobody knows, for this reason.
    Unknown(String),
}

/// How often devices are looked at.
const LOOK: Duration = Duration::from_secs(5);
/// How often the kubelet is told what it knows.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// What was last looked at so long ago is not known any more.
const OLD: Duration = Duration::from_secs(25);
/// After how long it may take a device's health for unknown.
const STALE: i64 = 30;

// === impl Devices ===

impl Devices {
    /// The devices that there are, and those of prepared claims that are not there any more.
    fn of(stock: &Stock, entries: &[Entry], known: Option<&Known>) -> Self {
        match stock {
            Stock::Gpus(inventory) => Self::of_gpus(inventory, entries, known),
            Stock::Declared { node, declaration } => Self::of_declared(node, declaration, entries),
        }
    }

    /// What is declared is well while it is on the host: nobody knows more of it.
    fn of_declared(node: &str, declaration: &Declaration, entries: &[Entry]) -> Self {
        let there = declaration.devices.iter().map(|device| {
            let ill = |error: DeclaredError| Condition::Unhealthy(error.to_string());
            let condition = device.absence(&ThisHost).map_or(Condition::Healthy, ill);
            (device.published.name.clone(), condition)
        });
        let mut devices: BTreeMap<String, Condition> = there.collect();
        for device in entries.iter().flat_map(|entry| &entry.devices) {
            let gone = || Condition::Unhealthy("it is not declared any more".to_owned());
            devices.entry(device.device.clone()).or_insert_with(gone);
        }
        let devices = devices.into_iter().collect();
        Self { pool: node.to_owned(), devices, seen: Some(Instant::now()) }
    }

    fn of_gpus(inventory: &Inventory, entries: &[Entry], known: Option<&Known>) -> Self {
        let mut devices: Vec<(String, Condition)> = inventory
            .devices()
            .map(|device| (device.name().to_string(), Condition::of(&device.gpu().uuid, known)))
            .collect();
        for device in entries.iter().flat_map(|entry| &entry.devices) {
            if devices.iter().any(|(name, _)| *name == device.device) {
                continue;
            }
            let gpu = device.target.gpu();
            let condition = match (inventory.fault_of(gpu), inventory.gpu(gpu)) {
                (Some(fault), _) => Condition::from(fault),
                (None, Some(_)) => Condition::of(gpu, known),
                (None, None) => Condition::Unhealthy("its GPU is not there any more".to_owned()),
            };
            devices.push((device.device.clone(), condition));
        }
        devices.sort_by(|one, other| one.0.cmp(&other.0));
        Self { pool: inventory.node.clone(), devices, seen: Some(Instant::now()) }
    }

    /// How many of them are well, how many are not, and of how many nobody knows.
    pub(super) fn counts(&self) -> [(&'static str, usize); 3] {
        let count = |is: fn(&Condition) -> bool| {
            self.devices.iter().filter(|(_, condition)| is(condition)).count()
        };
        [
            ("healthy", count(|condition| matches!(condition, Condition::Healthy))),
            ("unhealthy", count(|condition| matches!(condition, Condition::Unhealthy(_)))),
            ("unknown", count(|condition| matches!(condition, Condition::Unknown(_)))),
        ]
    }

    /// None of them can be looked at, for this reason.
    fn unseen(&self, why: &str) -> Self {
        let unknown =
            |(name, _): &(String, Condition)| (name.clone(), Condition::Unknown(why.to_owned()));
        let devices = self.devices.iter().map(unknown).collect();
        Self { pool: self.pool.clone(), devices, seen: Some(Instant::now()) }
    }

    /// As they are to be told now: what was known long ago is not known.
    fn told(self: &Arc<Self>) -> Arc<Self> {
        match self.seen.map(|seen| seen.elapsed()).filter(|age| *age > OLD) {
            Some(age) => Arc::new(self.unseen(&format!(
                "not looked at for {} s: the driver does not answer",
                age.as_secs()
            ))),
            None => Arc::clone(self),
        }
    }
}

// === impl Looking ===

impl Looking {
    /// Keeps what is known of devices up to date, and tells of it, until the end.
    pub(super) async fn keep(mut self, mut ending: watch::Receiver<bool>) {
        loop {
            let look = self.look();
            let seen = tokio::select! {
                seen = look => seen,
                _ended = ending.wait_for(|ending| *ending) => return,
            };
            if let Some(seen) = seen {
                self.devices.send_if_modified(|devices| {
                    let differs = devices.seen.is_none()
                        || (&devices.pool, &devices.devices) != (&seen.pool, &seen.devices);
                    *devices = Arc::new(seen);
                    differs
                });
            }
            tokio::select! {
                () = self.news() => {}
                _ended = ending.wait_for(|ending| *ending) => return,
            }
        }
    }

    /// Waits for news of the health of GPUs, or until it is time to look all the same.
    async fn news(&mut self) {
        if let Some(known) = &mut self.known
            && !matches!(timeout(LOOK, known.changed()).await, Ok(Err(_)))
        {
            return;
        }
        // Whoever knew has ended, and what was known gets old; or there is nothing to be known.
        sleep(LOOK).await;
    }

    /// Looks at the devices; none where that fell over.
    async fn look(&mut self) -> Option<Devices> {
        let (machine, metrics) = (Arc::clone(&self.machine), Arc::clone(&self.metrics));
        let before = self.devices.borrow().clone();
        let known = self.known.as_mut().map(|known| known.borrow_and_update().clone());
        let look = spawn_blocking(move || match machine.pool().look() {
            Ok(stock) => {
                if let Stock::Gpus(inventory) = &stock {
                    metrics.saw(inventory);
                }
                Devices::of(&stock, &machine.entries().unwrap_or_default(), known.as_ref())
            }
            Err(error) => before.unseen(&chain(&error)),
        });
        look.await.ok()
    }
}

// === impl Condition ===

impl Condition {
    /// How the devices of a GPU are that answers.
    fn of(gpu: &str, known: Option<&Known>) -> Self {
        // Nobody looks at their health: that they answer is all there is.
        let Some(known) = known else { return Self::Healthy };
        let old = known.seen.is_none_or(|seen| seen.elapsed() > OLD);
        match (known.of(gpu).and_then(|health| health.says()), old) {
            (Some(says), _) => Self::Unhealthy(says),
            (None, false) => Self::Healthy,
            (None, true) => Self::Unknown(match &known.trouble {
                Some(why) => why.clone(),
                None => "its health was not looked at of late".to_owned(),
            }),
        }
    }
}

impl From<&Fault> for Condition {
    fn from(fault: &Fault) -> Self {
        match fault.kind {
            FaultKind::Silent { .. } => Self::Unknown(fault.to_string()),
            FaultKind::Lost | FaultKind::Failed { .. } => Self::Unhealthy(fault.to_string()),
        }
    }
}

// === impl Health ===

impl Health {
    pub(super) fn new(
        devices: watch::Receiver<Arc<Devices>>,
        ending: watch::Receiver<bool>,
    ) -> Self {
        Self { devices, ending }
    }

    /// What is known now, whenever that changes, and every 10 s; ends with us.
    fn stream(&self) -> ReceiverStream<Arc<Devices>> {
        // One that is not read is behind by one list, and no more are kept for it.
        let (told, stream) = mpsc::channel(1);
        let Self { mut devices, mut ending } = self.clone();
        tokio::spawn(async move {
            let mut beats = interval(HEARTBEAT);
            beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
            tokio::select! {
                // A list without a device would say that there is none.
                looked = devices.wait_for(|devices| devices.seen.is_some()) => {
                    if looked.is_err() {
                        return;
                    }
                }
                _ended = ending.wait_for(|ending| *ending) => return,
                () = told.closed() => return,
            }
            loop {
                // The first beat comes at once.
                tokio::select! {
                    _beat = beats.tick() => {}
                    Ok(()) = devices.changed() => {}
                    _ended = ending.wait_for(|ending| *ending) => return,
                    () = told.closed() => return,
                }
                let known = devices.borrow_and_update().told();
                tokio::select! {
                    sent = told.send(known) => if sent.is_err() { return },
                    _ended = ending.wait_for(|ending| *ending) => return,
                }
            }
        });
        ReceiverStream::new(stream)
    }
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

/// The same message in both versions of the API, and the service that streams it.
macro_rules! version {
    ($api:ident) => {
        impl From<&Devices> for $api::NodeWatchResourcesResponse {
            fn from(all: &Devices) -> Self {
                let now = now();
                let device = |(name, condition): &(String, Condition)| {
                    let (health, message) = match condition {
                        Condition::Healthy => ($api::HealthStatus::Healthy, ""),
                        Condition::Unhealthy(why) => ($api::HealthStatus::Unhealthy, why.as_str()),
                        Condition::Unknown(why) => ($api::HealthStatus::Unknown, why.as_str()),
                    };
                    $api::DeviceHealth {
                        device: Some($api::DeviceIdentifier {
                            pool_name: all.pool.clone(),
                            device_name: name.clone(),
                        }),
                        health: health.into(),
                        last_updated_time: now,
                        health_check_timeout_seconds: STALE,
                        message: message.to_owned(),
                    }
                };
                Self { devices: all.devices.iter().map(device).collect() }
            }
        }

        #[async_trait]
        impl $api::dra_resource_health_server::DraResourceHealth for Health {
            type NodeWatchResourcesStream = Pin<
                Box<dyn Stream<Item = Result<$api::NodeWatchResourcesResponse, Status>> + Send>,
            >;

            async fn node_watch_resources(
                &self,
                _: Request<$api::NodeWatchResourcesRequest>,
            ) -> Result<Response<Self::NodeWatchResourcesStream>, Status> {
                let stream = self.stream().map(|devices| Ok(devices.as_ref().into()));
                Ok(Response::new(Box::pin(stream)))
            }
        }
    };
}

version!(v1);
version!(v1alpha1);
