//! Registration tells the kubelet who we are, and hears from it whether it will call.

use std::path::Path;

use tokio::sync::watch;
use tonic::{Request, Response, Status, async_trait};

use super::{
    PluginError,
    proto::registration::{
        InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
        registration_server::Registration,
    },
};
use crate::admin::{exit::Failure, tell};

/// Answers the kubelet's questions about this plugin, out of memory: it waits for one second.
#[derive(Debug, Clone)]
pub(super) struct Registrar {
    info: PluginInfo,
    registered: watch::Sender<bool>,
}

/// The services that we have. The kubelet takes the first of each kind that it knows.
const SERVICES: [&str; 4] =
    ["v1.DRAPlugin", "v1beta1.DRAPlugin", "v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth"];

// === impl Registrar ===

impl Registrar {
    /// For the plugin of this driver that serves this socket; `registered` says whether the kubelet took it.
    pub(super) fn new(driver: &str, dra: &Path, registered: watch::Sender<bool>) -> Self {
        let info = PluginInfo {
            r#type: "DRAPlugin".to_owned(),
            name: driver.to_owned(),
            endpoint: dra.display().to_string(),
            supported_versions: SERVICES.map(str::to_owned).to_vec(),
        };
        Self { info, registered }
    }
}

#[async_trait]
impl Registration for Registrar {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(self.info.clone()))
    }

    async fn notify_registration_status(
        &self,
        request: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        let RegistrationStatus { plugin_registered, error } = request.into_inner();
        self.registered.send_replace(plugin_registered);
        if plugin_registered {
            tell(&format!("registered with the kubelet as {}\n", self.info.name));
        } else {
            // It asks again on its own.
            let error = PluginError::Refused { error };
            tell(&Failure::of(error.code(), &error).to_string());
        }
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}
