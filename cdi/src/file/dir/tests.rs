use std::{
    fs::{self as std_fs, Permissions},
    os::unix::fs::{PermissionsExt, symlink},
};

use super::*;

fn mode(path: &Path) -> u32 {
    std_fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

fn make(dir: &Path, mode: u32) -> Result<(), FileError> {
    make_dir(dir, mode, Durability::Durable)
}

fn check(dir: &Path) -> Result<bool, FileError> {
    check_dir(dir, &Trust::of_process())
}

#[test]
fn it_is_made_with_exactly_its_mode_and_its_parents_with_theirs() {
    let dir = tempfile::tempdir().unwrap();
    let deep = dir.path().join("a/b/c");
    make(&deep, 0o700).unwrap();
    make(&deep, 0o755).unwrap();
    let modes = ["a/b/c", "a/b", "a"].map(|path| mode(&dir.path().join(path)));
    assert_eq!(modes, [0o700, 0o755, 0o755]);
}

#[test]
fn many_may_make_it_at_once() {
    for _ in 0..20 {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("a/b/c/d");
        std::thread::scope(|scope| {
            let makers: Vec<_> = (0..8).map(|_| scope.spawn(|| make(&deep, 0o755))).collect();
            makers.into_iter().for_each(|maker| maker.join().unwrap().unwrap());
        });
    }
}

#[test]
fn what_others_can_write_is_refused_and_what_is_missing_is_not() {
    let dir = tempfile::tempdir().unwrap();
    assert!(!check(&dir.path().join("missing")).unwrap());
    assert!(check(dir.path()).unwrap());
    std_fs::set_permissions(dir.path(), Permissions::from_mode(0o777)).unwrap();
    let error = check(dir.path()).unwrap_err();
    assert_eq!(error.code(), "UNTRUSTED", "{error}");
    assert_eq!(make(dir.path(), 0o700).unwrap_err().code(), "UNTRUSTED");
    assert_eq!(mode(dir.path()), 0o777);
}

#[test]
fn what_is_no_directory_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let [link, nowhere] = ["link", "nowhere"].map(|name| dir.path().join(name));
    symlink("link", &link).unwrap();
    symlink("missing", &nowhere).unwrap();
    assert!(check(&link).is_err());
    for path in [&link, &nowhere, Path::new("/dev/null"), Path::new("/dev/null/x"), Path::new("")] {
        make(path, 0o755).unwrap_err();
    }
    assert!(check(Path::new("/dev/null")).is_err());
    make(Path::new("/"), 0o755).unwrap();
}
