//! A script says which calls are slow, hang or fail. It is read at every call, so it can be
//! replaced at any time.

use serde::{Deserialize, Serialize};

/// What happens to some calls. The first rule that fits counts.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Rule {
    /// The call's name: `nvmlDeviceGetName`; `*` is every call.
    pub call: String,
    /// UUID or PCI address of the GPU that it is about; any when unset.
    pub gpu: Option<String>,
    /// So many calls that fit are let pass before.
    pub skip: u64,
    /// So many calls are affected; all when unset.
    pub times: Option<u64>,
    /// Takes so much longer.
    pub delay_ms: u64,
    /// Does not come back until this rule is gone.
    pub hang: bool,
    /// Answers with this code.
    pub fail: Option<u32>,
    /// The process that made it is killed.
    pub kill: bool,
    /// Takes effect before it fails or kills.
    pub after: bool,
}

// === impl Rule ===

impl Rule {
    /// True when it is about this call.
    pub(crate) fn fits(&self, call: &str, gpu: &[&str]) -> bool {
        let about = self.gpu.as_deref().is_none_or(|wanted| gpu.contains(&wanted));
        about && (self.call == "*" || self.call == call)
    }
}
