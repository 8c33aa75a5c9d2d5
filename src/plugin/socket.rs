//! A socket is where the kubelet finds us: one in its registry, which says where the other is. Both are named by
//! the driver, and by the pod where there is one, so that an old and a new pod serve side by side.

use std::{
    io,
    os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    time::Duration,
};

use divvy_cdi::file::{self, Durability};
use divvy_hook::record::digest;
use tokio::net::{UnixListener, UnixStream};

use super::PluginError;

/// Where the sockets of this instance are.
#[derive(Debug, Clone)]
pub struct Paths {
    /// In the kubelet's registry.
    pub registration: PathBuf,
    /// In our own directory.
    pub dra: PathBuf,
}

/// A socket that is served. It is gone when dropped.
#[derive(Debug)]
pub(super) struct Socket {
    pub(super) listener: UnixListener,
    path: PathBuf,
    /// Device and inode, so that nobody else's is removed.
    id: Option<(u64, u64)>,
}

/// The longest path of a socket on Linux, without the NUL behind it.
const MAX_PATH: usize = 107;

/// How long whoever is behind a socket of our name may take to answer.
const ANSWER: Duration = Duration::from_secs(1);

/// How old a socket is that nobody is just about to serve.
const OLD: Duration = Duration::from_secs(10);

// === impl Paths ===

impl Paths {
    /// A driver's, below the kubelet's directory (`/var/lib/kubelet`); `pod` is the UID of the pod that this is in.
    ///
    /// # Errors
    /// [`PluginError::LongPath`]
    pub fn of(kubelet: &Path, driver: &str, pod: Option<&str>) -> Result<Self, PluginError> {
        let (registry, own) = (kubelet.join("plugins_registry"), own(kubelet, driver));
        let Some(pod) = pod else {
            let registration = short(registry.join(format!("{driver}-reg.sock")))?;
            return Ok(Self { registration, dra: short(own.join("dra.sock"))? });
        };
        let whole = digest(pod.as_bytes());
        let hash = whole.get(whole.len().saturating_sub(16)..).unwrap_or_default();
        let first_short = |dir: &Path, name: &dyn Fn(&str) -> String| {
            short(dir.join(name(pod))).or_else(|_| short(dir.join(name(hash))))
        };
        Ok(Self {
            registration: first_short(&registry, &|pod| format!("{driver}-{pod}-reg.sock"))?,
            dra: first_short(&own, &|pod| format!("dra-{pod}.sock"))?,
        })
    }

    /// Removes what instances left that were killed: sockets of this driver behind which nobody is.
    pub(super) async fn sweep(kubelet: &Path, driver: &str) {
        let prefix = format!("{driver}-");
        let places = [
            (kubelet.join("plugins_registry"), prefix.as_str(), "-reg.sock"),
            (own(kubelet, driver), "dra-", ".sock"),
        ];
        for (dir, prefix, suffix) in places {
            let Ok(listing) = std::fs::read_dir(dir) else { continue };
            for path in listing.flatten().map(|entry| entry.path()) {
                let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
                if name.starts_with(prefix) && name.ends_with(suffix) && is_left(&path).await {
                    // Whoever comes next tries again.
                    let _stays = std::fs::remove_file(&path);
                }
            }
        }
    }
}

/// Our directory among those of all plugins.
fn own(kubelet: &Path, driver: &str) -> PathBuf {
    kubelet.join("plugins").join(driver)
}

fn short(path: PathBuf) -> Result<PathBuf, PluginError> {
    match path.as_os_str().len() {
        0..=MAX_PATH => Ok(path),
        length => Err(PluginError::LongPath { path, length, most: MAX_PATH }),
    }
}

async fn is_left(path: &Path) -> bool {
    let Ok(meta) = path.symlink_metadata() else { return false };
    let age = meta.modified().ok().and_then(|modified| modified.elapsed().ok());
    meta.file_type().is_socket() && age.is_some_and(|age| age > OLD) && !answers(path).await
}

/// True where somebody listens, or may.
async fn answers(path: &Path) -> bool {
    match tokio::time::timeout(ANSWER, UnixStream::connect(path)).await {
        Ok(Err(error)) => {
            !matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound)
        }
        Ok(Ok(_)) | Err(_) => true,
    }
}

// === impl Socket ===

impl Socket {
    /// Serves `path`, for its owner alone. A socket that an earlier instance left there is replaced.
    ///
    /// # Errors
    /// [`PluginError::Served`] where somebody else serves it, [`PluginError::Socket`] where the system refuses.
    pub(super) async fn bind(path: &Path) -> Result<Self, PluginError> {
        let failed = |source| PluginError::Socket { path: path.to_owned(), source };
        if let Some(dir) = path.parent() {
            file::make_dir(dir, 0o750, Durability::Volatile)?;
        }
        match path.symlink_metadata() {
            Ok(_) if answers(path).await => {
                return Err(PluginError::Served { path: path.to_owned() });
            }
            Ok(meta) if meta.file_type().is_socket() => {
                std::fs::remove_file(path).map_err(failed)?;
            }
            _ => {}
        }
        let listener = UnixListener::bind(path).map_err(failed)?;
        let id = path.symlink_metadata().map(|meta| (meta.dev(), meta.ino())).ok();
        let socket = Self { listener, path: path.to_owned(), id };
        let owner = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(path, owner).map_err(failed)?;
        Ok(socket)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let there = self.path.symlink_metadata().map(|meta| (meta.dev(), meta.ino())).ok();
        if there.is_some() && there == self.id {
            // Nobody answers there any more, and the next instance replaces it.
            let _stays = std::fs::remove_file(&self.path);
        }
    }
}
