//! The requests for ResourceSlices, and for what is looked at before there are any. Objects are JSON as
//! the server has it: nothing that this build does not know gets lost on the way.

use http::{Method, Request};
use kube::core::WatchEvent;
use serde_json::{Value, json};
use tokio_stream::{Stream, StreamExt};

use super::{ANSWER, Api, ApiError, reports::JSON};

const SLICES: &str = "/apis/resource.k8s.io/v1/resourceslices";

/// How long the server lets a watch go on, in seconds: a connection may be dead and nobody says so, and until the
/// next watch nobody sees that slices were deleted.
pub const WATCH_SECONDS: u64 = 50;

// === impl Api ===

impl Api {
    /// The slices of a driver on a node, or of all drivers there, and the version of the list.
    ///
    /// # Errors
    /// As [`Self::claim`].
    pub async fn list_slices(
        &self,
        driver: Option<&str>,
        node: &str,
    ) -> Result<(Vec<Value>, String), ApiError> {
        let path = format!("{SLICES}?{}", selector(driver, node));
        let mut list = self.ask(Method::GET, &path, None).await?;
        let version = text(&list, "/metadata/resourceVersion");
        let items = list.get_mut("items").map(Value::take);
        let Some(Value::Array(items)) = items else { return Ok((Vec::new(), version)) };
        Ok((items, version))
    }

    /// What happens to those slices from a version on. The server ends it after [`WATCH_SECONDS`].
    ///
    /// # Errors
    /// As [`Self::claim`]; so has the stream.
    pub async fn watch_slices(
        &self,
        driver: &str,
        node: &str,
        version: &str,
    ) -> Result<impl Stream<Item = Result<WatchEvent<Value>, ApiError>> + use<>, ApiError> {
        let path = format!(
            "{SLICES}?watch=1&timeoutSeconds={WATCH_SECONDS}&resourceVersion={version}&{}",
            selector(Some(driver), node)
        );
        let (api, asked) = (self.clone(), format!("GET {path}"));
        let request = Request::get(&path).body(Vec::new());
        let request = request.map_err(|source| ApiError::Path { path, source })?;
        let events = tokio::time::timeout(ANSWER, self.client.request_events(request)).await;
        let events = self.answered(&asked, events)?;
        Ok(Box::pin(events).map(move |event| event.map_err(|error| api.failed(&asked, error))))
    }

    /// Makes a slice, or with `dry` shows what it would become.
    ///
    /// # Errors
    /// As [`Self::claim`].
    pub async fn create_slice(&self, slice: &Value, dry: bool) -> Result<Value, ApiError> {
        let path = if dry { format!("{SLICES}?dryRun=All") } else { SLICES.to_owned() };
        self.ask(Method::POST, &path, Some((JSON, slice))).await
    }

    /// Puts a slice in the place of the one with its name and version.
    ///
    /// # Errors
    /// As [`Self::claim`].
    pub async fn update_slice(&self, name: &str, slice: &Value) -> Result<Value, ApiError> {
        self.ask(Method::PUT, &format!("{SLICES}/{name}"), Some((JSON, slice))).await
    }

    /// Deletes a slice, if it is as it was seen. One that is gone is no error.
    ///
    /// # Errors
    /// As [`Self::claim`].
    pub async fn delete_slice(&self, name: &str, uid: &str, version: &str) -> Result<(), ApiError> {
        let seen = json!({ "preconditions": { "uid": uid, "resourceVersion": version } });
        match self.ask(Method::DELETE, &format!("{SLICES}/{name}"), Some((JSON, &seen))).await {
            Err(ApiError::Absent { .. }) => Ok(()),
            answer => answer.map(drop),
        }
    }

    /// The node of this name, if there is one.
    ///
    /// # Errors
    /// As [`Self::claim`].
    pub async fn node(&self, name: &str) -> Result<Option<Value>, ApiError> {
        match self.ask(Method::GET, &format!("/api/v1/nodes/{name}"), None).await {
            Err(ApiError::Absent { .. }) => Ok(None),
            answer => answer.map(Some),
        }
    }

    /// What the server says of its version: `major`, `minor`, `gitVersion`.
    ///
    /// # Errors
    /// As [`Self::claim`].
    pub async fn version(&self) -> Result<Value, ApiError> {
        self.ask(Method::GET, "/version", None).await
    }
}

fn selector(driver: Option<&str>, node: &str) -> String {
    let of_driver = driver.map(|driver| format!("%2Cspec.driver%3D{driver}")).unwrap_or_default();
    format!("fieldSelector=spec.nodeName%3D{node}{of_driver}")
}

fn text(value: &Value, pointer: &str) -> String {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
}
