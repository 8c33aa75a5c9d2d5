//! The host of a vector, for which nobody has to be root.

use std::{
    io,
    path::{Path, PathBuf},
};

use divvy_cdi::host::{Entry, Host, Node, NodeKind, ThisHost};

use crate::model::{self, Ask};

/// A host whose nodes are those of a vector; everything else is this machine's.
pub(crate) struct VectorHost {
    nodes: Vec<(PathBuf, Node)>,
}

// === impl VectorHost ===

impl VectorHost {
    pub(crate) fn of(ask: &Ask, root: &Path) -> Self {
        let nodes = match ask {
            Ask::Inject(inject) => {
                inject.nodes.iter().map(|(name, text)| (root.join(name), node(text))).collect()
            }
            _ => Vec::new(),
        };
        Self { nodes }
    }
}

impl Host for VectorHost {
    fn node(&self, path: &Path) -> io::Result<Option<Node>> {
        match self.nodes.iter().find(|(known, _)| known == path) {
            Some((_, node)) => Ok(Some(*node)),
            None => ThisHost.node(path),
        }
    }

    fn entry(&self, path: &Path) -> io::Result<Entry> {
        ThisHost.entry(path)
    }
}

fn node(text: &str) -> Node {
    let (kind, major, minor, mode) = model::node_parts(text);
    let kind = match kind {
        "b" => NodeKind::Block,
        "c" => NodeKind::Char,
        _ => NodeKind::Fifo,
    };
    let number = |text: &str| text.parse().expect("a number");
    let mode = u32::from_str_radix(mode, 8).expect("a mode");
    Node { kind, major: number(major), minor: number(minor), mode, uid: 0, gid: 0 }
}
