//! Device nodes, real ones: this needs root.

use std::{io, path::Path};

use crate::model::{Inject, node_parts, run};

/// Makes the nodes of a vector below `root`.
pub(crate) fn make_all(inject: &Inject, root: &Path) -> io::Result<()> {
    inject.nodes.iter().try_for_each(|(name, node)| make(&root.join(name), node))
}

/// Makes a device node or FIFO as `c 1:3 0666` says.
pub(crate) fn make(path: &Path, node: &str) -> io::Result<()> {
    let path = path.to_str().expect("UTF-8");
    let (kind, major, minor, mode) = node_parts(node);
    if kind == "p" {
        run("mkfifo", &[path])?;
    } else {
        run("mknod", &[path, kind, major, minor])?;
    }
    run("chmod", &[mode, path])
}
