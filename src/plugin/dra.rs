//! The kubelet's calls to prepare and to end claims, in both versions that it speaks. Each claim is answered for
//! itself: one that fails keeps no other.

use std::{collections::BTreeMap, future::Future};

use tonic::{Request, Response, Status, async_trait};

use super::{
    Claims,
    claims::{Outcome, Reference},
    given::Given,
    proto::{dra_v1 as v1, dra_v1beta1 as v1beta1},
};

/// Answers them.
#[derive(Debug, Clone)]
pub(super) struct Dra {
    claims: Claims,
}

/// The most claims of a call: a pod has no more.
const MAX_CLAIMS: usize = 1024;

// === impl Dra ===

impl Dra {
    pub(super) fn new(claims: Claims) -> Self {
        Self { claims }
    }

    /// All of them at once: a claim that waits keeps no other waiting.
    async fn all<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
        &self,
        claims: Vec<Reference>,
        act: impl Fn(Claims, Reference) -> F,
    ) -> Result<Vec<(String, T)>, Status> {
        if claims.len() > MAX_CLAIMS {
            return Err(Status::invalid_argument(format!("more than {MAX_CLAIMS} claims")));
        }
        let begin = |claim: Reference| {
            let uid = claim.uid.clone();
            (uid, tokio::spawn(act(self.claims.clone(), claim)))
        };
        // All have begun before the first is waited for.
        let begun: Vec<_> = claims.into_iter().map(begin).collect();
        let mut done = Vec::new();
        for (uid, task) in begun {
            let outcome = task.await.map_err(|error| Status::internal(error.to_string()))?;
            done.push((uid, outcome));
        }
        Ok(done)
    }

    async fn prepare(&self, claims: Vec<Reference>) -> Result<Vec<(String, Outcome)>, Status> {
        let prepare =
            |claims: Claims, claim: Reference| async move { claims.prepare(&claim).await };
        self.all(claims, prepare).await
    }

    /// What went wrong with each, in one line; empty where nothing did.
    async fn unprepare(&self, claims: Vec<Reference>) -> Result<Vec<(String, String)>, Status> {
        let unprepare = |claims: Claims, claim: Reference| async move {
            claims.unprepare(&claim.uid).await.map_or_else(|error| error.line(), |()| String::new())
        };
        self.all(claims, unprepare).await
    }
}

/// The service of one version of the API; `device` makes one of its devices.
macro_rules! version {
    ($api:ident, $device:expr) => {
        impl From<$api::Claim> for Reference {
            fn from($api::Claim { namespace, uid, name }: $api::Claim) -> Self {
                Self { namespace, name, uid }
            }
        }

        impl From<Outcome> for $api::NodePrepareResourceResponse {
            fn from(outcome: Outcome) -> Self {
                match outcome {
                    Ok(devices) => Self {
                        devices: devices.into_iter().map($device).collect(),
                        error: String::new(),
                    },
                    Err(error) => Self { devices: Vec::new(), error: error.line() },
                }
            }
        }

        #[async_trait]
        impl $api::dra_plugin_server::DraPlugin for Dra {
            async fn node_prepare_resources(
                &self,
                request: Request<$api::NodePrepareResourcesRequest>,
            ) -> Result<Response<$api::NodePrepareResourcesResponse>, Status> {
                let claims = request.into_inner().claims.into_iter().map(Reference::from);
                let done = self.prepare(claims.collect()).await?;
                let claims: BTreeMap<_, _> =
                    done.into_iter().map(|(uid, outcome)| (uid, outcome.into())).collect();
                Ok(Response::new($api::NodePrepareResourcesResponse { claims }))
            }

            async fn node_unprepare_resources(
                &self,
                request: Request<$api::NodeUnprepareResourcesRequest>,
            ) -> Result<Response<$api::NodeUnprepareResourcesResponse>, Status> {
                let claims = request.into_inner().claims.into_iter().map(Reference::from);
                let done = self.unprepare(claims.collect()).await?;
                let answer = |(uid, error)| (uid, $api::NodeUnprepareResourceResponse { error });
                let claims = done.into_iter().map(answer).collect();
                Ok(Response::new($api::NodeUnprepareResourcesResponse { claims }))
            }
        }
    };
}

version!(v1, |given: Given| v1::Device {
    request_names: given.requests,
    pool_name: given.pool,
    device_name: given.device,
    cdi_device_ids: given.cdi,
    share_id: given.share,
});
version!(v1beta1, |given: Given| v1beta1::Device {
    request_names: given.requests,
    pool_name: given.pool,
    device_name: given.device,
    cdi_device_ids: given.cdi,
});
