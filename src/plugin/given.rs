//! What a claim was given, as the kubelet is told.

use crate::{emit, journal::Entry};

/// A device that a claim was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Given {
    /// The requests that got it, without subrequest: two may have the same one in turns.
    pub requests: Vec<String>,
    /// Its pool.
    pub pool: String,
    /// Its name there.
    pub device: String,
    /// The CDI names: its own, and with a request's first device that of what its containers are told.
    pub cdi: Vec<String>,
    /// The ID of its share, where it is one.
    pub share: Option<String>,
}

// === impl Given ===

impl Given {
    /// The devices of a prepared claim, in the order of its allocation.
    pub(super) fn of(entry: &Entry) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        for device in &entry.devices {
            let request = device.request.split('/').next().unwrap_or_default().to_owned();
            let cdi = emit::cdi_name(entry, device);
            // A container with both requests names it once.
            if let Some(same) = all.iter_mut().find(|given| given.cdi.contains(&cdi)) {
                if !same.requests.contains(&request) {
                    same.requests.push(request);
                }
                continue;
            }
            let (pool, name) = (device.pool.clone(), device.device.clone());
            let share = device.share.as_ref().map(|share| share.id.clone());
            all.push(Self { requests: vec![request], pool, device: name, cdi: vec![cdi], share });
        }
        for told in emit::metadata(entry) {
            let first = all.iter_mut().find(|given| given.requests.contains(&told.request));
            if let Some(first) = first {
                first.cdi.push(told.cdi_name(entry));
            }
        }
        all
    }
}
