//! Edits say in CDI's words what a container gets of files.

use std::{collections::BTreeSet, path::Path};

use divvy_cdi::{
    host::NodeKind,
    spec::{ContainerEdits, DeviceNode, DeviceType, Mount},
};

use super::{HookError, hook};
use crate::gpu::{Files, MountFile, MountKind, NodeFile};

/// Keeps NVIDIA's own runtime, where it is the low-level one, from adding every GPU.
pub(super) const VOID: &str = "NVIDIA_VISIBLE_DEVICES=void";

/// Whose edits they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    /// A claim's, for an engine that runs hooks: the hook mounts files, which is faster, and device nodes have the
    /// numbers that they have now. Where a container finds others, it does not start.
    Claim,
    /// A node's, which stay, for whoever reads them, hooks or not. A device node's numbers are those that it has when
    /// a container starts: the kernel gives some out anew at each boot and each load of the driver.
    Node,
}

/// The edits for `files`; `program` is the one that edits file systems.
pub(super) fn edits(
    mut files: Files,
    scope: Scope,
    program: &Path,
) -> Result<ContainerEdits, HookError> {
    let hooks = hook::edit(program, &mut files, scope)?.into_iter().collect();
    let gids: BTreeSet<u32> = files.nodes.iter().filter_map(group).collect();
    Ok(ContainerEdits {
        device_nodes: files.nodes.into_iter().map(|file| node(file, scope)).collect(),
        mounts: files.mounts.into_iter().map(mount).collect(),
        hooks,
        additional_gids: gids.into_iter().collect(),
        ..ContainerEdits::default()
    })
}

/// The group that a process must be in to open a node.
fn group(file: &NodeFile) -> Option<u32> {
    let everybody = file.node.mode & 0o006 == 0o006;
    (file.node.gid != 0 && !everybody).then_some(file.node.gid)
}

fn node(file: NodeFile, scope: Scope) -> DeviceNode {
    let kind = match file.node.kind {
        NodeKind::Block => DeviceType::Block,
        NodeKind::Char => DeviceType::Char,
        NodeKind::Fifo => DeviceType::Fifo,
    };
    let fixed = scope == Scope::Claim;
    let number = |number: u32| if fixed { i64::from(number) } else { 0 };
    let of_group = file.node.gid != 0;
    DeviceNode {
        host_path: (file.host_path != file.path).then_some(file.host_path),
        path: file.path,
        kind: fixed.then_some(kind),
        major: number(file.node.major),
        minor: number(file.node.minor),
        // Without these it would be the group of the container's process.
        file_mode: of_group.then_some(file.node.mode & 0o777),
        gid: of_group.then_some(file.node.gid),
        ..DeviceNode::default()
    }
}

fn mount(file: MountFile) -> Mount {
    let options: &[&str] = match file.kind {
        MountKind::File => &["ro", "nosuid", "nodev", "rbind", "rprivate"],
        // Who may connect to it still can.
        MountKind::Socket => &["ro", "nosuid", "nodev", "noexec", "rbind", "rprivate"],
    };
    Mount {
        host_path: file.host_path,
        container_path: file.path,
        options: options.iter().map(|&option| option.to_owned()).collect(),
        // runc tells a bind mount by its options; crun may crash on a mount without type.
        kind: Some("bind".to_owned()),
    }
}
