use std::{
    fs,
    io::Cursor,
    os::unix::fs::{FileTypeExt as _, symlink},
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
};

use tempfile::TempDir;

use super::*;

/// A bundle with a root, and a folder beside it that nothing may reach.
pub(super) struct Bundle(TempDir);

impl Bundle {
    pub(super) fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        for dir in ["rootfs/etc", "rootfs/usr/lib", "outside"] {
            fs::create_dir_all(temp.path().join(dir)).unwrap();
        }
        let bundle = Self(temp);
        bundle.write("config.json", r#"{"root":{"path":"rootfs","readonly":true},"x":[]}"#);
        bundle.write("outside/file", "untouched");
        bundle
    }

    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    #[expect(clippy::disallowed_methods, reason = "nothing reads it meanwhile")]
    pub(super) fn write(&self, path: &str, text: impl AsRef<[u8]>) {
        fs::create_dir_all(self.path(path).parent().unwrap()).unwrap();
        fs::write(self.path(path), text).unwrap();
    }

    pub(super) fn root(&self) -> Root {
        open(self.0.path()).unwrap()
    }

    fn state(&self) -> String {
        // As crun prints it.
        format!("{{\"id\":\"c\",\"pid\":7,\"bundle\":\"{}\"}}", self.0.path().display())
            .replace('/', "\\/")
    }

    fn apply(&self, args: &[&str]) -> Result<(), ContainerError> {
        apply(&parse(args).unwrap(), Cursor::new(self.state()))
    }

    fn link(&self, link: &str) -> Result<(), ContainerError> {
        self.apply(&["--link", &format!("target::{link}")])
    }

    /// That nothing was made or changed outside of the root.
    fn nothing_outside(&self) {
        let names = |dir: &str| -> Vec<_> {
            let entries = fs::read_dir(self.path(dir)).unwrap();
            let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
        };
        assert_eq!(names("outside"), ["file"]);
        assert_eq!(names("."), ["config.json", "outside", "rootfs"]);
        assert_eq!(fs::read_to_string(self.path("outside/file")).unwrap(), "untouched");
    }
}

fn parse(args: &[&str]) -> Result<Edits, String> {
    Edits::parse(&args.iter().map(OsString::from).collect::<Vec<_>>())
}

fn text(result: Result<(), ContainerError>) -> String {
    log::chain(&result.unwrap_err())
}

#[test]
fn arguments_are_absolute_and_lead_nowhere_else() {
    let edits = parse(&["--link", "../a::/b/c", "--folder", "/d", "--link", "/x::/y"]).unwrap();
    assert_eq!(edits.links, [("../a".into(), "/b/c".into()), ("/x".into(), "/y".into())]);
    assert_eq!(edits.folders, [PathBuf::from("/d")]);
    assert_eq!(parse(&["--mount", "/a::/b"]).unwrap().mounts, [("/a".into(), "/b".into())]);
    assert_eq!(parse(&[]).unwrap(), Edits::default());
    for bad in [
        &["--link"][..],
        &["--link", "a"],
        &["--link", "::/b"],
        &["--link", "a::b"],
        &["--link", "a::/"],
        &["--link", "a::/b/../c"],
        &["--link", "a::/b/.."],
        &["--mount", "/a"],
        &["--mount", "a::/b"],
        &["--mount", "/a::b"],
        &["--mount", "/a/../b::/c"],
        &["--folder", "/"],
        &["--folder", "d"],
        &["--folder", "/a\n/b"],
        &["--folder", ""],
        &["--other", "/d"],
        &["/d"],
    ] {
        assert!(parse(bad).is_err(), "{bad:?}");
    }
}

#[test]
fn links_are_made_once_with_their_parents() {
    let bundle = Bundle::new();
    bundle.write("rootfs/dev/dri/card0", "");
    let args =
        ["--link", "libcuda.so.1::/usr/lib/x/libcuda.so", "--link", "../card0::/dev/dri/by-path/c"];
    bundle.apply(&args).unwrap();
    let made = bundle.path("rootfs/usr/lib/x/libcuda.so");
    assert_eq!(fs::read_link(&made).unwrap(), Path::new("libcuda.so.1"));
    assert!(fs::symlink_metadata(bundle.path("rootfs/dev/dri/by-path/c")).unwrap().is_symlink());
    let id = |path: &Path| {
        use std::os::unix::fs::MetadataExt as _;
        fs::symlink_metadata(path).unwrap().ino()
    };
    let before = id(&made);
    bundle.apply(&args).unwrap();
    assert_eq!(id(&made), before, "an equal link was made anew");
    // Another one is replaced, and no temporary name stays.
    bundle.apply(&["--link", "other::/usr/lib/x/libcuda.so"]).unwrap();
    assert_eq!(fs::read_link(&made).unwrap(), Path::new("other"));
    assert_eq!(fs::read_dir(bundle.path("rootfs/usr/lib/x")).unwrap().count(), 1);
    bundle.nothing_outside();
}

#[test]
fn what_is_no_link_is_never_replaced() {
    let bundle = Bundle::new();
    bundle.write("rootfs/usr/lib/file", "image's");
    fs::create_dir(bundle.path("rootfs/usr/lib/dir")).unwrap();
    mkfifo(&bundle.path("rootfs/usr/lib/fifo"));
    for name in ["file", "dir", "fifo"] {
        let said = text(bundle.link(&format!("/usr/lib/{name}")));
        assert!(
            said.starts_with("CONTAINER-LINK: /usr/lib/") && said.contains("already"),
            "{said}"
        );
    }
    assert!(
        fs::symlink_metadata(bundle.path("rootfs/usr/lib/fifo")).unwrap().file_type().is_fifo()
    );
    assert!(text(bundle.link("/usr/lib/file/x")).contains("no directory"));
    assert!(text(bundle.link("/usr/lib/fifo/x")).contains("no directory"));
}

/// Every component of the path is, in turn, a link that would lead out.
#[test]
fn no_component_leads_out_of_the_root() {
    let outside = |bundle: &Bundle| bundle.path("outside").to_str().unwrap().to_owned();
    for leads in ["absolute", "../../../../../../../outside", "../outside", "/proc/self/cwd", "/"] {
        for (component, below) in [("a", "b/c/"), ("a/b", "c/"), ("a/b/c", "")] {
            let bundle = Bundle::new();
            let target = if leads == "absolute" { outside(&bundle) } else { leads.to_owned() };
            let at = bundle.path("rootfs").join(component);
            fs::create_dir_all(at.parent().unwrap()).unwrap();
            symlink(&target, &at).unwrap();
            let result = bundle.link("/a/b/c/link");
            bundle.nothing_outside();
            // Either it stays inside, or it is refused; `/` is the container's own.
            if leads == "/" {
                result.unwrap();
                let inside = bundle.path("rootfs").join(below).join("link");
                assert!(fs::symlink_metadata(inside).unwrap().is_symlink());
            } else {
                assert!(text(result).starts_with("CONTAINER-LINK: /a/b/c/link"), "{leads}");
            }
        }
    }
}

#[test]
fn a_link_of_proc_leads_nowhere() {
    let bundle = Bundle::new();
    let root = Root::open(Path::new("/proc/self/task")).unwrap().unwrap();
    let thread = fs::read_dir("/proc/self/task").unwrap().next().unwrap().unwrap().file_name();
    let link = Path::new("/").join(thread).join("cwd/link");
    assert_eq!(root.link(Path::new("target"), &link), Err(Errno::LOOP));
    bundle.nothing_outside();
}

#[test]
fn the_cache_is_read_and_written_inside() {
    for etc in ["absolute", "../outside"] {
        let bundle = Bundle::new();
        fs::remove_dir(bundle.path("rootfs/etc")).unwrap();
        let outside = bundle.path("outside");
        symlink(
            if etc == "absolute" { outside.to_str().unwrap() } else { etc },
            bundle.path("rootfs/etc"),
        )
        .unwrap();
        cache::tests::with_libraries(&bundle);
        let said = text(bundle.apply(&["--folder", "/usr/lib"]));
        assert!(said.starts_with("CONTAINER-CACHE: /etc/ld.so.cache"), "{said}");
        bundle.nothing_outside();
    }
    // The cache itself as a link: it is replaced, not followed.
    let bundle = Bundle::new();
    symlink(bundle.path("outside/file"), bundle.path("rootfs/etc/ld.so.cache")).unwrap();
    cache::tests::with_libraries(&bundle);
    bundle.apply(&["--folder", "/usr/lib"]).unwrap();
    assert!(fs::symlink_metadata(bundle.path("rootfs/etc/ld.so.cache")).unwrap().is_file());
    bundle.nothing_outside();
}

/// A thread swaps a folder for a link that leads out, as a volume of another container could.
#[test]
fn a_race_does_not_lead_out() {
    let bundle = Bundle::new();
    let [real, other, at] = ["real", "other", "at"].map(|name| bundle.path("rootfs").join(name));
    fs::create_dir(&at).unwrap();
    symlink(bundle.path("outside"), &other).unwrap();
    let done = AtomicBool::new(false);
    let mut made = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let _swapped = fs::rename(&at, &real).and_then(|()| fs::rename(&other, &at));
                let _back = fs::rename(&at, &other).and_then(|()| fs::rename(&real, &at));
            }
        });
        for turn in 0..3000 {
            made += usize::from(bundle.link(&format!("/at/link{turn}")).is_ok());
        }
        done.store(true, Ordering::Relaxed);
    });
    assert!(made > 0, "the race was never won");
    bundle.nothing_outside();
}

#[test]
fn states_and_configs_that_are_none() {
    let edits = Edits::default();
    for (state, says) in [
        ("".to_owned(), "INPUT: the container's state"),
        ("[".to_owned(), "INPUT: the container's state"),
        ("{\"id\":\"c\"}".to_owned(), "INPUT: the container's state"),
        ("{\"id\":\"c\",\"bundle\":\"relative\"}".to_owned(), "is no absolute path"),
        ("{\"id\":\"c\",\"bundle\":7}".to_owned(), "INPUT: "),
        (" ".repeat(5 << 20) + "{}", "INPUT: "),
        ("{\"id\":\"c\",\"bundle\":\"/nowhere\"}".to_owned(), "BUNDLE: "),
    ] {
        let said = text(apply(&edits, Cursor::new(state)));
        assert!(said.contains(says), "{said}");
    }
    let bundle = Bundle::new();
    for config in [
        "",
        "{}",
        "{\"root\":7}",
        "{\"root\":{\"path\":[]}}",
        "\u{0}",
        "{\"root\":{\"path\":\"x\"}}",
    ] {
        bundle.write("config.json", config);
        let said = text(bundle.apply(&[]));
        let code = said.starts_with("CONTAINER-ROOT: ") || said.starts_with("BUNDLE-INVALID: ");
        assert!(code && said.contains("config.json"), "{said}");
    }
    // A host's own root is no container's.
    bundle.write("config.json", "{\"root\":{\"path\":\"/\"}}");
    assert!(text(bundle.apply(&[])).contains("the host's own"));
    // A FIFO does not block.
    fs::remove_file(bundle.path("config.json")).unwrap();
    mkfifo(&bundle.path("config.json"));
    assert!(text(bundle.apply(&[])).starts_with("BUNDLE: "));
}

#[test]
fn what_a_file_system_refuses_stops_nobody() {
    let refusal = |errno: Errno| ContainerError::Link { link: "/l".into(), source: errno.into() };
    for errno in [Errno::ROFS, Errno::ACCESS, Errno::PERM, Errno::BUSY] {
        assert!(refusal(errno).is_refused());
        // Worse that comes later is not hidden by it.
        assert!(keep(Err(refusal(errno)), Ok(())).unwrap().is_err());
        assert!(keep(Err(refusal(errno)), Err(refusal(Errno::EXIST))).is_err());
    }
    assert!(!refusal(Errno::EXIST).is_refused());
}

pub(super) fn mkfifo(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}
