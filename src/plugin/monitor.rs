//! A monitor sees how the plugin is, from outside.

use std::sync::Arc;

use tokio::{sync::watch, task::spawn_blocking};

use super::{
    Devices, Machine, Metrics,
    metrics::{head, line},
};
use crate::{health::Known, pool::Pool};

/// How the plugin is.
#[derive(Debug, Clone)]
pub struct Monitor {
    pub(super) machine: Arc<Machine>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) registered: watch::Receiver<bool>,
    pub(super) devices: watch::Receiver<Arc<Devices>>,
    pub(super) known: Option<watch::Receiver<Known>>,
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
        match (self.machine.pool(), &self.known) {
            (Pool::Declared(file), _) => {
                let name = "divvy_devices_file_good";
                head(&mut text, name, "gauge", "Whether what is in the file of devices now counts");
                line(&mut text, name, "", &u8::from(file.is_good()).to_string());
            }
            (Pool::Gpus(_), Some(known)) => write_health(&mut text, &known.borrow()),
            (Pool::Gpus(_), None) => {}
        }
        let name = "divvy_registered";
        head(&mut text, name, "gauge", "Whether the kubelet has registered the driver");
        line(&mut text, name, "", &u8::from(self.is_registered()).to_string());
        text
    }
}

/// What ails GPUs, and what their driver reported of them.
fn write_health(text: &mut String, known: &Known) {
    let name = "divvy_gpu_ailments";
    head(text, name, "gauge", "What ails GPUs of the node, each 1");
    for health in &known.gpus {
        let gpu = health.gpu.clone().unwrap_or_else(|| health.pci.to_string());
        for cause in &health.causes {
            let labels = format!("gpu=\"{gpu}\",cause=\"{}\"", cause.name());
            line(text, name, &labels, "1");
        }
    }
    let name = "divvy_gpu_xids_total";
    head(text, name, "counter", "XIDs that the driver reported since the start");
    for ((gpu, xid), count) in &known.xids {
        line(text, name, &format!("gpu=\"{gpu}\",xid=\"{xid}\""), &count.to_string());
    }
    // Before the first look there is none.
    if let Some(seen) = known.seen {
        let name = "divvy_health_age_seconds";
        head(text, name, "gauge", "Seconds since the health of GPUs was last looked at");
        line(text, name, "", &seen.elapsed().as_secs().to_string());
    }
}
