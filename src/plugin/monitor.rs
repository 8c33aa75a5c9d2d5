//! A monitor sees how the plugin is, from outside.

use std::sync::Arc;

use tokio::{sync::watch, task::spawn_blocking};

use crate::pool::Pool;

use super::{
    Devices, Machine, Metrics,
    metrics::{head, line},
};

/// How the plugin is.
#[derive(Debug, Clone)]
pub struct Monitor {
    pub(super) machine: Arc<Machine>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) registered: watch::Receiver<bool>,
    pub(super) devices: watch::Receiver<Arc<Devices>>,
}

// === impl Monitor ===

impl Monitor {
    /// Whether the kubelet has registered us.
    pub fn is_registered(&self) -> bool {
        *self.registered.borrow()
    }

    /// The metrics, as Prometheus reads them.
    pub async fn metrics(&self) -> String {
        let machine = Arc::clone(&self.machine);
        let entries = spawn_blocking(move || machine.listed()).await.ok().flatten();
        let mut text = String::new();
        self.metrics.write(&mut text);
        // One that is not known is left out.
        if let Some(entries) = entries {
            let name = "divvy_prepared_claims";
            head(&mut text, name, "gauge", "Claims in the journal");
            line(&mut text, name, "", &entries.to_string());
        }
        let (name, devices) = ("divvy_devices", self.devices.borrow().clone());
        head(&mut text, name, "gauge", "Devices of the node that could be given, by health");
        for (label, count) in devices.counts() {
            line(&mut text, name, &format!("health=\"{label}\""), &count.to_string());
        }
        if let Pool::Declared(file) = self.machine.pool() {
            let name = "divvy_devices_file_good";
            head(&mut text, name, "gauge", "Whether what is in the file of devices now counts");
            line(&mut text, name, "", &u8::from(file.is_good()).to_string());
        }
        let name = "divvy_registered";
        head(&mut text, name, "gauge", "Whether the kubelet has registered the driver");
        line(&mut text, name, "", &u8::from(self.is_registered()).to_string());
        text
    }
}
