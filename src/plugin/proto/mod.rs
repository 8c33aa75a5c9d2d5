//! The protocols that the kubelet speaks, as code: generated from the .proto files beside it by
//! `make proto`, and held to them by a test.
#![allow(
    missing_docs,
    unused_qualifications,
    clippy::allow_attributes_without_reason,
    clippy::pedantic,
    clippy::doc_markdown,
    clippy::missing_errors_doc,
    clippy::iter_over_hash_type,
    reason = "generated"
)]

/// How a plugin registers: package `pluginregistration`, which is version 1.
pub mod registration {
    include!("generated/pluginregistration.rs");
}

/// How the kubelet has claims prepared, from Kubernetes 1.34.
pub mod dra_v1 {
    include!("generated/dra_v1.rs");
}

/// The same from Kubernetes 1.32: without shares.
pub mod dra_v1beta1 {
    include!("generated/dra_v1beta1.rs");
}

/// How the kubelet hears of devices' health, from Kubernetes 1.37.
pub mod health_v1 {
    include!("generated/health_v1.rs");
}

/// The same from Kubernetes 1.34.
pub mod health_v1alpha1 {
    include!("generated/health_v1alpha1.rs");
}
