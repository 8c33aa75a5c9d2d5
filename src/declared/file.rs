//! The file of a driver's devices, read again when it has changed. One that is bad by then changes
//! nothing: what was read before still counts.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use divvy_cdi::file::{self, Trust};
use divvy_hook::record::digest;

use super::{Declaration, DeclaredError, decode};

/// A file that declares devices.
#[derive(Debug)]
pub struct DeviceFile {
    path: PathBuf,
    driver: String,
    node: String,
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

// === impl DeviceFile ===

impl DeviceFile {
    /// Reads a file; `node` is the name of the node, and so of the pool.
    ///
    /// # Errors
    /// It cannot be read, is not to be trusted, or declares no devices.
    pub fn open(path: &Path, node: String) -> Result<Self, DeclaredError> {
        let (declaration, read) = read(path)?;
        let driver = declaration.driver.clone();
        let state = State { declaration: Arc::new(declaration), read, trouble: None };
        Ok(Self { path: path.to_owned(), driver, node, state: Mutex::new(state) })
    }

    /// A driver of which no file is known: claims on its devices can be ended all the same.
    pub fn missing(driver: &str) -> Self {
        let declaration = Declaration { driver: driver.to_owned(), devices: Vec::new() };
        let (declaration, read) = (Arc::new(declaration), String::new());
        let state = Mutex::new(State { declaration, read, trouble: None });
        let (path, node) = (PathBuf::new(), String::new());
        Self { path, driver: driver.to_owned(), node, state }
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
        let found = read(&self.path);
        let mut state = self.state();
        let found = found.and_then(|(declaration, read)| match declaration.driver == self.driver {
            true => Ok((declaration, read)),
            false => Err(DeclaredError::Driver {
                file: self.path.display().to_string(),
                driver: self.driver.clone(),
                found: declaration.driver,
            }),
        });
        match found {
            Ok((declaration, read)) => {
                let same = state.read == read && state.trouble.is_none();
                (state.read, state.trouble) = (read, None);
                if same {
                    return Looked::Same;
                }
                state.declaration = Arc::new(declaration);
                Looked::Changed(Arc::clone(&state.declaration))
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

fn read(path: &Path) -> Result<(Declaration, String), DeclaredError> {
    let bytes = file::read(path, MAX_BYTES, &Trust::of_process()).map_err(Arc::new)?;
    Ok((decode::read(path, &bytes)?, digest(&bytes)))
}
