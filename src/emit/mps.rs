//! A client of MPS is a container that finds its control daemon's pipes, and shares its memory.

use divvy_cdi::spec::{ContainerEdits, Mount};

use crate::mps::{Access, PIPE_DIRECTORY, PIPE_IN_CONTAINER};

/// Makes a container a client.
pub(super) fn edit(access: &Access, edits: &mut ContainerEdits) {
    let mount = |host: &std::path::Path, path: &str, mode: &str| Mount {
        host_path: host.display().to_string(),
        container_path: path.to_owned(),
        options: [mode, "nosuid", "nodev", "noexec", "rbind", "rprivate"]
            .map(str::to_owned)
            .to_vec(),
        kind: Some("bind".to_owned()),
    };
    // Read-only, and the sockets in it work all the same: docs/mps.md.
    edits.mounts.push(mount(&access.pipe, PIPE_IN_CONTAINER, "ro"));
    edits.mounts.push(mount(&access.shm, "/dev/shm", "rw"));
    edits.env.push(format!("{PIPE_DIRECTORY}={PIPE_IN_CONTAINER}"));
    if let Some(bytes) = access.pinned_memory {
        // The daemon of a share has one device. It takes whole numbers of these, and 0 is none.
        let megabytes = (bytes >> 20).max(1);
        edits.env.push(format!("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0={megabytes}M"));
    }
}
