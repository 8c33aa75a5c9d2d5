//! What runs as each container is created, and what the node side shares with it.

pub mod record;
