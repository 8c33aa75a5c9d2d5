//! What a spec is about to name must be on the host: a container that is given it would not start, and
//! say less.

use std::{io, path::Path};

use divvy_cdi::{
    host::Host,
    spec::{ContainerEdits, DeviceNode, DeviceType},
};

use super::DeclaredError;

/// Refuses edits whose device nodes or mount sources are not there. What a mount is of that is no
/// path of the host (tmpfs) is the runtime's to say, and so is a network interface: it moves into the
/// container.
pub(crate) fn check(
    device: &str,
    edits: &ContainerEdits,
    host: &dyn Host,
) -> Result<(), DeclaredError> {
    let gone = |what, path: &str, why| DeclaredError::Gone {
        device: device.to_owned(),
        what,
        path: path.to_owned(),
        why,
    };
    for node in edits.device_nodes.iter().filter(|node| !is_told(node)) {
        let path = node.host_path();
        let why = match host.node(Path::new(path)) {
            Ok(Some(_)) => continue,
            Ok(None) => "is none: a link to one is not followed, name the node itself",
            Err(error) => why(&error),
        };
        return Err(gone("device node", path, why));
    }
    for mount in edits.mounts.iter().filter(|mount| mount.is_bind()) {
        if let Err(error) = host.entry(Path::new(&mount.host_path)) {
            return Err(gone("mount source", &mount.host_path, why(&error)));
        }
    }
    Ok(())
}

/// A node whose numbers the file says: the host's is not looked at, as when it is injected.
fn is_told(node: &DeviceNode) -> bool {
    node.kind.is_some_and(|kind| kind == DeviceType::Fifo || node.major != 0)
}

fn why(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => "is not there",
        _ => "cannot be looked at",
    }
}
