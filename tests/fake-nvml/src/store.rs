//! The store keeps a host's state in a file: replaced under a lock, and read again only when it
//! was replaced, so that a call costs as little as it does on hardware.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use serde::{Serialize, de::DeserializeOwned};

/// Which file it is that lies there.
type Stamp = (u64, i64, i64, u64);

/// A JSON file, as it was when it was last read.
#[derive(Debug)]
pub(crate) struct Cached<T> {
    path: PathBuf,
    read: Mutex<Option<(Stamp, Arc<T>)>>,
}

// === impl Cached ===

impl<T: DeserializeOwned> Cached<T> {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, read: Mutex::new(None) }
    }

    /// What the file says; `None` where there is none.
    pub(crate) fn get(&self) -> io::Result<Option<Arc<T>>> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let stat = match fs::metadata(&self.path) {
            Ok(stat) => stat,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let stamp = (stat.ino(), stat.mtime(), stat.mtime_nsec(), stat.size());
        if let Some((known, value)) = read.as_ref()
            && *known == stamp
        {
            return Ok(Some(Arc::clone(value)));
        }
        let value: Arc<T> = Arc::new(serde_json::from_slice(&fs::read(&self.path)?)?);
        *read = Some((stamp, Arc::clone(&value)));
        Ok(Some(value))
    }
}

/// Puts a file there, whole.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = path.with_extension("new");
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).open(&temporary)?.write_all(bytes)?;
    fs::rename(&temporary, path)
}

/// Puts a file there only when it says something else, so that a watcher sees changes alone.
pub(crate) fn keep(path: &Path, text: &str) -> io::Result<()> {
    if fs::read(path).is_ok_and(|there| there == text.as_bytes()) {
        return Ok(());
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    replace(path, text.as_bytes())
}

/// Puts a value there as JSON, whole.
pub(crate) fn write<T: Serialize>(path: &Path, value: &T) -> io::Result<()> {
    replace(path, &serde_json::to_vec(value)?)
}

/// Takes the lock in `folder`; free again when dropped.
pub(crate) fn lock(folder: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let file = options.append(true).create(true).open(folder.join("lock"))?;
    file.lock()?;
    Ok(file)
}

/// Counts in a file: how often it was called before.
pub(crate) fn count(path: &Path) -> io::Result<u64> {
    let mut file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
    file.lock()?;
    let before = file.metadata()?.len();
    file.write_all(b".")?;
    Ok(before)
}

/// A file's text, where there is one.
pub(crate) fn text(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    match File::open(path) {
        Ok(mut file) => file.read_to_string(&mut text).map(|_| text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(text),
        Err(error) => Err(error),
    }
}
