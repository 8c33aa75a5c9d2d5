//! MPS, as real processes: NVIDIA's control daemon is stood in for by this program under its name,
//! which speaks its protocol.

macro_rules! world {
    () => {
        match World::new() {
            Ok(world) => world,
            Err(why) => return Outcome::Skipped(why),
        }
    };
}

mod claim;
mod daemon;
mod host;
mod service;

use super::Test;

pub(crate) use daemon::starter;

pub(crate) fn tests() -> Vec<Test> {
    [daemon::tests(), claim::tests()].into_iter().flatten().collect()
}
