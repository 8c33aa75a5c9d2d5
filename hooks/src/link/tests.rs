use std::os::unix::fs::symlink;

use super::*;

#[test]
fn only_a_link_to_nothing_dangles() {
    let temp = tempfile::tempdir().unwrap();
    let path = |name: &str| temp.path().join(name);
    symlink("nothing", path("lost")).unwrap();
    symlink("lost", path("twice")).unwrap();
    symlink(".", path("here")).unwrap();
    for name in ["lost", "twice"] {
        assert_eq!(dangling(&path(name)), Some(&*path(name)));
        assert_eq!(dangling(&path(name).join("a/b")), Some(&*path(name)));
        assert_eq!(dangling(&path("here").join(name)), Some(&*path("here").join(name)));
    }
    for name in ["here", "absent", "here/absent", "absent/b"] {
        assert_eq!(dangling(&path(name)), None, "{name}");
    }
    assert_eq!(dangling(Path::new("absent")), None);
}
