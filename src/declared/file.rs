//! The file of a driver's devices, read again when it has changed. One that is bad by then changes
//! nothing: what was read before still counts, after a restart too.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use divvy_cdi::{
    file::{self, Durability, FileError, Trust},
    problem::chain,
};
use divvy_hook::record::digest;

use super::{Declaration, DeclaredError, decode};
use crate::admin::tell;

/// A file that declares devices.
#[derive(Debug)]
pub struct DeviceFile {
    path: PathBuf,
    driver: String,
    node: String,
    /// Where a copy is kept of what was read last and good, if one is.
    copy: Option<PathBuf>,
    state: Mutex<State>,
}

/// What is known of it.
#[derive(Debug)]
struct State {
    declaration: Arc<Declaration>,
    /// [`digest`] of what was read last and good.
    read: String,
    /// Why what was read last does not count.
    trouble: Option<DeclaredError>,
}

/// What looking at it again came to.
#[derive(Debug, Clone)]
pub enum Looked {
    /// It is as it was.
    Same,
    /// It declares this now.
    Changed(Arc<Declaration>),
    /// It is bad since it was looked at last.
    Bad(DeclaredError),
}

/// The most bytes of a file.
const MAX_BYTES: usize = 1 << 20;
/// Where copies are kept in a state directory, each by its file's path.
const COPIES: &str = "devices";

// === impl DeviceFile ===

impl DeviceFile {
    /// Reads a file; `node` is the name of the node, and so of the pool.
    ///
    /// # Errors
    /// It cannot be read, is not to be trusted, or is no declaration of devices.
    pub fn open(path: &Path, node: String) -> Result<Self, DeclaredError> {
        Self::of(path, node, &bytes(path)?)
    }

    /// The same of a daemon, with a copy in its state directory: where the file is bad, what it said before counts.
    /// That it is bad, [`Self::look`] says.
    ///
    /// # Errors
    /// As [`Self::open`], where there is no good copy either.
    pub fn keep(path: &Path, node: String, state_dir: &Path) -> Result<Self, DeclaredError> {
        let name = digest(path.as_os_str().as_encoded_bytes()).replace(':', "-");
        let copy = state_dir.join(COPIES).join(name);
        let read = bytes(path).and_then(|bytes| Ok((Self::of(path, node.clone(), &bytes)?, bytes)));
        let file = match read {
            Ok((file, bytes)) => {
                store(&copy, &bytes);
                file
            }
            Err(error) => {
                let kept = bytes(&copy).and_then(|bytes| Self::of(path, node, &bytes));
                kept.map_err(|_| error)?
            }
        };
        Ok(Self { copy: Some(copy), ..file })
    }

    fn of(path: &Path, node: String, bytes: &[u8]) -> Result<Self, DeclaredError> {
        let declaration = decode::read(path, bytes)?;
        let driver = declaration.driver.clone();
        let (declaration, read) = (Arc::new(declaration), digest(bytes));
        let state = Mutex::new(State { declaration, read, trouble: None });
        Ok(Self { path: path.to_owned(), driver, node, copy: None, state })
    }

    /// A driver of which no file is known: claims on its devices can be ended all the same.
    pub fn missing(driver: &str) -> Self {
        let declaration = Declaration { driver: driver.to_owned(), devices: Vec::new() };
        let (declaration, read) = (Arc::new(declaration), String::new());
        let state = Mutex::new(State { declaration, read, trouble: None });
        let (path, node) = (PathBuf::new(), String::new());
        Self { path, driver: driver.to_owned(), node, copy: None, state }
    }

    /// Whose devices they are.
    pub fn driver(&self) -> &str {
        &self.driver
    }

    /// The node's name, and so that of the pool.
    pub fn node(&self) -> &str {
        &self.node
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What it declares, as it was read last.
    pub fn now(&self) -> Arc<Declaration> {
        Arc::clone(&self.state().declaration)
    }

    /// Whether what is in it now counts.
    pub fn is_good(&self) -> bool {
        self.state().trouble.is_none()
    }

    /// Reads it again.
    pub fn look(&self) -> Looked {
        let read = bytes(&self.path);
        let found = read.and_then(|bytes| Ok((decode::read(&self.path, &bytes)?, bytes)));
        let mut state = self.state();
        let found =
            found.and_then(|(declaration, bytes)| match declaration.driver == self.driver {
                true => Ok((declaration, bytes)),
                false => Err(DeclaredError::Driver {
                    file: self.path.display().to_string(),
                    driver: self.driver.clone(),
                    found: declaration.driver,
                }),
            });
        match found {
            Ok((declaration, bytes)) => {
                let read = digest(&bytes);
                let same = state.read == read && state.trouble.is_none();
                (state.read, state.trouble) = (read, None);
                if same {
                    return Looked::Same;
                }
                let declaration = Arc::new(declaration);
                state.declaration = Arc::clone(&declaration);
                // Whoever wants to know how the file is does not wait for a disk.
                drop(state);
                if let Some(copy) = &self.copy {
                    store(copy, &bytes);
                }
                Looked::Changed(declaration)
            }
            Err(error) => {
                let before = state.trouble.replace(error.clone());
                match before.is_some_and(|before| before.to_string() == error.to_string()) {
                    true => Looked::Same,
                    false => Looked::Bad(error),
                }
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Whole at every moment, so no panic spoils it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn bytes(path: &Path) -> Result<Vec<u8>, DeclaredError> {
    Ok(file::read(path, MAX_BYTES, &Trust::of_process()).map_err(Arc::new)?)
}

/// Where it cannot be stored, an older copy goes as well: a later start with a bad file has no devices then, and not
/// those that were taken out of it.
fn store(copy: &Path, bytes: &[u8]) {
    if file::read(copy, MAX_BYTES, &Trust::of_process()).is_ok_and(|kept| kept == bytes) {
        return;
    }
    let stored = || -> Result<(), FileError> {
        if let Some(dir) = copy.parent() {
            file::make_dir(dir, 0o700, Durability::Durable)?;
            file::sweep(dir);
        }
        file::replace(copy, bytes, 0o600, Durability::Durable)
    };
    if let Err(error) = stored() {
        let _as_well = file::remove(copy, Durability::Durable);
        tell(&format!("no copy of a file of devices is kept: {}\n", chain(&error)));
    }
}
