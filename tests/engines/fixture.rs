//! A fixture: what all sandboxes share and none changes: the engines, images, and the root filesystem of bundles.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::device;

/// Where the images and the root filesystem are in `dir`, and in a sandbox below `/fixture`.
#[derive(Debug)]
pub struct Fixture {
    /// `old`, `new` and `cri`, as scripts/engines.sh leaves them.
    pub engines: PathBuf,
    /// `rootfs/`, and a `NAME.tar` for each image.
    pub dir: tempfile::TempDir,
    /// The static hook.
    pub hook: PathBuf,
    /// Folders more that sandboxes see read-only, by their path there.
    pub binds: Vec<(PathBuf, PathBuf)>,
    /// What cgroup hierarchies of our own are mounted on.
    _cgroups: Option<tempfile::TempDir>,
}

/// Why there is no fixture.
#[derive(Debug)]
pub enum Missing {
    /// This machine cannot have one, and the tests are skipped.
    Here(String),
    /// It should have one, and the tests fail.
    Broken(anyhow::Error),
}

/// An image made by hand: no registry is asked for any.
#[derive(Debug)]
struct Image<'a> {
    name: &'a str,
    command: &'a [&'a str],
    /// Of the manifest: what an image's author decides.
    annotations: Value,
}

pub const IMAGE: &str = "localhost/busybox:1";
/// What containerd starts for a pod.
pub const PAUSE: &str = "localhost/pause:1";

/// An image whose author asks for devices in the manifest's annotations.
pub const ANNOTATED: &str = "localhost/annotated:1";

/// The administrator's tool in a sandbox, beside the other programs of this build.
pub const DIVVY: &str = "/programs/divvy";

const APPLETS: &str =
    "sh ls cat env mount sleep stat id echo test mknod dd true false grep head sort tr printenv";

// === impl Fixture ===

impl Fixture {
    pub fn new(project: &Path, cgroups: Option<tempfile::TempDir>) -> Result<Fixture, Missing> {
        let script = project.join("scripts/engines.sh");
        // What it says comes at once: the first time it takes a while.
        let script = Command::new(script).stderr(Stdio::inherit()).output();
        let script = script.context("scripts/engines.sh").map_err(Missing::Broken)?;
        match script.status.code() {
            Some(0) => Self::build_all(project, &script.stdout, cgroups).map_err(Missing::Broken),
            Some(3) => Err(Missing::Here("scripts/engines.sh cannot work on this machine".into())),
            _ => Err(Missing::Broken(anyhow::anyhow!("scripts/engines.sh failed"))),
        }
    }

    fn build_all(
        project: &Path,
        engines: &[u8],
        cgroups: Option<tempfile::TempDir>,
    ) -> Result<Fixture> {
        let engines = PathBuf::from(std::str::from_utf8(engines)?.trim());
        let dir = crate::sandbox::folder()?;
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755))?;
        let rootfs = dir.path().join("rootfs");
        root_filesystem(&rootfs, &engines.join("new/usr/bin/busybox"))?;
        fs::copy(engines.join("cri"), dir.path().join("cri")).context("the CRI client")?;
        let hook = project.join("target/static/divvy-hook");
        ensure!(hook.exists(), "no {}: make hook builds it", hook.display());
        let fixture = Fixture { engines, dir, hook, binds: Vec::new(), _cgroups: cgroups };
        for image in [
            Image::new(IMAGE, &["sh"]),
            Image::new(PAUSE, &["sleep", "1000000"]),
            Image {
                annotations: json!({"cdi.k8s.io/image": device::NAME, "divvy.dev/claim": "local"}),
                ..Image::new(ANNOTATED, &["sh"])
            },
        ] {
            fixture.build(&image)?;
        }
        Ok(fixture)
    }

    /// The engines' versions, as their packages say: for the reader of a log.
    pub fn versions(&self) -> String {
        let of = |end: &str| fs::read_to_string(self.engines.join(end).join("versions"));
        let of = |end| of(end).unwrap_or_default().trim_end().replace('\n', ", ");
        format!("{}; {}", of("old"), of("new"))
    }

    /// Writes an OCI layout and packs it.
    fn build(&self, image: &Image<'_>) -> Result<()> {
        let layout = self.dir.path().join("layout");
        let blobs = layout.join("blobs/sha256");
        fs::create_dir_all(&blobs)?;
        let layer = self.dir.path().join("layer.tar");
        if !layer.exists() {
            tar(&layer, &self.dir.path().join("rootfs"))?;
        }
        let layer = put(&blobs, &fs::read(layer)?)?;
        let config = json!({
            "architecture": if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" },
            "os": "linux",
            // Engines know an image by this configuration's digest.
            "author": image.name,
            "config": {"Env": ["PATH=/bin"], "Cmd": image.command},
            "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]},
        });
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": typed("application/vnd.oci.image.config.v1+json", put(&blobs, &serde_json::to_vec(&config)?)?),
            "layers": [typed("application/vnd.oci.image.layer.v1.tar", layer)],
            "annotations": image.annotations,
        });
        let mut index = typed(
            "application/vnd.oci.image.manifest.v1+json",
            put(&blobs, &serde_json::to_vec(&manifest)?)?,
        );
        index["annotations"] = json!({"io.containerd.image.name": image.name, "org.opencontainers.image.ref.name": image.name});
        let index = json!({"schemaVersion": 2, "manifests": [index]});
        write(&layout.join("index.json"), &serde_json::to_vec(&index)?)?;
        write(&layout.join("oci-layout"), br#"{"imageLayoutVersion":"1.0.0"}"#)?;
        tar(&self.dir.path().join(archive(image.name)), &layout)?;
        Ok(fs::remove_dir_all(layout)?)
    }
}

impl<'a> Image<'a> {
    fn new(name: &'a str, command: &'a [&'a str]) -> Self {
        Image { name, command, annotations: json!({}) }
    }
}

/// A file of examples/.
pub fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(name)
}

/// Where the programs of this build are.
pub fn programs() -> Option<&'static Path> {
    Path::new(env!("CARGO_BIN_EXE_divvy")).parent()
}

/// The file of an image below `/fixture`.
pub fn archive(image: &str) -> String {
    let name = image.trim_start_matches("localhost/").replace(':', "-");
    format!("{name}.tar")
}

fn root_filesystem(rootfs: &Path, busybox: &Path) -> Result<()> {
    for dir in ["bin", "dev", "etc", "proc", "sys", "tmp", "root", "var", "run"] {
        fs::create_dir_all(rootfs.join(dir))?;
    }
    fs::copy(busybox, rootfs.join("bin/busybox")).with_context(|| busybox.display().to_string())?;
    for applet in APPLETS.split(' ') {
        symlink("busybox", rootfs.join("bin").join(applet))?;
    }
    write(&rootfs.join("etc/passwd"), b"root:x:0:0:root:/root:/bin/sh\n")?;
    write(&rootfs.join("etc/group"), b"root:x:0:\n")
}

fn tar(archive: &Path, dir: &Path) -> Result<()> {
    let reproducible = ["--sort=name", "--mtime=@0", "--owner=0", "--group=0", "--numeric-owner"];
    let status = Command::new("tar")
        .arg("-cf")
        .arg(archive)
        .args(reproducible)
        .arg("-C")
        .arg(dir)
        .arg(".")
        .status()?;
    ensure!(status.success(), "tar cannot pack {}", dir.display());
    Ok(())
}

/// Stores a blob, and gives its descriptor but for the type.
fn put(blobs: &Path, bytes: &[u8]) -> Result<Value> {
    let digest = divvy_hook::record::digest(bytes);
    write(&blobs.join(digest.trim_start_matches("sha256:")), bytes)?;
    Ok(json!({"digest": digest, "size": bytes.len()}))
}

fn typed(media: &str, mut descriptor: Value) -> Value {
    descriptor["mediaType"] = media.into();
    descriptor
}

#[expect(clippy::disallowed_methods, reason = "a fixture is not read while it is written")]
fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}
