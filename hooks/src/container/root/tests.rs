use super::*;
use crate::container::tests::{Bundle, mkfifo};

#[test]
fn only_regular_files_are_opened() {
    let bundle = Bundle::new();
    bundle.write("rootfs/etc/file", "0123456789");
    mkfifo(&bundle.path("rootfs/etc/fifo"));
    std::os::unix::fs::symlink("file", bundle.path("rootfs/etc/link")).unwrap();
    std::os::unix::fs::symlink("loop", bundle.path("rootfs/etc/loop")).unwrap();
    let root = bundle.root();
    let file = root.file(Path::new("/etc/link")).unwrap().unwrap();
    assert_eq!(file.size, 10);
    assert_eq!(file.bytes(3, 4).unwrap(), b"3456");
    assert_eq!(file.bytes(8, 4).unwrap(), b"89");
    assert_eq!(file.bytes(u64::MAX, 4).unwrap_or_default(), b"");
    for none in ["/etc/fifo", "/etc", "/nothing", "/etc/file/x", "/etc/loop"] {
        assert!(root.file(Path::new(none)).unwrap().is_none(), "{none}");
    }
    let folder = root.folder(Path::new("/etc")).unwrap();
    for none in ["fifo", "link", "nothing"] {
        assert!(File::in_folder(&folder, Path::new(none)).unwrap().is_none(), "{none}");
    }
    assert_eq!(root.id(Path::new("/etc/link")), file.id());
}

#[test]
fn a_file_is_replaced_whole() {
    let bundle = Bundle::new();
    let root = bundle.root();
    for bytes in [&b"first"[..], b"second"] {
        root.replace(Path::new("/new/folder"), "name", bytes).unwrap();
        assert_eq!(std::fs::read(bundle.path("rootfs/new/folder/name")).unwrap(), bytes);
    }
    std::fs::create_dir(bundle.path("rootfs/new/folder/taken")).unwrap();
    assert!(root.replace(Path::new("/new/folder"), "taken", b"x").is_err());
    assert_eq!(std::fs::read_dir(bundle.path("rootfs/new/folder")).unwrap().count(), 2);
}
