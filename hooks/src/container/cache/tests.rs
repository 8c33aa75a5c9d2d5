use std::{fs, os::unix::fs::symlink, process::Command};

use super::*;
use crate::container::{
    elf::tests::library,
    tests::{Bundle, mkfifo},
};

const FLAGS: u32 = if cfg!(target_arch = "aarch64") { 0x0a03 } else { 0x0303 };

/// Puts a driver's libraries, and glibc's loader, into the root.
pub(in crate::container) fn with_libraries(bundle: &Bundle) {
    bundle.write("rootfs/lib64/ld-linux-x86-64.so.2", "");
    for (file, soname) in [
        ("libgpu.so.9.2", "libgpu.so.1"),
        ("libgpu.so.10.1", "libgpu.so.1"),
        ("libml.so.10.1", "libml.so.1"),
        ("libzz.so.3", "libzz.so.3"),
    ] {
        bundle.write(&format!("rootfs/usr/lib/{file}"), library(soname));
    }
    symlink("libml.so.10.1", bundle.path("rootfs/usr/lib/libml.so.1")).unwrap();
    // None of these is one.
    bundle.write("rootfs/usr/lib/libscript.so", "INPUT(libgpu.so.1)");
    bundle.write("rootfs/usr/lib/other.so", library("other.so"));
    mkfifo(&bundle.path("rootfs/usr/lib/libfifo.so"));
    fs::create_dir(bundle.path("rootfs/usr/lib/libdir.so")).unwrap();
}

fn run(bundle: &Bundle, folders: &[&str]) -> Result<(), ContainerError> {
    update(&bundle.root(), &folders.iter().map(PathBuf::from).collect::<Vec<_>>())
}

/// Each name with where it leads, as the cache has them.
fn listed(bundle: &Bundle) -> Vec<(String, String)> {
    let bytes = fs::read(bundle.path("rootfs/etc/ld.so.cache")).unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let cache = Cache::parse(bytes).unwrap();
    cache.entries().map(|entry| (text(entry.name), text(entry.path))).collect()
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(name, path)| ((*name).to_owned(), (*path).to_owned())).collect()
}

fn found(name: &str, path: &str) -> Found {
    Found { flags: FLAGS, name: name.into(), path: path.into(), folder: 0, id: None, known: false }
}

#[test]
fn a_root_without_a_cache_gets_one() {
    let bundle = Bundle::new();
    with_libraries(&bundle);
    run(&bundle, &["/usr/lib", "/nowhere"]).unwrap();
    let expected = pairs(&[
        ("libzz.so.3", "/usr/lib/libzz.so.3"),
        ("libml.so.1", "/usr/lib/libml.so.1"),
        ("libgpu.so.1", "/usr/lib/libgpu.so.10.1"),
    ]);
    assert_eq!(listed(&bundle), expected);
    // The same again changes nothing.
    let before = fs::read(bundle.path("rootfs/etc/ld.so.cache")).unwrap();
    run(&bundle, &["/usr/lib"]).unwrap();
    assert_eq!(fs::read(bundle.path("rootfs/etc/ld.so.cache")).unwrap(), before);
    assert_eq!(fs::read_dir(bundle.path("rootfs/etc")).unwrap().count(), 1);
}

#[test]
fn musl_has_no_cache() {
    let bundle = Bundle::new();
    with_libraries(&bundle);
    fs::remove_dir_all(bundle.path("rootfs/lib64")).unwrap();
    run(&bundle, &["/usr/lib"]).unwrap();
    fs::remove_dir(bundle.path("rootfs/etc")).unwrap();
    run(&bundle, &["/usr/lib"]).unwrap();
    assert!(!bundle.path("rootfs/etc").exists());
}

/// What the image has stays; what the driver brings comes first; what is there is not there twice.
#[test]
fn the_image_keeps_what_it_has() {
    let bundle = Bundle::new();
    with_libraries(&bundle);
    symlink("usr/lib", bundle.path("rootfs/lib")).unwrap();
    let old = Cache::empty().with(&[
        found("libx.so.2", "/opt/libx.so.2"),
        found("libml.so.1", "/lib/libml.so.10.1"),
        found("libgpu.so.1", "/opt/libgpu.so.1"),
        found("liba.so.11", "/opt/liba.so.11"),
        found("liba.so.9", "/opt/liba.so.9"),
    ]);
    // As an image of an earlier glibc has it: behind the old form, which is left out.
    let mut both = OLD_MAGIC.to_vec();
    both.extend_from_slice(&[1, 0, 0, 0]);
    both.resize(32, 7);
    both.extend_from_slice(&old);
    for old in [old, both] {
        bundle.write("rootfs/etc/ld.so.cache", old);
        run(&bundle, &["/usr/lib"]).unwrap();
        let expected = pairs(&[
            ("libzz.so.3", "/usr/lib/libzz.so.3"),
            ("libx.so.2", "/opt/libx.so.2"),
            ("libml.so.1", "/lib/libml.so.10.1"),
            ("libgpu.so.1", "/usr/lib/libgpu.so.10.1"),
            ("libgpu.so.1", "/opt/libgpu.so.1"),
            ("liba.so.11", "/opt/liba.so.11"),
            ("liba.so.9", "/opt/liba.so.9"),
        ]);
        assert_eq!(listed(&bundle), expected);
    }
}

/// glibc's own reader takes it: the oracle. The cache of this machine has an extension, if its glibc
/// is 2.33 or newer.
#[test]
fn ldconfig_reads_it() {
    let bundle = Bundle::new();
    with_libraries(&bundle);
    let real = fs::read("/etc/ld.so.cache").unwrap();
    let print = |path: &Path| {
        let output = Command::new("/sbin/ldconfig").arg("-p").arg("-C").arg(path).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let before = print(Path::new("/etc/ld.so.cache"));
    bundle.write("rootfs/etc/ld.so.cache", real);
    run(&bundle, &["/usr/lib"]).unwrap();
    let after = print(&bundle.path("rootfs/etc/ld.so.cache"));
    let (new, same): (Vec<&str>, Vec<&str>) = after
        .lines()
        .skip(1)
        .partition(|line| line.contains("/usr/lib/lib") && !before.contains(*line));
    assert_eq!(new.len(), 3, "{after}");
    assert!(
        new[2].starts_with("\tlibgpu.so.1 (libc6,")
            && new[2].ends_with("=> /usr/lib/libgpu.so.10.1")
    );
    assert_eq!(same, before.lines().skip(1).collect::<Vec<_>>());
}

/// What is no cache counts as none, and no byte of one makes it panic or run on.
#[test]
fn hostile_caches() {
    let bundle = Bundle::new();
    with_libraries(&bundle);
    let cache = bundle.path("rootfs/etc/ld.so.cache");
    let huge = vec![0; MAX_CACHE + 1];
    for bad in [&b""[..], b"glibc", MAGIC, OLD_MAGIC, b"\x7fELF", &huge] {
        bundle.write("rootfs/etc/ld.so.cache", bad);
        run(&bundle, &["/usr/lib"]).unwrap();
        assert_eq!(listed(&bundle).len(), 3);
    }
    fs::remove_file(&cache).unwrap();
    mkfifo(&cache);
    run(&bundle, &["/usr/lib"]).unwrap();
    assert_eq!(listed(&bundle).len(), 3);

    let mut good = Cache::empty().with(&[found("b", "/b"), found("a", "/a")]);
    let extension = u32::try_from(good.len()).unwrap();
    good[32..36].copy_from_slice(&extension.to_le_bytes());
    for number in [0xeaa4_2174, 1, 1, 0, extension + 24, 4, extension] {
        good.extend_from_slice(&number.to_le_bytes());
    }
    let all = [found("c", "/c"), found("a", "/z"), found("", "/")];
    for at in 0..good.len() {
        for wrong in [0, 1, 0x7f, 0xff] {
            let mut bytes = good.clone();
            bytes[at] = wrong;
            if let Some(cache) = Cache::parse(bytes) {
                assert!(cache.with(&all).len() < 2 * good.len());
            }
        }
        if let Some(cache) = Cache::parse(good[..at].to_vec()) {
            let _any = cache.with(&all);
        }
    }
    // The extension and its name moved by as much as was put in front of them.
    let new = Cache::parse(good.clone()).unwrap().with(&all);
    let (moved, by) = (number32(&new, 32).unwrap(), new.len() - good.len());
    assert_eq!(moved, good.len() - 28 + by);
    assert_eq!(number32(&new, moved + 16), Some(moved + 24));
    assert_eq!(number32(&new, moved + 24), Some(moved));
}

#[test]
fn names_are_compared_as_glibc_does() {
    let order = [
        "libzz.so.3",
        "libc10.so",
        "libc9.so",
        "libc.so.10",
        "libc.so.6",
        "libc-client.so",
        "lib",
        "",
    ];
    for (at, a) in order.iter().enumerate() {
        for b in &order[at + 1..] {
            assert_eq!(compare(a.as_bytes(), b.as_bytes()), Ordering::Greater, "{a} {b}");
            assert_eq!(compare(b.as_bytes(), a.as_bytes()), Ordering::Less, "{a} {b}");
        }
        assert_eq!(compare(a.as_bytes(), a.as_bytes()), Ordering::Equal);
    }
    assert_eq!(compare(b"a\xff", b"aa"), Ordering::Less);
}
