//! The requests that say what became of a claim: its status, and events.

use http::Method;
use serde_json::Value;

use super::{Api, ApiError};

/// What a body is.
pub(super) const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

// === impl Api ===

impl Api {
    /// Makes the status of a claim say this, as far as it is this driver's to say (server-side apply).
    ///
    /// # Errors
    /// As [`Self::claim`]; [`ApiError::Absent`] where there is no such claim.
    pub async fn apply_claim_status(
        &self,
        driver: &str,
        namespace: &str,
        name: &str,
        claim: &Value,
    ) -> Result<(), ApiError> {
        let path = format!(
            "/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/{name}/status\
             ?fieldManager={driver}&force=true"
        );
        self.ask(Method::PATCH, &path, Some((APPLY, claim))).await.map(drop)
    }

    /// Makes an event.
    ///
    /// # Errors
    /// As [`Self::claim`].
    pub async fn create_event(&self, namespace: &str, event: &Value) -> Result<(), ApiError> {
        let path = events(namespace);
        self.ask(Method::POST, &path, Some((JSON, event))).await.map(drop)
    }

    /// Changes an event.
    ///
    /// # Errors
    /// As [`Self::claim`]; [`ApiError::Absent`] where it is gone.
    pub async fn patch_event(
        &self,
        namespace: &str,
        name: &str,
        change: &Value,
    ) -> Result<(), ApiError> {
        let path = format!("{}/{name}", events(namespace));
        self.ask(Method::PATCH, &path, Some((MERGE, change))).await.map(drop)
    }
}

fn events(namespace: &str) -> String {
    format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events")
}
