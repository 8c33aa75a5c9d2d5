//! The cgroup of a sandbox: a group of its own in every hierarchy, which is the root of what the sandbox sees.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::mount::{MsFlags, mount};
use nix::sched::CloneFlags;
use serde::{Deserialize, Serialize};

/// Which cgroup version engines find at /sys/fs/cgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum View {
    V1,
    V2,
}

/// A group of one name at the top of each hierarchy that the machine has mounted.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Cgroup {
    name: String,
    hierarchies: Vec<Hierarchy>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Hierarchy {
    at: PathBuf,
    /// Controllers or `name=…`; none for version 2.
    options: Option<String>,
}

pub const PREFIX: &str = "divvy-engines-";
/// The group inside the sandbox's that processes are in: version 2 allows none in one with controllers.
const LEAF: &str = "agent";

// === impl View ===

impl View {
    pub const ALL: [View; 2] = [View::V1, View::V2];

    pub fn name(self) -> &'static str {
        match self {
            View::V1 => "v1",
            View::V2 => "v2",
        }
    }

    /// Why this machine cannot show this view, with a controller that is needed in version 1.
    pub fn missing(self, controller: &str) -> Result<Option<String>> {
        let has = hierarchies()?.iter().any(|hierarchy| match (self, &hierarchy.options) {
            (View::V1, Some(options)) => options.split(',').any(|option| option == controller),
            (View::V2, None) => true,
            _ => false,
        });
        Ok((!has).then(|| match self {
            View::V1 => format!("this machine has no cgroup v1 hierarchy of {controller}"),
            View::V2 => "this machine has no cgroup v2 hierarchy".to_owned(),
        }))
    }

    /// The view in which the resource controllers are: what containerd and the kubelet need.
    pub fn with_controllers() -> Result<View> {
        Ok(if View::V1.missing("memory")?.is_none() { View::V1 } else { View::V2 })
    }
}

// === impl Cgroup ===

impl Cgroup {
    pub fn create(name: &str) -> Result<Cgroup> {
        let cgroup = Cgroup { name: format!("{PREFIX}{name}"), hierarchies: hierarchies()? };
        for hierarchy in &cgroup.hierarchies {
            let dir = hierarchy.at.join(&cgroup.name);
            if hierarchy.options.is_none() {
                enable_controllers(&hierarchy.at)?;
            }
            fs::create_dir(&dir).with_context(|| format!("mkdir {}", dir.display()))?;
            // A new cpuset is empty, and nothing can be put into it.
            for file in ["cpuset.cpus", "cpuset.mems"] {
                if hierarchy.options.is_some() && hierarchy.at.join(file).exists() {
                    write(&dir.join(file), fs::read_to_string(hierarchy.at.join(file))?.trim())?;
                }
            }
        }
        Ok(cgroup)
    }

    /// Moves the calling process into it.
    pub fn join(&self, _view: View) -> Result<()> {
        for hierarchy in &self.hierarchies {
            write(&hierarchy.at.join(&self.name).join("cgroup.procs"), "0")?;
        }
        Ok(())
    }

    /// Clears the top of the calling process's view of processes, so that engines can enable controllers there.
    pub fn leave_root(&self, view: View) -> Result<()> {
        for hierarchy in self.hierarchies.iter().filter(|hierarchy| hierarchy.options.is_none()) {
            let dir = hierarchy.at.join(&self.name);
            fs::create_dir(dir.join(LEAF))?;
            write(&dir.join(LEAF).join("cgroup.procs"), "0")?;
            if view == View::V2 {
                enable_controllers(&dir)?;
            }
        }
        Ok(())
    }

    /// Mounts the view at `at`, which shows nothing above this group to a process in its namespace.
    pub fn mount(&self, view: View, at: &Path) -> Result<()> {
        if view == View::V2 {
            return mount(Some("cgroup2"), at, Some("cgroup2"), MsFlags::empty(), None::<&str>)
                .context("mount cgroup2");
        }
        mount(Some("tmpfs"), at, Some("tmpfs"), MsFlags::empty(), Some("mode=755"))?;
        for Hierarchy { at: outside, options } in &self.hierarchies {
            let (Some(name), Some(options)) = (outside.file_name(), options) else { continue };
            let target = at.join(name);
            fs::create_dir(&target)?;
            mount(
                Some("cgroup"),
                &target,
                Some("cgroup"),
                MsFlags::empty(),
                Some(options.as_str()),
            )
            .with_context(|| format!("mount -t cgroup -o {options}"))?;
        }
        Ok(())
    }

    /// Removes it and all below it, when its last process has ended.
    pub fn remove(&self) -> Result<()> {
        let start = Instant::now();
        loop {
            match self
                .hierarchies
                .iter()
                .try_for_each(|hierarchy| remove_tree(&hierarchy.at.join(&self.name)))
            {
                Ok(()) => return Ok(()),
                Err(error) if start.elapsed() > Duration::from_secs(5) => return Err(error),
                Err(_) => std::thread::sleep(Duration::from_millis(10)),
            }
        }
    }
}

/// Mounts, for this process alone, the version 1 hierarchies that a machine with version 2 alone can still have. The
/// temporary folder is what they are mounted on. To be called before there are threads.
pub fn complete() -> Result<Option<tempfile::TempDir>> {
    if View::V1.missing("devices")?.is_none() {
        return Ok(None);
    }
    let base = super::folder()?;
    nix::sched::unshare(CloneFlags::CLONE_NEWNS)?;
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mount(None::<&str>, "/", None::<&str>, private, None::<&str>)?;
    mount(Some("tmpfs"), base.path(), Some("tmpfs"), MsFlags::empty(), None::<&str>)?;
    for (name, options) in [
        ("devices", "devices"),
        ("freezer", "freezer"),
        ("cpuset", "cpuset"),
        ("systemd", "none,name=systemd"),
    ] {
        let target = base.path().join(name);
        fs::create_dir(&target)?;
        // One that the kernel lacks, or that version 2 has, is missing later, with a reason.
        mount(Some("cgroup"), &target, Some("cgroup"), MsFlags::empty(), Some(options)).ok();
    }
    Ok(Some(base))
}

/// Removes what runs that were killed have left behind.
pub fn sweep() -> Result<()> {
    for hierarchy in hierarchies()? {
        for entry in fs::read_dir(&hierarchy.at)?.flatten() {
            if is_abandoned(&entry.file_name()) {
                remove_tree(&entry.path())?;
            }
        }
    }
    for entry in fs::read_dir(std::env::temp_dir())?.flatten() {
        if is_abandoned(&entry.file_name()) {
            fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

/// Whether the process that a name tells has ended: names are `divvy-engines-PROCESS-…`.
fn is_abandoned(name: &OsStr) -> bool {
    let process = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('-').next());
    let process = process.and_then(|process| process.parse::<u32>().ok());
    process.is_some_and(|process| !Path::new("/proc").join(process.to_string()).exists())
}

/// What this process has not removed.
pub fn left() -> Result<Vec<String>> {
    let ours = format!("{PREFIX}{}-", std::process::id());
    let mut left = Vec::new();
    for hierarchy in hierarchies()? {
        for entry in fs::read_dir(&hierarchy.at)?.flatten() {
            if entry.file_name().to_string_lossy().starts_with(&ours) {
                left.push(entry.path().display().to_string());
            }
        }
    }
    Ok(left)
}

fn remove_tree(dir: &Path) -> Result<()> {
    if !dir.exists() {
        return Ok(());
    }
    for entry in fs::read_dir(dir)?.flatten() {
        if entry.file_type()?.is_dir() {
            remove_tree(&entry.path())?;
        }
    }
    fs::remove_dir(dir).with_context(|| format!("rmdir {}", dir.display()))
}

fn enable_controllers(dir: &Path) -> Result<()> {
    for controller in fs::read_to_string(dir.join("cgroup.controllers"))?.split_whitespace() {
        write(&dir.join("cgroup.subtree_control"), &format!("+{controller}"))?;
    }
    Ok(())
}

#[expect(
    clippy::disallowed_methods,
    reason = "a cgroup's file is a call to the kernel, not a file to replace"
)]
fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("write {text:?} to {}", path.display()))
}

fn hierarchies() -> Result<Vec<Hierarchy>> {
    let mut found = Vec::new();
    for line in fs::read_to_string("/proc/self/mountinfo")?.lines() {
        // proc(5): … root mount-point options … - type source super-options
        let Some((mount, kind)) = line.split_once(" - ") else { continue };
        let at = mount.split(' ').nth(4).map(PathBuf::from);
        let mut kind = kind.split(' ');
        let options = match kind.next() {
            Some("cgroup2") => None,
            Some("cgroup") => {
                Some(kind.nth(1).unwrap_or_default().trim_start_matches("rw,").to_owned())
            }
            _ => continue,
        };
        found.extend(at.map(|at| Hierarchy { at, options }));
    }
    Ok(found)
}
