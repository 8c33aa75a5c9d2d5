//! What is on the node: compared before a test and after it, so that nothing stays behind.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};
use divvy_fake_nvml::FakeHost;

use crate::driver::HOST;
use crate::node::Node;
use crate::pods::{BUNDLES, SOON};

/// Everything that a pod, a claim or the driver may leave behind, by a name for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot(BTreeMap<String, String>);

/// Folders whose files are counted by name.
const FOLDERS: [&str; 5] =
    ["/etc/cdi", "/run/cdi", "/run/divvy", "/var/lib/divvy", "/var/lib/kubelet/plugins"];
/// Locks stay, as many as there are GPUs and claims at once.
const LOCKS: &str = "/var/lib/divvy/locks";
/// How long nothing changes where nothing is on its way.
const STILL: Duration = Duration::from_millis(300);
/// The network's, which come and go with sandboxes: the kubelet ends those of earlier tests when it likes.
const PLUGINS: [&str; 3] = ["bridge", "host-local", "loopback"];
/// Folders with an entry for each pod, and for each container that runs.
const ENTRIES: [&str; 2] = ["/var/lib/kubelet/pods", BUNDLES];
/// What tests make in the default namespace.
const KINDS: &str = "pods,resourceclaims,resourceclaimtemplates";

// === impl Snapshot ===

impl Snapshot {
    /// What is there when nothing changes: what earlier tests have left to the kubelet may still be on its way out.
    pub fn settled(node: &mut Node) -> Result<Snapshot> {
        let mut last = Snapshot::take(node)?;
        node.wait("the node to settle", SOON, &[], |node| {
            std::thread::sleep(STILL);
            let now = Snapshot::take(node)?;
            let before = std::mem::replace(&mut last, now.clone());
            Ok((now == before).then_some(now))
        })
    }

    fn take(node: &Node) -> Result<Snapshot> {
        let mut found = BTreeMap::new();
        for folder in FOLDERS {
            files(&node.sandbox.path(folder), folder, &mut found)?;
        }
        for folder in ENTRIES {
            for entry in fs::read_dir(node.sandbox.path(folder)).into_iter().flatten().flatten() {
                let name = entry.file_name().to_string_lossy().into_owned();
                found.insert(format!("{folder}/{name}"), String::new());
            }
        }
        for line in node.sandbox.read("/proc/1/mountinfo")?.lines() {
            let at = line.split(' ').nth(4).unwrap_or_default();
            // A pod's user namespace: containerd's until the kubelet has it remove the sandbox, a minute later.
            if at.contains("/pinned-namespaces/") {
                continue;
            }
            *count(&mut found, format!("mount {at}")) += "|";
        }
        for name in processes(&node.sandbox.path("/proc"))? {
            *count(&mut found, format!("process {name}")) += "|";
        }
        if node.sandbox.exists(HOST) {
            let host = FakeHost::at(&node.sandbox.path(HOST));
            for mut gpu in host.state()?.gpus {
                for instance in &mut gpu.instances {
                    instance.serial = 0;
                    instance.compute.iter_mut().for_each(|compute| compute.serial = 0);
                }
                let slice = host.time_slice(&gpu.uuid)?;
                found.insert(format!("gpu {}", gpu.pci), format!("{gpu:?}, time slice {slice}"));
            }
        }
        Ok(Snapshot(found))
    }

    /// What is here and not there, or otherwise.
    fn beyond<'a>(&'a self, other: &'a Snapshot) -> impl Iterator<Item = String> + 'a {
        let differs = |(name, value): &(&String, &String)| other.0.get(*name) != Some(*value);
        self.0.iter().filter(differs).map(|(name, value)| format!("{name} {value}"))
    }
}

// === impl Node ===

impl Node {
    /// Deletes what a test has made, and waits until the node is as it was.
    pub fn come_clean(&mut self, before: &Snapshot) -> Result<()> {
        let delete = ["delete", KINDS, "--all", "--wait=false"];
        self.kubectl(&delete, "")?;
        // The next test's pods may have the same names.
        self.kubectl(&["delete", "events", "--all", "--wait=false"], "")?;
        self.wait("the node to be clean", SOON, &[], |node| {
            for kind in KINDS.split(',') {
                let group = if kind == "pods" { "api/v1" } else { "apis/resource.k8s.io/v1" };
                let left = node.api.list(&format!("/{group}/namespaces/default/{kind}"))?;
                if let Some(first) = left.first() {
                    bail!("{kind} {} is still there", first["metadata"]["name"]);
                }
            }
            let now = Snapshot::take(node)?;
            if now == *before {
                return Ok(Some(()));
            }
            let more: Vec<_> = now.beyond(before).map(|line| format!("+ {line}")).collect();
            let less: Vec<_> = before.beyond(&now).map(|line| format!("- {line}")).collect();
            bail!("\n{}", [more, less].concat().join("\n"))
        })
    }
}

fn count(found: &mut BTreeMap<String, String>, name: String) -> &mut String {
    found.entry(name).or_default()
}

/// All files below a folder.
fn files(dir: &Path, name: &str, found: &mut BTreeMap<String, String>) -> Result<()> {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = format!("{name}/{}", entry.file_name().to_string_lossy());
        if name == LOCKS {
            continue;
        }
        if entry.file_type()?.is_dir() {
            files(&entry.path(), &name, found)?;
        } else {
            found.insert(name, String::new());
        }
    }
    Ok(())
}

/// The names of the processes that run.
fn processes(proc: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(proc)?.flatten() {
        // One that has ended meanwhile is none.
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
        let Some((name, rest)) = stat.split_once(") ") else { continue };
        if !rest.starts_with('Z')
            && let Some((_, name)) = name.split_once(" (")
            && !PLUGINS.contains(&name)
        {
            found.push(name.to_owned());
        }
    }
    Ok(found)
}
