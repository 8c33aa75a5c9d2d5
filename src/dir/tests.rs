use std::{
    fs::{self, Permissions},
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
};

use super::{check, make};

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn it_is_made_with_its_parents_and_exactly_its_mode() {
    let dir = tempfile::tempdir().unwrap();
    let deep = dir.path().join("a/b/c");
    make(&deep, 0o755).unwrap();
    make(&deep, 0o755).unwrap();
    assert_eq!((mode(&deep), mode(&dir.path().join("a"))), (0o755, 0o755));
}

#[test]
fn what_others_can_write_is_refused_and_what_is_missing_is_not() {
    let dir = tempfile::tempdir().unwrap();
    check(&dir.path().join("missing")).unwrap();
    check(dir.path()).unwrap();
    fs::set_permissions(dir.path(), Permissions::from_mode(0o777)).unwrap();
    let error = check(dir.path()).unwrap_err();
    assert_eq!(error.code(), "UNTRUSTED", "{error}");
    assert!(make(dir.path(), 0o700).is_err());
    assert_eq!(mode(dir.path()), 0o777);
}

#[test]
fn what_is_no_directory_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let link = dir.path().join("link");
    symlink("link", &link).unwrap();
    assert!(check(&link).is_err());
    assert!(make(&link, 0o755).is_err());
    assert!(check(Path::new("/dev/null")).is_err());
    assert!(make(Path::new("/dev/null/x"), 0o755).is_err());
}
