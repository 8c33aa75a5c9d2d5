//! A library of a driver, where it really is, and the names by which programs know it.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use super::{
    DriverError, Installed,
    place::{KNOWN_LINKS, LIBRARY_DIRS, NEEDED, OWN_VERSION, X_DIRS, X_MODULES},
    root::is_plain,
};
use crate::gpu::{Link, MountFile, MountKind};

/// What it is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// All that has the driver's version, which is most of it.
    Compute,
    /// What has a version of its own, and the X server's.
    Graphics,
}

/// The libraries of a driver.
#[derive(Debug, Default)]
pub(super) struct Libraries {
    /// By where they really are.
    all: BTreeMap<PathBuf, Library>,
    /// Where the loader has to look, in this order.
    folders: Vec<PathBuf>,
    /// Every folder that was looked in, for who finds nothing.
    looked_in: Vec<PathBuf>,
}

#[derive(Debug)]
struct Library {
    kind: Kind,
    /// The name that it gives itself.
    soname: Option<String>,
    /// Links to it in its folder.
    names: BTreeSet<String>,
}

/// Finds the libraries of a driver: in the folder of the libnvidia-ml that is loaded, in those that
/// the loader's cache names, and in those that drivers are in.
pub(super) fn find(driver: Installed<'_>) -> Result<Libraries, DriverError> {
    let mut libraries = Libraries::default();
    for folder in folders(driver) {
        for real in libraries.add_folder(driver, &folder) {
            if !libraries.folders.contains(&real) {
                libraries.folders.push(real);
            }
        }
        // Opened by path, never through the loader's cache.
        libraries.add_folder(driver, &folder.join("vdpau"));
        for below in X_DIRS {
            libraries.add_modules(driver, &folder.join(below));
        }
        libraries.looked_in.push(folder);
    }
    libraries.is_complete(driver)?;
    Ok(libraries)
}

/// Folders that may have libraries of the driver, where they really are, each once.
fn folders(driver: Installed<'_>) -> Vec<PathBuf> {
    let ends = suffix(driver);
    let loaded = driver.library.parent().map(Path::to_owned);
    let cached = driver.root.cached().into_iter().filter_map(|(name, path)| {
        let ours = name.to_str().is_some_and(|name| {
            name.starts_with("libcuda.so") || (name.starts_with("lib") && name.contains("nvidia"))
        });
        let real = ours.then(|| driver.root.file(&path))??;
        let of_version = real.to_str().is_some_and(|real| real.ends_with(&ends));
        of_version.then(|| real.parent().map(Path::to_owned))?
    });
    let usual = LIBRARY_DIRS.iter().filter_map(|dir| driver.root.folder(&Path::new("/").join(dir)));
    let mut folders: Vec<PathBuf> = Vec::new();
    for folder in loaded.into_iter().chain(cached).chain(usual) {
        if !folders.contains(&folder) && is_plain(folder.as_os_str()) {
            folders.push(folder);
        }
    }
    folders
}

/// What the names of the driver's libraries end in.
fn suffix(driver: Installed<'_>) -> String {
    format!(".so.{}", driver.version)
}

/// `libcuda` of `libcuda.so.580.65.06`.
fn stem(name: &str) -> &str {
    name.split_once(".so").map_or(name, |(stem, _)| stem)
}

// === impl Libraries ===

impl Libraries {
    /// Adds what a folder has; the folders that it really is in.
    fn add_folder(&mut self, driver: Installed<'_>, folder: &Path) -> BTreeSet<PathBuf> {
        let names = driver.root.names(folder);
        let ends = suffix(driver);
        let (mut stems, mut folders) = (BTreeSet::new(), BTreeSet::new());
        for name in names.iter().filter(|name| name.starts_with("lib")) {
            let own = OWN_VERSION.iter().find(|(own, _)| *own == stem(name));
            let kind = match own {
                Some((_, true)) => Kind::Graphics,
                Some((_, false)) => Kind::Compute,
                None if name.ends_with(&ends) => Kind::Compute,
                None => continue,
            };
            if let Some(real) = self.add(driver, &folder.join(name), kind) {
                stems.insert(stem(name));
                folders.extend(real.parent().map(Path::to_owned));
            }
        }
        let linked = names.iter().filter(|name| stems.contains(stem(name)) && name.contains(".so"));
        for name in linked {
            let real = driver.root.file(&folder.join(name)).unwrap_or_default();
            if real.parent() == Some(folder)
                && !real.ends_with(name)
                && let Some(library) = self.all.get_mut(&real)
            {
                library.names.insert(name.clone());
            }
        }
        folders
    }

    /// Adds the modules of the X server that a folder has.
    fn add_modules(&mut self, driver: Installed<'_>, folder: &Path) {
        for name in driver.root.names(folder) {
            let (ends, stem) = (suffix(driver), stem(&name));
            let ours = X_MODULES.iter().any(|module| module.strip_suffix(".so") == Some(stem));
            if ours && (name.ends_with(&ends) || name.ends_with(".so")) {
                self.add(driver, &folder.join(name), Kind::Graphics);
            }
        }
    }

    /// Adds the library at `path`, and says where it really is; none where none of 64 bits is: RHEL
    /// has those of 32 bits in `/usr/lib`.
    fn add(&mut self, driver: Installed<'_>, path: &Path, kind: Kind) -> Option<PathBuf> {
        let real = driver.root.file(path).filter(|real| is_plain(real.as_os_str()))?;
        if !self.all.contains_key(&real) {
            let soname = driver.root.library(&real)?.name;
            let soname = soname.and_then(|name| String::from_utf8(name).ok());
            let soname = soname.filter(|name| is_plain(name.as_ref()));
            self.all.insert(real.clone(), Library { kind, soname, names: BTreeSet::new() });
        }
        Some(real)
    }

    /// Refuses a driver that lacks what computing needs.
    fn is_complete(&self, driver: Installed<'_>) -> Result<(), DriverError> {
        let named = NEEDED.iter().map(|name| format!("{name}{}", suffix(driver)));
        let missing: Vec<String> =
            named.filter(|name| !self.all.keys().any(|path| path.ends_with(name))).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let there =
            self.looked_in.iter().flat_map(|folder| driver.root.names(folder)).find(|name| {
                let of = missing.iter().any(|missing| stem(missing) == stem(name));
                of && name.split_once(".so.").is_some_and(|(_, version)| version.contains('.'))
            });
        Err(DriverError::Incomplete {
            version: driver.version.to_owned(),
            root: driver.root.path().to_owned(),
            missing,
            folders: self.looked_in.iter().map(|folder| folder.display().to_string()).collect(),
            there,
        })
    }

    /// Those of one kind, to be mounted.
    pub(super) fn mounts(&self, driver: Installed<'_>, kind: Kind) -> Vec<MountFile> {
        let of_kind = self.all.iter().filter(|(_, library)| library.kind == kind);
        of_kind.filter_map(|(path, _)| driver.root.mount(path, path, MountKind::File)).collect()
    }

    /// Where the loader has to look.
    pub(super) fn folders(&self) -> Vec<String> {
        self.folders.iter().filter_map(|folder| folder.to_str()).map(str::to_owned).collect()
    }

    /// The links beside the libraries: the names that they give themselves, which a loader asks for;
    /// those that the host has; and those that programs ask for all the same.
    pub(super) fn links(&self, driver: Installed<'_>) -> Vec<Link> {
        let mut links: BTreeMap<PathBuf, String> = BTreeMap::new();
        for (path, library) in &self.all {
            let (Some(folder), Some(file)) = (path.parent(), path.file_name()) else { continue };
            let Some(file) = file.to_str() else { continue };
            let mut link = |name: &str, target: &str| {
                if name != file {
                    links.entry(folder.join(name)).or_insert_with(|| target.to_owned());
                }
            };
            if let Some(soname) = &library.soname {
                link(soname, file);
            }
            for name in &library.names {
                match &library.soname {
                    Some(soname) if name.ends_with(".so") => link(name, soname),
                    _ => link(name, file),
                }
            }
            for (_, name, target) in KNOWN_LINKS.iter().filter(|(of, ..)| *of == stem(file)) {
                if file.ends_with(&suffix(driver)) {
                    link(name, if target.is_empty() { file } else { target });
                }
            }
        }
        let text = |path: PathBuf| path.to_str().map(str::to_owned);
        let link = |(path, target)| Some(Link { path: text(path)?, target });
        links.into_iter().filter_map(link).collect()
    }
}
