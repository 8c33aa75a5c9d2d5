use super::*;

#[test]
fn distances() {
    for (a, b, wanted) in [
        ("", "", 0),
        ("", "abc", 3),
        ("abc", "", 3),
        ("kitten", "sitting", 3),
        ("mount", "mounts", 1),
        ("ab", "ba", 1),
        ("train-1", "trian-1", 1),
        ("abcd", "badc", 2),
        // Exchanged once, a letter stays where it is.
        ("ca", "abc", 3),
        ("aba", "bab", 2),
    ] {
        assert_eq!(distance(a, b), wanted, "{a} {b}");
    }
    assert_eq!(distance(&"a".repeat(101), "a"), usize::MAX);
}

#[test]
fn the_nearest_is_near() {
    let fields = ["env", "deviceNodes", "mounts"];
    let near = |text| nearest(text, fields.into_iter());
    assert_eq!(near("mount"), Some("mounts"));
    assert_eq!(near("devicenode"), Some("deviceNodes"));
    assert_eq!(near("envs"), Some("env"));
    assert_eq!(near("evn"), Some("env"));
    assert_eq!(near("permissions"), None);
    assert_eq!(near(""), None);
}
