//! The plugin is the kubelet's side of the node: it registers, and answers NodePrepareResources,
//! NodeUnprepareResources and NodeWatchResources.

pub mod proto;
