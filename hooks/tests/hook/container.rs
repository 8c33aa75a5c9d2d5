//! The createContainer hook: files of the host, mounted in a container. It takes CAP_SYS_ADMIN.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use nix::mount::{MntFlags, MsFlags, mount, umount2};

use crate::support::{Host, Outcome};

/// A container on a host whose driver has one library.
struct Container(Host);

const LIBRARY: &str = "/usr/lib/libcuda.so.1.2";

#[test]
fn a_file_is_mounted_to_read_and_run_wherever_it_leads() {
    let container = Container::new();
    let image = [("file", ""), ("other", "image's")];
    for (name, text) in image {
        container.0.write(&format!("bundle/rootfs/usr/lib/{name}"), text);
    }
    let links = [
        ("nowhere", "dangles"),
        ("/usr/lib/other", "leads"),
        ("/opt/nv/bin/smi", "far"),
        ("../local/far", "by-far"),
    ];
    for (leads, name) in links {
        symlink(leads, container.path(&format!("/usr/lib/{name}"))).unwrap();
    }
    let cases = [
        (LIBRARY, LIBRARY),
        ("/usr/lib/file", "/usr/lib/file"),
        ("/usr/lib/dangles", "/usr/lib/nowhere"),
        ("/usr/lib/leads", "/usr/lib/other"),
        ("/usr/lib/far", "/opt/nv/bin/smi"),
        ("/usr/lib/by-far", "/usr/local/far"),
        ("/new/folder/file", "/new/folder/file"),
    ];
    for (target, stands) in cases {
        container.mounted(target).succeeded();
        let path = container.path(stands);
        assert_eq!(fs::read_to_string(&path).unwrap(), "library", "{target}");
        assert!(!fs::symlink_metadata(&path).unwrap().is_symlink(), "{target}");
        // Private: no `shared:` and no `master:` stands before the dash.
        let mounts = container.mounts(stands);
        let [one] = &mounts[..] else { panic!("{mounts:?}") };
        assert!(one.starts_with("ro,nosuid,nodev") && one.split(' ').count() == 2, "{one}");
    }
    for (_, stands) in cases {
        container.unmount(stands);
    }
    // What is below is untouched, and a container that starts again gets it again.
    assert_eq!(fs::read_to_string(container.path("/usr/lib/other")).unwrap(), "image's");
    assert_eq!(fs::metadata(container.path(LIBRARY)).unwrap().len(), 0);
    container.mounted(LIBRARY).succeeded();
    container.unmount(LIBRARY);
}

#[test]
fn no_link_of_an_image_leads_a_mount_out() {
    let container = Container::new();
    container.0.write("outside", "untouched");
    let outside = container.0.path("outside");
    let far = outside.display().to_string();
    let up = "../../../../../../outside";
    for (name, leads, inside) in [("/usr/lib/a", &*far, &*far), ("/usr/lib/b", up, "/outside")] {
        symlink(leads, container.path(name)).unwrap();
        container.mounted(name).succeeded();
        assert_eq!(fs::read_to_string(&outside).unwrap(), "untouched");
        assert_eq!(fs::read_link(container.path(name)).unwrap(), Path::new(leads), "a volume's?");
        assert_eq!(container.mounts(inside).len(), 1);
        container.unmount(inside);
    }
    // A folder that is a link leads to the same place of the container.
    symlink(container.0.path("bundle"), container.path("/lib")).unwrap();
    container.mounted("/lib/x").error("CONTAINER-MOUNT");
    assert!(!container.0.path("bundle/x").exists());
}

#[test]
fn what_the_kernel_tells_is_not_mounted_over() {
    let container = Container::new();
    let proc = container.path("/proc");
    fs::create_dir(&proc).unwrap();
    let none = None::<&Path>;
    mount(Some("proc"), &proc, Some("proc"), MsFlags::empty(), none).unwrap();
    symlink("/proc/version", container.path(LIBRARY)).unwrap();
    let outcome = container.mounted(LIBRARY);
    umount2(&proc, MntFlags::MNT_DETACH).unwrap();
    assert!(outcome.error("CONTAINER-MOUNT").contains(LIBRARY));
}

#[test]
fn what_cannot_be_mounted_fails_with_both_paths() {
    let container = Container::new();
    fs::create_dir(container.path("/usr/lib/folder")).unwrap();
    let source = container.source();
    for (source, target) in
        [("/nothing/libcuda.so", LIBRARY), ("/etc", LIBRARY), (source.as_str(), "/usr/lib/folder")]
    {
        let outcome = container.hook(&["--mount", &format!("{source}::{target}")]);
        let line = outcome.error("CONTAINER-MOUNT");
        assert!(line.contains(source) && line.contains(target), "{line}");
        assert_eq!(container.mounts(target), [""; 0]);
        assert!(target != LIBRARY || !container.path(LIBRARY).exists(), "left behind");
    }
}

#[test]
fn a_link_whose_device_the_container_lacks_is_not_made() {
    let container = Container::new();
    fs::create_dir_all(container.path("/dev/dri")).unwrap();
    container.0.write("bundle/rootfs/dev/dri/card0", "");
    let link = |number: u8| format!("../card{number}::/dev/dri/by-path/card{number}");
    container.hook(&["--link", &link(0), "--link", &link(1)]).succeeded();
    let there = |name: &str| fs::symlink_metadata(container.path(name)).is_ok();
    assert!(there("/dev/dri/by-path/card0"));
    assert!(!there("/dev/dri/by-path/card1"));
}

// === impl Container ===

impl Container {
    fn new() -> Self {
        let host = Host::new("");
        host.write("bundle/config.json", r#"{"root":{"path":"rootfs"}}"#);
        host.write("library", "library");
        let container = Self(host);
        fs::create_dir_all(container.path("/usr/lib")).unwrap();
        container
    }

    /// A path of the container, as the host has it.
    fn path(&self, path: &str) -> PathBuf {
        self.0.path(&format!("bundle/rootfs{path}"))
    }

    fn source(&self) -> String {
        self.0.word("@/library")
    }

    fn hook(&self, args: &[&str]) -> Outcome {
        let state = self.0.word(r#"{"id":"c","pid":7,"bundle":"@/bundle"}"#);
        self.0.hook(&[&["container"], args].concat(), state.as_bytes())
    }

    fn mounted(&self, target: &str) -> Outcome {
        self.hook(&["--mount", &format!("{}::{target}", self.source())])
    }

    /// What is mounted at a path: options and optional fields, as the kernel says them.
    fn mounts(&self, path: &str) -> Vec<String> {
        let at = format!(" {} ", self.path(path).display());
        let all = fs::read_to_string("/proc/thread-self/mountinfo").unwrap();
        let of = |line: &str| {
            let (_, rest) = line.split_once(&at)?;
            Some(rest.split_inclusive(" -").next()?.to_owned())
        };
        all.lines().filter_map(of).collect()
    }

    fn unmount(&self, path: &str) {
        umount2(&self.path(path), MntFlags::MNT_DETACH).unwrap();
    }
}
