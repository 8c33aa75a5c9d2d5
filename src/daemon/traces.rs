//! Traces say what the time of a claim goes into: a span for each prepare and unprepare, and one below it for
//! each of its parts, sent to an OpenTelemetry collector (OTLP by gRPC).

use std::{
    str::FromStr,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Duration,
};

use hyper::Uri;
use opentelemetry::{KeyValue, trace::TracerProvider};
use opentelemetry_otlp::{SpanExporter as Otlp, WithExportConfig};
use opentelemetry_sdk::{
    Resource,
    error::OTelSdkResult,
    trace::{SdkTracerProvider, SpanData, SpanExporter},
};
use tracing_subscriber::{Layer, Registry, filter::filter_fn};

use super::log::is_ours;
use crate::admin::exit::Failure;

/// Where a collector is: `http://HOST:PORT`.
#[derive(Debug, Clone)]
pub(super) struct Collector(String);

/// Sends spans, in the background.
#[derive(Debug)]
pub(super) struct Traces(SdkTracerProvider);

/// Sends spans, and says when a collector begins and ceases not to take them.
#[derive(Debug)]
struct Exporter {
    otlp: Otlp,
    collector: Collector,
    failing: AtomicBool,
}

/// How long the last spans may take at the end.
const LAST: Duration = Duration::from_secs(2);

// === impl Collector ===

impl FromStr for Collector {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let uri: Uri =
            text.parse().map_err(|error| format!("{error}: http://HOST:PORT is meant"))?;
        match (uri.scheme_str(), uri.port_u16(), uri.path()) {
            (Some("http"), Some(_), "" | "/") => Ok(Self(text.to_owned())),
            (Some("https"), ..) => {
                Err("spans are sent without TLS: have a collector on this node, and name \
                                        it as http://HOST:PORT"
                    .to_owned())
            }
            _ => Err("http://HOST:PORT is meant, as of an OTLP receiver by gRPC".to_owned()),
        }
    }
}

// === impl Traces ===

impl Traces {
    /// Begins to send to this collector what the layer takes in. Whether it is there is seen when something is sent.
    ///
    /// # Errors
    /// No client can be made for its address.
    pub(super) fn begin(
        collector: Collector,
        node: Option<&str>,
    ) -> Result<(Self, impl Layer<Registry> + use<>), Failure> {
        let otlp = Otlp::builder().with_tonic().with_endpoint(&collector.0).build();
        let otlp = otlp
            .map_err(|error| Failure::new("USAGE", format!("--traces {}: {error}", collector.0)))?;
        let resource = Resource::builder()
            .with_service_name("divvy-node")
            .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
            .with_attributes(node.map(|node| KeyValue::new("k8s.node.name", node.to_owned())))
            .build();
        let exporter = Exporter { otlp, collector, failing: AtomicBool::new(false) };
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_resource(resource)
            .build();
        let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("divvy"));
        Ok((Self(provider), layer.with_filter(filter_fn(is_ours))))
    }

    /// Sends what is left. The runtime must still be there.
    pub(super) fn end(self) {
        // Said by the exporter.
        let _unsent = self.0.shutdown_with_timeout(LAST);
    }
}

// === impl Exporter ===

impl SpanExporter for Exporter {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let count = batch.len();
        let sent = self.otlp.export(batch).await;
        let failed = self.failing.swap(sent.is_err(), Relaxed);
        let Collector(collector) = &self.collector;
        match &sent {
            Err(error) if !failed => tracing::warn!(
                "spans are lost: {collector} took none of {count}: {error}; is an OTLP receiver by gRPC there?"
            ),
            Ok(()) if failed => tracing::info!("{collector} takes spans again"),
            _ => {}
        }
        sent
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.otlp.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.otlp.set_resource(resource);
    }
}

#[cfg(test)]
mod tests;
