//! A file of a driver that is no library: programs, firmware, settings, sockets.

use std::path::{Path, PathBuf};

use divvy_cdi::file::{self, Trust};

use super::{
    Installed,
    place::{BINARIES, BINARY_DIR, BINARY_DIRS, OWN_BINARY_DIRS, SETTING_DIRS, SETTINGS, SOCKETS},
    root::DriverRoot,
};
use crate::gpu::{MountFile, MountKind};

const FIRMWARE_DIR: &str = "/lib/firmware";

/// The most bytes of a file that says one thing.
const MAX_LINE: usize = 4096;

/// Programs, each from the first folder that has it.
pub(super) fn binaries(driver: Installed<'_>) -> Vec<MountFile> {
    let root = driver.root;
    let binary = |name: &&str| {
        BINARY_DIRS.into_iter().find_map(|dir| {
            let path = Path::new("/").join(dir).join(name);
            let real = root.file(&path)?;
            let path = match OWN_BINARY_DIRS.contains(&dir) {
                true => path,
                false => Path::new(BINARY_DIR).join(name),
            };
            root.mount(&real, &path, MountKind::File)
        })
    };
    BINARIES.iter().filter_map(binary).collect()
}

/// What the kernel module loads into GPUs, from the first folder that has it for this version. A
/// container has it where it would be looked for, wherever the machine's kernel does.
pub(super) fn firmware(driver: Installed<'_>) -> Vec<MountFile> {
    let root = driver.root;
    let in_dir = |dir: PathBuf| {
        let dir = dir.join("nvidia").join(driver.version);
        let names = root.names(&dir).into_iter();
        let firmware = names.filter(|name| name.starts_with("gsp") && name.ends_with(".bin"));
        let mount = |name| {
            let at = Path::new(FIRMWARE_DIR).join("nvidia").join(driver.version).join(&name);
            root.mount(&root.file(&dir.join(name))?, &at, MountKind::File)
        };
        let found: Vec<MountFile> = firmware.filter_map(mount).collect();
        (!found.is_empty()).then_some(found)
    };
    firmware_dirs(driver).into_iter().find_map(in_dir).unwrap_or_default()
}

/// The folders that the kernel looks for firmware in, in its order, below the driver root.
fn firmware_dirs(driver: Installed<'_>) -> Vec<PathBuf> {
    let mut dirs = Vec::new();
    if let Some(own) = line(&driver.host.join("sys/module/firmware_class/parameters/path")) {
        // A path of the machine, which may lie below the driver root itself.
        let machine = driver.host.join(own.trim_start_matches('/'));
        let below = machine.strip_prefix(driver.root.path());
        dirs.extend(below.ok().map(|below| Path::new("/").join(below)));
        dirs.push(Path::new("/").join(own));
    }
    let release = line(&driver.host.join("proc/sys/kernel/osrelease"));
    let release = release.filter(|release| !release.contains('/'));
    for dir in ["/lib/firmware/updates", FIRMWARE_DIR] {
        dirs.extend(release.iter().map(|release| Path::new(dir).join(release)));
        dirs.push(dir.into());
    }
    dirs
}

/// The only line of a file; none where it is empty.
fn line(path: &Path) -> Option<String> {
    let text = String::from_utf8(file::read(path, MAX_LINE, &Trust::Any).ok()?).ok()?;
    let text = text.trim();
    (!text.is_empty() && !text.contains(char::is_control)).then(|| text.to_owned())
}

/// Settings, each from the first folder that has it.
pub(super) fn settings(driver: Installed<'_>) -> Vec<MountFile> {
    let root = driver.root;
    let setting = |(name, below): &(&str, &str)| {
        SETTING_DIRS.into_iter().find_map(|dir| {
            let real = root.file(&Path::new("/").join(dir).join(name))?;
            root.mount(&real, &Path::new(below).join(name), MountKind::File)
        })
    };
    SETTINGS.iter().filter_map(setting).collect()
}

/// Sockets, of the driver's own daemons or the machine's.
pub(super) fn sockets(driver: Installed<'_>) -> Vec<MountFile> {
    let host = (driver.root.path() != driver.host).then(|| DriverRoot::open(driver.host).ok());
    let roots = [Some(driver.root), host.as_ref().and_then(Option::as_ref)];
    let socket = |name: &&str| {
        let path = Path::new("/run").join(name);
        let dirs = ["/run", "/var/run"].map(|dir| Path::new(dir).join(name));
        roots.iter().flatten().find_map(|root| {
            let real = dirs.iter().find_map(|path| root.socket(path))?;
            root.mount(&real, &path, MountKind::Socket)
        })
    };
    SOCKETS.iter().filter_map(socket).collect()
}
