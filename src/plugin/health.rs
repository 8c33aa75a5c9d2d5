//! Health is what the kubelet shows of devices in the status of their pods: the whole list at once, when
//! something changes, and as a heartbeat.

use std::{
    collections::BTreeMap,
    pin::Pin,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tokio::{
    sync::{mpsc, watch},
    time::{MissedTickBehavior, interval},
};
use tokio_stream::{Stream, StreamExt, wrappers::ReceiverStream};
use tonic::{Request, Response, Status, async_trait};

use super::proto::{health_v1 as v1, health_v1alpha1 as v1alpha1};
use crate::{declared::Declaration, gpu::Inventory, journal::Entry, pool::Stock};

/// What is known of every device, and the stream of it.
#[derive(Debug, Clone)]
pub(super) struct Health {
    devices: watch::Receiver<Arc<Devices>>,
    ending: watch::Receiver<bool>,
}

/// The devices of a node at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Devices {
    /// The pool that they are in.
    pool: String,
    /// Name, and what is wrong with it if something is; in order.
    devices: Vec<(String, Option<String>)>,
}

/// How often the kubelet is told what it knows.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// After how long it may take a device's health for unknown.
const STALE: i64 = 30;

// === impl Devices ===

impl Devices {
    /// The devices that there are, and those of prepared claims that are not there any more.
    pub(super) fn of(stock: &Stock, entries: &[Entry]) -> Self {
        match stock {
            Stock::Gpus(inventory) => Self::of_gpus(inventory, entries),
            Stock::Declared { node, declaration } => Self::of_declared(node, declaration, entries),
        }
    }

    fn of_declared(node: &str, declaration: &Declaration, entries: &[Entry]) -> Self {
        let there = declaration.devices.iter().map(|device| (device.published.name.clone(), None));
        let mut devices: BTreeMap<String, Option<String>> = there.collect();
        for device in entries.iter().flat_map(|entry| &entry.devices) {
            let gone = || Some("it is not declared any more".to_owned());
            devices.entry(device.device.clone()).or_insert_with(gone);
        }
        Self { pool: node.to_owned(), devices: devices.into_iter().collect() }
    }

    fn of_gpus(inventory: &Inventory, entries: &[Entry]) -> Self {
        let mut devices: Vec<(String, Option<String>)> =
            inventory.devices().map(|device| (device.name().to_string(), None)).collect();
        for device in entries.iter().flat_map(|entry| &entry.devices) {
            if devices.iter().any(|(name, _)| *name == device.device) {
                continue;
            }
            let wrong =
                match (inventory.fault_of(device.target.gpu()), inventory.gpu(device.target.gpu()))
                {
                    (Some(fault), _) => Some(fault.to_string()),
                    (None, Some(_)) => None,
                    (None, None) => Some("its GPU is not there any more".to_owned()),
                };
            devices.push((device.device.clone(), wrong));
        }
        devices.sort();
        Self { pool: inventory.node.clone(), devices }
    }

    /// How many of them are well, and how many are not.
    pub(super) fn counts(&self) -> [(&'static str, usize); 2] {
        let unhealthy = self.devices.iter().filter(|(_, wrong)| wrong.is_some()).count();
        [("healthy", self.devices.len() - unhealthy), ("unhealthy", unhealthy)]
    }

    /// None of them can be looked at, for this reason.
    pub(super) fn unseen(&self, why: &str) -> Self {
        let devices = self.devices.iter();
        let devices = devices.map(|(name, _)| (name.clone(), Some(why.to_owned()))).collect();
        Self { pool: self.pool.clone(), devices }
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
            devices.mark_unchanged();
            loop {
                // The first beat comes at once.
                tokio::select! {
                    _beat = beats.tick() => {}
                    Ok(()) = devices.changed() => {}
                    _ended = ending.wait_for(|ending| *ending) => return,
                    () = told.closed() => return,
                }
                let known = devices.borrow_and_update().clone();
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
                let device = |(name, wrong): &(String, Option<String>)| {
                    let health = match wrong {
                        None => $api::HealthStatus::Healthy,
                        Some(_) => $api::HealthStatus::Unhealthy,
                    };
                    $api::DeviceHealth {
                        device: Some($api::DeviceIdentifier {
                            pool_name: all.pool.clone(),
                            device_name: name.clone(),
                        }),
                        health: health.into(),
                        last_updated_time: now,
                        health_check_timeout_seconds: STALE,
                        message: wrong.clone().unwrap_or_default(),
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
