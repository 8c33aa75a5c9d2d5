//! A layout is where a distribution, NVIDIA's driver container or GKE has the files of a driver.

use std::{
    env, fs, io,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde::{Deserialize, Serialize};

use crate::{
    elf::library,
    store::{keep, replace},
};

/// How a driver is laid out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Layout {
    /// In the folder of all libraries.
    #[default]
    Ubuntu,
    /// In a folder of its own, to which alternatives lead by absolute links.
    Debian,
    /// In `/usr/lib64`; in `/usr/lib` are libraries of 32 bits.
    Rhel,
    /// NVIDIA's driver container: below a root of its own, in which absolute links lead on.
    Container,
    /// Each package in a folder of the store, which links lead to.
    NixOs,
    /// GKE's Container-Optimized OS: in a folder without an `/etc` and a `/usr`.
    Cos,
}

const SMI: &str = include_str!("nvidia-smi.sh");

/// `NAME.so.VERSION`, and the name that it gives itself.
const LIBRARIES: [(&str, &str); 20] = [
    ("libEGL_nvidia", "libEGL_nvidia.so.0"),
    ("libGLESv2_nvidia", "libGLESv2_nvidia.so.2"),
    ("libGLX_nvidia", "libGLX_nvidia.so.0"),
    ("libcuda", "libcuda.so.1"),
    ("libcudadebugger", "libcudadebugger.so.1"),
    ("libnvcuvid", "libnvcuvid.so.1"),
    ("libnvidia-allocator", "libnvidia-allocator.so.1"),
    ("libnvidia-cfg", "libnvidia-cfg.so.1"),
    ("libnvidia-eglcore", "libnvidia-eglcore.so.VERSION"),
    ("libnvidia-encode", "libnvidia-encode.so.1"),
    ("libnvidia-glcore", "libnvidia-glcore.so.VERSION"),
    ("libnvidia-glvkspirv", "libnvidia-glvkspirv.so.VERSION"),
    ("libnvidia-gpucomp", "libnvidia-gpucomp.so.VERSION"),
    ("libnvidia-nvvm", "libnvidia-nvvm.so.4"),
    ("libnvidia-opencl", "libnvidia-opencl.so.1"),
    ("libnvidia-opticalflow", "libnvidia-opticalflow.so.1"),
    ("libnvidia-ptxjitcompiler", "libnvidia-ptxjitcompiler.so.1"),
    ("libnvidia-rtcore", "libnvidia-rtcore.so.VERSION"),
    ("libnvidia-tls", "libnvidia-tls.so.VERSION"),
    ("libnvoptix", "libnvoptix.so.1"),
];

/// Those of MPS are there where they were asked for.
const PROGRAMS: [&str; 3] = ["nvidia-smi", "nvidia-debugdump", "nvidia-persistenced"];

// === impl Layout ===

impl Layout {
    /// Every layout.
    pub const ALL: [Self; 6] =
        [Self::Ubuntu, Self::Debian, Self::Rhel, Self::Container, Self::NixOs, Self::Cos];

    /// The driver root, below the host.
    pub fn root(self) -> &'static str {
        match self {
            Self::Container => "run/nvidia/driver",
            Self::Cos => "home/kubernetes/bin/nvidia",
            Self::Ubuntu | Self::Debian | Self::Rhel | Self::NixOs => "",
        }
    }

    /// The folder that libraries really are in, below the driver root.
    pub fn libraries(self, version: &str) -> String {
        match self {
            Self::Ubuntu | Self::Container => "usr/lib/x86_64-linux-gnu".to_owned(),
            Self::Debian => "usr/lib/x86_64-linux-gnu/nvidia/current".to_owned(),
            Self::Rhel => "usr/lib64".to_owned(),
            Self::NixOs => format!("{}/lib", store(version)),
            Self::Cos => "lib64".to_owned(),
        }
    }

    /// Puts a driver of this version below `host`, in the place of any other.
    pub(crate) fn install(self, host: &Path, version: &str) -> io::Result<()> {
        let root = host.join(self.root());
        let below = self.libraries(version);
        let libraries = root.join(&below);
        fs::create_dir_all(&libraries)?;
        for entry in fs::read_dir(&libraries)? {
            let entry = entry?;
            let name = entry.file_name();
            if name.to_str().is_some_and(|name| name.starts_with("lib") && name.contains(".so")) {
                fs::remove_file(entry.path())?;
            }
        }
        // A copy for each host: by its path it finds the host. And by no name that another had before:
        // the loader knows what it has loaded by its name.
        let nvml = format!("libnvidia-ml.so.{version}");
        let new = libraries.join(format!(".{nvml}"));
        fs::copy(built()?, &new)?;
        fs::rename(new, libraries.join(&nvml))?;
        let mut all = vec![(nvml, "libnvidia-ml.so.1".to_owned())];
        for (name, soname) in LIBRARIES {
            let (name, soname) =
                (format!("{name}.so.{version}"), soname.replace("VERSION", version));
            replace(&libraries.join(&name), &library(&soname))?;
            all.push((name, soname));
        }
        for (name, soname) in [
            ("libnvidia-egl-gbm.so.1.1.2", "libnvidia-egl-gbm.so.1"),
            ("libnvidia-egl-wayland.so.1.1.19", "libnvidia-egl-wayland.so.1"),
        ] {
            replace(&libraries.join(name), &library(soname))?;
            all.push((name.to_owned(), soname.to_owned()));
        }
        for (name, soname) in &all {
            self.link_library(&root, &below, name, soname)?;
        }
        self.install_rest(host, &root, version)
    }

    /// The links by which the host's own programs know a library.
    fn link_library(self, root: &Path, below: &str, name: &str, soname: &str) -> io::Result<()> {
        if name == soname {
            return Ok(());
        }
        let folder = root.join(below);
        match self {
            // As ldconfig makes them, and one for a linker.
            Self::Ubuntu | Self::Rhel | Self::Cos => {
                link(name, &folder.join(soname))?;
                match name.starts_with("libnvidia-ml") {
                    true => link("libnvidia-ml.so.1", &folder.join("libnvidia-ml.so")),
                    false => Ok(()),
                }
            }
            Self::Debian => {
                let alternative = format!("etc/alternatives/glx--{soname}-x86_64-linux-gnu");
                link(format!("/{below}/{name}"), &root.join(&alternative))?;
                let usual = Path::new("usr/lib/x86_64-linux-gnu").join(soname);
                link(format!("/{alternative}"), &root.join(usual))
            }
            Self::Container => link(format!("/{below}/{name}"), &folder.join(soname)),
            Self::NixOs => {
                link(name, &folder.join(soname))?;
                let drivers = root.join(NIX_DRIVERS).join("lib");
                link(format!("/{below}/{soname}"), &drivers.join(soname))?;
                link(format!("/{below}/{name}"), &drivers.join(name))
            }
        }
    }

    /// Programs, firmware, settings, modules and sockets.
    fn install_rest(self, host: &Path, root: &Path, version: &str) -> io::Result<()> {
        if self == Self::NixOs {
            link(format!("/{NIX_DRIVERS}"), &root.join("run/opengl-driver"))?;
        }
        self.install_programs(root, version)?;
        self.install_firmware(host, root, version)?;
        self.install_settings(root)?;
        if self == Self::Cos {
            return Ok(());
        }
        let modules = root.join(self.libraries(version)).join(match self {
            Self::Rhel => "xorg/modules/extensions",
            _ => "nvidia/xorg",
        });
        fs::create_dir_all(&modules)?;
        let module = modules.join(format!("libglxserver_nvidia.so.{version}"));
        replace(&module, &library("libglxserver_nvidia.so"))?;
        if self == Self::Rhel {
            // Of 32 bits.
            let mut old = library("libcuda.so.1");
            old.iter_mut().skip(4).take(1).for_each(|class| *class = 1);
            fs::create_dir_all(root.join("usr/lib"))?;
            replace(&root.join("usr/lib").join(format!("libcuda.so.{version}")), &old)?;
        }
        socket(&root.join("run/nvidia-persistenced/socket"))
    }

    fn install_programs(self, root: &Path, version: &str) -> io::Result<()> {
        let (folder, linked) = match self {
            Self::Ubuntu | Self::Rhel | Self::Container => ("usr/bin".to_owned(), None),
            Self::Cos => ("bin".to_owned(), None),
            Self::Debian => ("usr/lib/nvidia/current".to_owned(), Some("usr/bin")),
            Self::NixOs => {
                (format!("{}-bin/bin", store(version)), Some("run/current-system/sw/bin"))
            }
        };
        for program in PROGRAMS {
            let text = if program == "nvidia-smi" { SMI } else { "#!/bin/sh\nexit 1\n" };
            let path = root.join(&folder).join(program);
            keep(&path, text)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
            if let Some(linked) = linked {
                link(format!("/{folder}/{program}"), &root.join(linked).join(program))?;
            }
        }
        Ok(())
    }

    fn install_firmware(self, host: &Path, root: &Path, version: &str) -> io::Result<()> {
        let folder = match self {
            Self::Ubuntu | Self::Debian | Self::Rhel | Self::Container => "lib/firmware".to_owned(),
            Self::NixOs => format!("{}-firmware/lib/firmware", store(version)),
            Self::Cos => "firmware".to_owned(),
        };
        for name in ["gsp_ga10x.bin", "gsp_tu10x.bin"] {
            keep(&root.join(&folder).join("nvidia").join(version).join(name), "firmware\n")?;
        }
        if let Self::NixOs | Self::Cos = self {
            let path = Path::new("/").join(self.root()).join(&folder);
            let parameter = host.join("sys/module/firmware_class/parameters/path");
            keep(&parameter, &format!("{}\n", path.display()))?;
        }
        Ok(())
    }

    fn install_settings(self, root: &Path) -> io::Result<()> {
        let share = match self {
            Self::Cos => root.to_owned(),
            Self::NixOs => root.join(NIX_DRIVERS).join("share"),
            _ => root.join("usr/share"),
        };
        let icd = "{\"file_format_version\": \"1.0.0\", \"ICD\": {\"library_path\": \"libGLX_nvidia.so.0\"}}\n";
        keep(&share.join("vulkan/icd.d/nvidia_icd.json"), icd)?;
        if self == Self::Cos {
            return Ok(());
        }
        keep(&share.join("glvnd/egl_vendor.d/10_nvidia.json"), icd)?;
        keep(&share.join("egl/egl_external_platform.d/15_nvidia_gbm.json"), icd)?;
        keep(&root.join("etc/OpenCL/vendors/nvidia.icd"), "libnvidia-opencl.so.1\n")
    }
}

/// The folder of NixOS that leads to whatever the driver is.
const NIX_DRIVERS: &str = "nix/store/4b1dz0y8-graphics-drivers";

/// The folder of a driver's package on NixOS.
fn store(version: &str) -> String {
    format!("nix/store/9v2hq5lk-nvidia-x11-{version}-6.12")
}

/// Makes a link, in the place of another.
fn link(target: impl AsRef<Path>, path: &Path) -> io::Result<()> {
    if fs::read_link(path).is_ok_and(|there| there == target.as_ref()) {
        return Ok(());
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => symlink(target, path),
    }
}

/// A socket that nobody listens to.
fn socket(path: &Path) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    match mknodat(CWD, path, FileType::Socket, Mode::from_raw_mode(0o777), 0) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// The library as cargo built it, beside this program or in the folder of its dependencies.
fn built() -> io::Result<PathBuf> {
    let program = env::current_exe()?;
    let folders = program.ancestors().skip(1).take(2);
    let mut places = folders.flat_map(|folder| [folder.to_owned(), folder.join("deps")]);
    let name = "libdivvy_fake_nvml.so";
    places.find_map(|folder| Some(folder.join(name)).filter(|path| path.exists())).ok_or_else(
        || {
            io::Error::other(format!(
                "{name} is not beside {}: build the workspace",
                program.display()
            ))
        },
    )
}
