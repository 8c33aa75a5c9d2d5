//! The driver's files, on hosts that are laid out as distributions, the driver container, GKE and
//! NixOS do it.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::{fs::symlink, net::UnixListener},
    path::{Path, PathBuf},
};

use divvy::gpu::{Files, Gpus, Mig, MountKind, Roots, nvml::Nvml};
use divvy_cdi::file::Durability;
use divvy_fake_nvml::{Layout, library};
use divvy_hook::container::{cache, root::Root};

use super::{
    Outcome, Test, named,
    support::{self, Fake, Gpu, SOON, fails, fake, fake_as, folder},
};

const GPUS: &[Gpu] = &[("H100-80GB", false)];
const VERSION: &str = "580.65.06";

pub(crate) fn tests() -> Vec<Test> {
    named(
        "driver",
        &[
            ("every layout has all that containers need", layouts),
            ("links of a driver container stay in it", contained),
            ("libraries elsewhere are found by the loader's cache", cached),
            ("what computing needs must be there", incomplete),
            ("what graphics need is only missed", lacking),
            ("what is not the driver's, or not safe to name, is left out", strange),
            ("a reload of the driver has other files", reloaded),
            ("what comes and goes is noticed", noticed),
            ("device nodes are below the dev root", dev_root),
            ("nodes to render with have the kernel's numbers, or are missed", display),
        ],
    )
}

/// The files of a driver; or why there are none here.
fn files(fake: &Fake) -> Result<Files, Outcome> {
    match support::no_nodes(fake) {
        Some(why) => Err(Outcome::Skipped(why)),
        None => Ok(fake.nvml.driver_files().unwrap()),
    }
}

/// Paths in a container.
fn paths(files: &Files) -> BTreeSet<&str> {
    files.mounts.iter().map(|file| file.path.as_str()).collect()
}

fn link<'a>(files: &'a Files, path: &str) -> Option<&'a str> {
    files.links.iter().find(|link| link.path == path).map(|link| link.target.as_str())
}

fn layouts() -> Outcome {
    for layout in Layout::ALL {
        let fake = fake_as(layout, folder(), GPUS, SOON);
        let found = match files(&fake) {
            Ok(found) => found,
            Err(skipped) => return skipped,
        };
        let root = fake.host.root().join(layout.root());
        let folder = format!("/{}", layout.libraries(VERSION));
        assert_eq!(found.folders, [folder.as_str()], "{layout:?}");
        let paths = paths(&found);
        for name in ["libcuda", "libnvidia-ml", "libnvidia-ptxjitcompiler", "libnvidia-encode"] {
            assert!(
                paths.contains(&*format!("{folder}/{name}.so.{VERSION}")),
                "{layout:?}: {paths:?}"
            );
        }
        let smi = if layout == Layout::Cos { "/bin/nvidia-smi" } else { "/usr/bin/nvidia-smi" };
        let firmware = format!("/lib/firmware/nvidia/{VERSION}/gsp_ga10x.bin");
        for path in [smi, &firmware, "/etc/vulkan/icd.d/nvidia_icd.json"] {
            assert!(paths.contains(path), "{layout:?}: {path} of {paths:?}");
        }
        let rest = layout == Layout::Cos;
        assert_eq!(paths.contains("/run/nvidia-persistenced/socket"), !rest, "{layout:?}");
        assert_eq!(paths.contains("/etc/OpenCL/vendors/nvidia.icd"), !rest, "{layout:?}");
        assert_eq!(found.lacking, if rest { &["OpenCL"][..] } else { &[] }, "{layout:?}");
        let module = paths.iter().any(|path| path.contains("/libglxserver_nvidia.so."));
        assert_eq!(module, !rest, "{layout:?}");
        assert_eq!(paths.len(), found.mounts.len(), "no path twice: {found:#?}");
        for file in &found.mounts {
            // A link would lead somewhere else on the host than below the root.
            let host = Path::new(&file.host_path);
            assert_eq!(host.canonicalize().unwrap(), host, "{layout:?}");
            assert!(host.starts_with(&root), "{layout:?}: {file:?}");
            let socket = file.path.ends_with("/socket");
            assert_eq!(file.kind == MountKind::Socket, socket, "{file:?}");
        }
        let by = |name: &str| link(&found, &format!("{folder}/{name}")).unwrap_or_default();
        assert_eq!(by("libcuda.so"), "libcuda.so.1", "{layout:?}");
        assert_eq!(by("libcuda.so.1"), format!("libcuda.so.{VERSION}"));
        assert_eq!(by("libGLX_indirect.so.0"), format!("libGLX_nvidia.so.{VERSION}"));
        assert_eq!(by("libnvidia-egl-gbm.so.1"), "libnvidia-egl-gbm.so.1.1.2");
        assert_eq!(by("gbm/nvidia-drm_gbm.so"), "../libnvidia-allocator.so.1");
        assert_eq!(fake.nvml.driver_files().unwrap(), found, "{layout:?}: the same each time");
        // What time slices are set by is found there too.
        assert!(fake.nvml.time_slice(&fake.uuid(0)).is_ok(), "{layout:?}");
    }
    Outcome::Done
}

/// Absolute links below its root lead to other files on the host, which must not be taken.
fn contained() -> Outcome {
    let fake = fake_as(Layout::Container, folder(), GPUS, SOON);
    let host = fake.host.root();
    let inside = host.join(Layout::Container.root());
    fs::rename(inside.join("usr/bin/nvidia-smi"), inside.join("usr/bin/smi")).unwrap();
    symlink("/etc/passwd", inside.join("usr/bin/nvidia-debugdump.new")).unwrap();
    fs::rename(
        inside.join("usr/bin/nvidia-debugdump.new"),
        inside.join("usr/bin/nvidia-debugdump"),
    )
    .unwrap();
    symlink("/usr/bin/smi", inside.join("usr/bin/nvidia-smi")).unwrap();
    symlink("../../../../../../usr/bin/smi", inside.join("usr/bin/nvidia-xconfig")).unwrap();
    let found = match files(&fake) {
        Ok(found) => found,
        Err(skipped) => return skipped,
    };
    let of = |path: &str| found.mounts.iter().find(|file| file.path == path);
    let smi = Some(inside.join("usr/bin/smi"));
    for path in ["/usr/bin/nvidia-smi", "/usr/bin/nvidia-xconfig"] {
        assert_eq!(of(path).map(|file| PathBuf::from(&file.host_path)), smi, "{found:#?}");
    }
    assert_eq!(of("/usr/bin/nvidia-debugdump"), None, "/etc/passwd is none of its files");
    Outcome::Done
}

fn cached() -> Outcome {
    let fake = fake(GPUS);
    let (root, folder) = (fake.host.root(), fake.host.root().join("opt/driver"));
    let cuda = format!("libcuda.so.{VERSION}");
    fs::create_dir_all(&folder).unwrap();
    let usual = root.join(Layout::Ubuntu.libraries(VERSION));
    fs::rename(usual.join(&cuda), folder.join(&cuda)).unwrap();
    fs::remove_file(usual.join("libcuda.so.1")).unwrap();
    symlink(&cuda, folder.join("libcuda.so.1")).unwrap();
    if let Some(why) = support::no_nodes(&fake) {
        return Outcome::Skipped(why);
    }
    fails(fake.nvml.driver_files(), "DRIVER-INCOMPLETE", &cuda);
    fs::create_dir_all(root.join("etc")).unwrap();
    support::write(&root.join("etc/ld.so.cache"), "");
    cache::update(&Root::any(root).unwrap(), &["/opt/driver".into()]).unwrap();
    let found = fake.nvml.driver_files().unwrap();
    assert_eq!(found.folders, ["/usr/lib/x86_64-linux-gnu", "/opt/driver"]);
    assert!(paths(&found).contains(&*format!("/opt/driver/{cuda}")));
    assert_eq!(link(&found, "/opt/driver/libcuda.so.1"), Some(&*cuda));
    Outcome::Done
}

fn incomplete() -> Outcome {
    let fake = fake(GPUS);
    if let Err(skipped) = files(&fake) {
        return skipped;
    }
    let folder = fake.host.root().join(Layout::Ubuntu.libraries(VERSION));
    let cuda = folder.join(format!("libcuda.so.{VERSION}"));
    // As where the package was updated, and the kernel module was not.
    fs::rename(&cuda, folder.join("libcuda.so.580.95.05")).unwrap();
    fails(
        fake.nvml.driver_files(),
        "DRIVER-INCOMPLETE",
        "where libcuda.so.580.95.05 is of another",
    );
    // What is no library counts as none.
    support::write(&cuda, "");
    fails(fake.nvml.driver_files(), "DRIVER-INCOMPLETE", &format!("libcuda.so.{VERSION} is not"));
    let _either = fs::remove_file(&cuda);
    symlink(&cuda, &cuda).unwrap();
    fails(fake.nvml.driver_files(), "DRIVER-INCOMPLETE", "/usr/lib/x86_64-linux-gnu");
    Outcome::Done
}

fn lacking() -> Outcome {
    let fake = fake(GPUS);
    let root = fake.host.root();
    fs::remove_dir_all(root.join("usr/share")).unwrap();
    fs::remove_dir_all(root.join("usr/bin")).unwrap();
    fs::remove_dir_all(root.join("lib")).unwrap();
    match files(&fake) {
        Ok(found) => assert_eq!(found.lacking, ["nvidia-smi", "GSP firmware", "Vulkan"]),
        Err(skipped) => return skipped,
    }
    Outcome::Done
}

fn strange() -> Outcome {
    let fake = fake(GPUS);
    let folder = fake.host.root().join(Layout::Ubuntu.libraries(VERSION));
    let put = |name: &str, soname: &str| {
        let bytes = library(soname);
        divvy_cdi::file::replace(&folder.join(name), &bytes, 0o644, Durability::Volatile).unwrap();
    };
    put("libnvidia-ml.so.570.1", "libnvidia-ml.so.1");
    put(&format!("libx\n.so.{VERSION}"), "libx.so.1");
    put(&format!("liby::z.so.{VERSION}"), "liby.so.1");
    put(&format!("libodd.so.{VERSION}"), "lib\u{1b}odd::x.so.1");
    put(&format!("libup.so.{VERSION}"), "../../../etc/up");
    fs::create_dir(folder.join(format!("libfolder.so.{VERSION}"))).unwrap();
    let found = match files(&fake) {
        Ok(found) => found,
        Err(skipped) => return skipped,
    };
    let all = format!("{found:?}");
    for name in ["570.1", "libx", "liby", "libodd.so.1", "odd::x", "etc/up", "libfolder"] {
        assert!(!all.contains(name), "{name}: {all}");
    }
    for name in ["libodd", "libup"] {
        assert!(all.contains(&format!("/{name}.so.{VERSION}\"")), "{name}: {all}");
    }
    Outcome::Done
}

fn reloaded() -> Outcome {
    for layout in Layout::ALL {
        let fake = fake_as(layout, folder(), GPUS, SOON);
        if let Err(skipped) = files(&fake) {
            return skipped;
        }
        fake.host.reload_driver("580.95.05").unwrap();
        let found = format!("{:?}", files(&fake).ok());
        assert!(found.contains("libcuda.so.580.95.05"), "{layout:?}: {found}");
        assert!(!found.contains(VERSION), "{layout:?}: {found}");
    }
    Outcome::Done
}

/// They are looked for once, and again when a folder has changed.
fn noticed() -> Outcome {
    let fake = fake(GPUS);
    let first = match files(&fake) {
        Ok(first) => first,
        Err(skipped) => return skipped,
    };
    let root = fake.host.root();
    let has = |path: &str| paths(&fake.nvml.driver_files().unwrap()).contains(path);
    let cases = [
        ("usr/bin/nvidia-xconfig", "/usr/bin/nvidia-xconfig"),
        ("usr/share/vulkan/icd.d/nvidia_layers.json", "/etc/vulkan/icd.d/nvidia_layers.json"),
        ("usr/local/bin/nvidia-imex", "/usr/local/bin/nvidia-imex"),
    ];
    for (below, path) in cases {
        assert!(!has(path), "{path}");
        fs::create_dir_all(root.join(below).parent().unwrap()).unwrap();
        support::write(&root.join(below), "");
        assert!(has(path), "{path}");
        fs::remove_file(root.join(below)).unwrap();
        assert!(!has(path), "{path}");
    }
    // Where a link leads to, nobody looks for names.
    let folder = root.join("usr/lib/x86_64-linux-gnu");
    let (name, elsewhere) = (format!("libnvidia-pkcs11.so.{VERSION}"), root.join("opt/nvidia"));
    fs::create_dir_all(&elsewhere).unwrap();
    fs::copy(folder.join(format!("libcuda.so.{VERSION}")), elsewhere.join(&name)).unwrap();
    let link = folder.join(&name);
    symlink(format!("../../../opt/nvidia/{name}"), &link).unwrap();
    let path = format!("/opt/nvidia/{name}");
    assert!(has(&path));
    // So that it is taken for what does not change any more.
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert!(has(&path));
    fs::remove_file(elsewhere.join(&name)).unwrap();
    assert!(!has(&path));
    fs::remove_file(link).unwrap();
    let socket = root.join("run/nvidia-persistenced/socket");
    fs::remove_file(&socket).unwrap();
    assert!(!has("/run/nvidia-persistenced/socket"));
    let _listener = UnixListener::bind(&socket).unwrap();
    assert_eq!(fake.nvml.driver_files().unwrap(), first);
    Outcome::Done
}

fn dev_root() -> Outcome {
    let fake = fake(GPUS);
    if let Some(why) = support::no_nodes(&fake) {
        return Outcome::Skipped(why);
    }
    let root = fake.host.root();
    fs::create_dir_all(root.join("opt")).unwrap();
    fs::rename(root.join("dev"), root.join("opt/dev")).unwrap();
    fails(fake.nvml.driver_files(), "DEVICE-GONE", "dev/nvidiactl");
    let roots = Roots { driver: None, dev: Some(root.join("opt")) };
    let nvml = Nvml::open(root, &roots, SOON).unwrap();
    let nodes = support::device_files(&nvml, &fake.uuid(0), None).unwrap().nodes;
    assert_eq!(nodes[0].path, "/dev/nvidia0");
    assert_eq!(Path::new(&nodes[0].host_path), root.join("opt/dev/nvidia0"));
    assert!(nvml.driver_files().is_ok());
    Outcome::Done
}

fn display() -> Outcome {
    let fake = fake(&[("T4-16GB", false), ("T4-16GB", false)]);
    if let Some(why) = support::no_nodes(&fake) {
        return Outcome::Skipped(why);
    }
    let (uuid, dri) = (fake.uuid(1), fake.host.root().join("dev/dri"));
    let found = support::display_files(&fake.nvml, &uuid).unwrap();
    let nodes: Vec<&str> = found.nodes.iter().map(|node| node.path.as_str()).collect();
    assert_eq!(nodes, ["/dev/dri/card1", "/dev/dri/renderD129"]);
    let by_path = "/dev/dri/by-path/pci-0000:43:00.0";
    assert_eq!(link(&found, &format!("{by_path}-card")), Some("../card1"));
    assert_eq!(link(&found, &format!("{by_path}-render")), Some("../renderD129"));
    // A claim computes: it gets none of them unless it asks.
    let device = support::device_files(&fake.nvml, &uuid, None).unwrap();
    assert!(device.nodes.iter().all(|node| !node.path.contains("/dri/")), "{device:?}");
    graphics();

    fs::remove_file(dri.join("card1")).unwrap();
    let found = support::display_files(&fake.nvml, &uuid).unwrap();
    assert_eq!(found.nodes.len(), 1);
    assert_eq!(found.lacking, [dri.join("card1").display().to_string()]);
    assert_eq!(link(&found, &format!("{by_path}-card")), None, "a link to nothing");
    // That of the other GPU under its name, as after a boot that found them the other way round.
    fs::rename(dri.join("card0"), dri.join("card1")).unwrap();
    fails(
        support::display_files(&fake.nvml, &uuid),
        "DEVICE-CHANGED",
        "226:0, and the driver's are 226:1",
    );
    Outcome::Done
}

/// A partition whose profile is for graphics has them besides what others have.
fn graphics() {
    let fake = fake(&[("H100-80GB", true)]);
    let uuid = fake.uuid(0);
    let made = fake.nvml.create_partition(&uuid, "1g.10gb", support::place(0, 1)).unwrap();
    let mut gpu = fake.inventory().find(&uuid).unwrap().clone();
    let files = |gpu: &divvy::gpu::Gpu| fake.nvml.device_files(gpu, Some(&made.uuid)).unwrap();
    let plain = files(&gpu);
    assert!(plain.nodes.iter().all(|node| !node.path.contains("/dri/")), "{plain:?}");
    if let Mig::On(partitions) = &mut gpu.mig {
        partitions[0].profile.push_str("+gfx");
    }
    let mut graphic = files(&gpu);
    let shown = fake.nvml.display_files(&gpu).unwrap();
    assert!(!shown.nodes.is_empty() && graphic.links == shown.links);
    let dri = graphic.nodes.split_off(plain.nodes.len());
    assert_eq!((graphic.nodes, dri), (plain.nodes, shown.nodes));
}
