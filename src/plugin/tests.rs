//! The plugin as the kubelet meets it: its sockets, on a simulated node, before an API server that is hostile.

mod api;
mod prepare;
mod report;
mod serve;
mod waits;
mod world;
