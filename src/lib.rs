//! The node side of divvy and its command line: a claim comes in, a GPU or a part of one is set up
//! for it, and a CDI spec and a record say how a container gets it.
//!
//! The modules in the order that data passes:
//!
//! ```text
//! claim ─▶ allocate ─▶ plan ─▶ prepare (gpu, mps, journal) ─▶ emit ─▶ /var/run/cdi, /run/divvy
//!                             ▲   ▲           ▲         │
//!                        plugin   admin       driver    ▼
//!                       (kubelet)                     consumers ─▶ records of pods
//! inventory, health ─▶ publish ─▶ api (API server)
//! ```
#![deny(unsafe_code)]

pub mod admin;
pub mod allocate;
pub mod api;
pub mod claim;
pub mod consumers;
pub mod daemon;
pub mod declared;
pub mod driver;
pub mod emit;
pub mod gpu;
pub mod health;
pub mod journal;
pub mod lock;
pub mod mps;
pub mod plan;
pub mod plugin;
pub mod pool;
pub mod prepare;
pub mod program;
pub mod publish;
pub mod quantity;
mod visitors;
pub mod webhook;
