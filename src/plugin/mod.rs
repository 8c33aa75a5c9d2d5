//! The plugin is the kubelet's side of the node: it registers, and answers NodePrepareResources,
//! NodeUnprepareResources and NodeWatchResources.

mod attempt;
mod claims;
mod door;
mod dra;
mod error;
mod gone;
mod health;
mod machine;
mod metrics;
mod monitor;
pub mod proto;
mod reframe;
mod registration;
mod socket;

use std::{path::PathBuf, sync::Arc};

use tokio::{
    sync::watch,
    task::{JoinHandle, spawn_blocking},
};

use crate::{admin::tell, api::Api};
pub use claims::{Claims, Consumers, Reference};
pub use error::PluginError;
pub use health::Devices;
pub use machine::Machine;
pub use metrics::Metrics;
pub use monitor::Monitor;
pub use socket::Paths;

use claims::Shared;
use door::Services;
use dra::Dra;
use gone::Gone;
use health::Health;
use registration::Registrar;
use socket::Socket;

/// A plugin that serves.
#[derive(Debug)]
pub struct Plugin {
    claims: Claims,
    gone: Gone,
    devices: watch::Sender<Arc<Devices>>,
    registered: watch::Receiver<bool>,
    leaving: watch::Sender<bool>,
    ending: watch::Sender<bool>,
    registration: JoinHandle<()>,
    calls: JoinHandle<()>,
}

/// Where the kubelet is, and who we are to it.
#[derive(Debug, Clone)]
pub struct Kubelet {
    /// Its directory.
    pub dir: PathBuf,
    /// The UID of the pod that we are in, where we are in one.
    pub pod: Option<String>,
}

// === impl Plugin ===

impl Plugin {
    /// Serves the kubelet: calls first, then registration, which leads to them.
    ///
    /// # Errors
    /// [`PluginError`] when a socket cannot be made.
    pub async fn start(
        kubelet: Kubelet,
        machine: Arc<Machine>,
        api: Api,
        consumers: Arc<dyn Consumers>,
    ) -> Result<Self, PluginError> {
        let paths = Paths::of(&kubelet.dir, kubelet.pod.as_deref())?;
        let calls = Socket::bind(&paths.dra).await?;
        let registration = Socket::bind(&paths.registration).await?;
        Paths::sweep(&kubelet.dir).await;
        let (leaving, left) = watch::channel(false);
        let (ending, ended) = watch::channel(false);
        let (devices, seen) = watch::channel(Arc::default());
        let (registered, is_registered) = watch::channel(false);
        let claims = Claims::new(machine, api, consumers, ended.clone());
        let services = Services {
            registrar: Registrar::new(&paths.dra, registered),
            dra: Dra::new(claims.clone()),
            health: Health::new(seen, ended.clone()),
        };
        Ok(Self {
            calls: tokio::spawn(door::serve(calls, services.clone(), ended)),
            registration: tokio::spawn(door::serve(registration, services, left)),
            gone: Gone::new(claims.clone(), kubelet.dir),
            claims,
            devices,
            registered: is_registered,
            leaving,
            ending,
        })
    }

    /// For whoever watches it.
    pub fn monitor(&self) -> Monitor {
        let Shared { machine, metrics, .. } = self.claims.0.as_ref();
        Monitor {
            machine: Arc::clone(machine),
            metrics: Arc::clone(metrics),
            registered: self.registered.clone(),
            devices: self.devices.subscribe(),
        }
    }

    /// Looks after what no call is about: what the kubelet hears of devices' health, and claims that it has
    /// forgotten.
    pub async fn look(&mut self) {
        let machine = Arc::clone(&self.claims.0.machine);
        let before = self.devices.borrow().clone();
        let seen = spawn_blocking(move || match machine.gpus().inventory() {
            Ok(inventory) => Devices::of(&inventory, &machine.entries().unwrap_or_default()),
            Err(error) => before.unseen(&divvy_cdi::problem::chain(&error)),
        });
        if let Ok(seen) = seen.await {
            self.devices.send_if_modified(|devices| {
                let differs = **devices != seen;
                *devices = Arc::new(seen);
                differs
            });
        }
        // What a round ended is free.
        self.claims.0.freed.send_modify(|count| *count += 1);
        for line in self.gone.end().await {
            tell(&line);
        }
    }

    /// Ends: the kubelet is told first, and gets the answers to what it asked before.
    pub async fn end(self) {
        self.leaving.send_replace(true);
        // Both report nothing.
        let _left = self.registration.await;
        self.ending.send_replace(true);
        let _ended = self.calls.await;
        self.claims.finish().await;
    }
}

#[cfg(test)]
mod tests;
