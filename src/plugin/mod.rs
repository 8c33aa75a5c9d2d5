//! The plugin is the kubelet's side of the node: it registers, and answers NodePrepareResources,
//! NodeUnprepareResources and NodeWatchResources.

mod attempt;
mod claims;
mod door;
mod dra;
mod error;
mod given;
mod gone;
mod health;
mod machine;
mod metrics;
mod monitor;
pub mod proto;
mod reframe;
mod registration;
mod report;
mod socket;
mod timed;

use std::{path::PathBuf, sync::Arc, time::Duration};

use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{Instant, timeout_at},
};

use crate::{admin::tell, api::Api, health::Known};
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
use report::Reports;
use socket::Socket;

/// A plugin that serves.
#[derive(Debug)]
pub struct Plugin {
    claims: Claims,
    gone: Gone,
    devices: watch::Receiver<Arc<Devices>>,
    known: Option<watch::Receiver<Known>>,
    registered: watch::Receiver<bool>,
    leaving: watch::Sender<bool>,
    ending: watch::Sender<bool>,
    registration: JoinHandle<()>,
    calls: JoinHandle<()>,
}

/// Where the kubelet is, and who we are to it.
#[derive(Debug, Clone)]
pub struct Kubelet {
    /// The name of its node.
    pub node: String,
    /// Its directory.
    pub dir: PathBuf,
    /// The UID of the pod that we are in, where we are in one.
    pub pod: Option<String>,
}

/// How long all of the end may take: what the kubelet waits for what it asked, and less than the chart lets the pod live on.
const END: Duration = Duration::from_secs(if cfg!(test) { 2 } else { 45 });

// === impl Plugin ===

impl Plugin {
    /// Serves the kubelet: calls first, then registration, which leads to them. `known` is there where the devices
    /// are GPUs.
    ///
    /// # Errors
    /// [`PluginError`] when a socket cannot be made.
    pub async fn start(
        kubelet: Kubelet,
        machine: Arc<Machine>,
        api: Api,
        consumers: Arc<dyn Consumers>,
        known: Option<watch::Receiver<Known>>,
    ) -> Result<Self, PluginError> {
        let driver = machine.pool().driver().to_owned();
        let paths = Paths::of(&kubelet.dir, &driver, kubelet.pod.as_deref())?;
        let calls = Socket::bind(&paths.dra).await?;
        let registration = Socket::bind(&paths.registration).await?;
        Paths::sweep(&kubelet.dir, &driver).await;
        let (leaving, left) = watch::channel(false);
        let (ending, ended) = watch::channel(false);
        let (devices, seen) = watch::channel(Arc::default());
        let (registered, is_registered) = watch::channel(false);
        let metrics: Arc<Metrics> = Arc::default();
        let (reports, courier) =
            Reports::new(api.clone(), &driver, &kubelet.node, Arc::clone(&metrics));
        // It ends with the last of those who leave any.
        tokio::spawn(courier.run());
        let looking = health::Looking {
            machine: Arc::clone(&machine),
            metrics: Arc::clone(&metrics),
            known: known.clone(),
            devices,
        };
        tokio::spawn(looking.keep(ended.clone()));
        let claims = Claims::new(machine, api, consumers, (reports, metrics), ended.clone());
        let services = Services {
            registrar: Registrar::new(&driver, &paths.dra, registered),
            dra: Dra::new(claims.clone()),
            health: Health::new(seen.clone(), ended.clone()),
        };
        Ok(Self {
            calls: tokio::spawn(door::serve(calls, services.clone(), ended)),
            registration: tokio::spawn(door::serve(registration, services, left)),
            gone: Gone::new(claims.clone(), kubelet.dir),
            claims,
            devices: seen,
            known,
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
            devices: self.devices.clone(),
            known: self.known.clone(),
        }
    }

    /// Looks after what no call is about: claims that the kubelet has forgotten.
    pub async fn look(&mut self) {
        // What a round ended is free.
        self.claims.0.freed.send_modify(|count| *count += 1);
        for line in self.gone.end().await {
            tell(&line);
        }
    }

    /// Ends, after what is under way: the kubelet breaks off the calls of an instance whose registration is gone, and
    /// asks the next one from the moment that it has it. What lasts longer is said, and left to whoever comes next.
    pub async fn end(self) {
        let until = Instant::now() + END;
        let _late = self.claims.finish(until).await;
        self.leaving.send_replace(true);
        // Both report nothing.
        let _left = timeout_at(until, self.registration).await;
        self.ending.send_replace(true);
        let _ended = timeout_at(until, self.calls).await;
        for uid in self.claims.finish(until).await {
            tell(&format!(
                "claim with UID {uid}: is still being prepared or ended after {} s, and is left to the \
                 next divvy-node\n",
                END.as_secs()
            ));
        }
    }
}

#[cfg(test)]
mod tests;
