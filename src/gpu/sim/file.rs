//! A node file describes a simulated node: TOML, every key below.
//!
//! ```toml
//! node = "h100x2"                      # the node's name, and so its pool's; "sim" when unset
//! driver = "580.65.06"                 # the driver's version, as shown
//! host-nodes = ["/dev/null"]           # what stands in for the driver's device nodes
//!
//! [[gpu]]                              # once for each kind of GPU, in the order of their slots
//! model = "H100-80GB"
//! count = 2                            # 1 when unset
//! mig = true                           # MIG mode on: given in partitions only; false when unset
//! ```

use std::path::Path;

use divvy_cdi::file::Trust;
use serde::Deserialize;

use crate::gpu::{GpuError, Model, model::MODELS};

/// What the file says.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct NodeConfig {
    #[serde(default = "default_node")]
    pub(super) node: String,
    #[serde(default = "default_driver")]
    pub(super) driver: String,
    #[serde(default = "default_host_nodes")]
    pub(super) host_nodes: Vec<String>,
    #[serde(rename = "gpu")]
    pub(super) gpus: Vec<GpuConfig>,
}

/// GPUs of one kind.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GpuConfig {
    #[serde(deserialize_with = "model")]
    pub(super) model: &'static Model,
    #[serde(default = "one")]
    pub(super) count: u8,
    #[serde(default)]
    pub(super) mig: bool,
}

const MAX_BYTES: usize = 64 << 10;
const MAX_GPUS: usize = 64;

// === impl NodeConfig ===

impl NodeConfig {
    pub(super) fn read(path: &Path) -> Result<Self, GpuError> {
        let bytes = divvy_cdi::file::read(path, MAX_BYTES, &Trust::of_process())?;
        let wrong = |message: String| GpuError::NodeFile { path: path.to_owned(), message };
        let text =
            std::str::from_utf8(&bytes).map_err(|_| wrong("is not UTF-8 text".to_owned()))?;
        let config: Self = toml::from_str(text).map_err(|error| {
            let line = error
                .span()
                .and_then(|span| text.get(..span.start))
                .map(|before| format!("line {}: ", 1 + before.matches('\n').count()));
            wrong(format!("{}{}", line.unwrap_or_default(), error.message()))
        })?;
        config.check().map_err(wrong)?;
        Ok(config)
    }

    fn check(&self) -> Result<(), String> {
        let gpus: usize = self.gpus.iter().map(|group| usize::from(group.count)).sum();
        if gpus > MAX_GPUS {
            return Err(format!("{gpus} GPUs are more than the {MAX_GPUS} of one node"));
        }
        if let Some(group) = self.gpus.iter().find(|g| g.mig && g.model.profiles.is_empty()) {
            return Err(format!("mig = true: {} has no MIG", group.model.key));
        }
        if self.host_nodes.is_empty() || self.host_nodes.iter().any(|path| !path.starts_with('/')) {
            return Err("host-nodes: at least one absolute path is needed".to_owned());
        }
        let name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
        if self.node.is_empty() || self.node.len() > 253 || !self.node.chars().all(name) {
            return Err(format!(
                "node = {:?}: lower case letters, digits, - and . only",
                self.node
            ));
        }
        Ok(())
    }
}

fn model<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<&'static Model, D::Error> {
    let key = String::deserialize(deserializer)?;
    Model::by_key(&key).ok_or_else(|| {
        let known = MODELS.iter().map(|model| model.key).collect::<Vec<_>>().join(", ");
        serde::de::Error::custom(format!("no model {key:?}; known are {known}"))
    })
}

fn default_node() -> String {
    "sim".to_owned()
}

fn default_driver() -> String {
    "580.65.06".to_owned()
}

/// Nodes that every Linux has, and that do nothing to it.
fn default_host_nodes() -> Vec<String> {
    ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"]
        .map(str::to_owned)
        .to_vec()
}

fn one() -> u8 {
    1
}
