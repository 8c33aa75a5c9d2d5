//! An offer is what can be published beside whole GPUs for one claim each: what the API server stores.

/// What may be published, where the node has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offer {
    /// GPUs in shares, several claims at once.
    pub shares: bool,
    /// Partitions, with the counters that say which fit beside each other.
    pub partitions: bool,
    /// Taints.
    pub taints: bool,
}

// === impl Offer ===

impl Default for Offer {
    /// All that Kubernetes 1.36 has.
    fn default() -> Self {
        Self { shares: true, partitions: true, taints: true }
    }
}
