use std::{
    ffi::CString,
    fs::{self as std_fs, Permissions},
    os::unix::{
        ffi::OsStrExt,
        fs::{MetadataExt, PermissionsExt, symlink},
    },
};

use super::*;

fn scratch() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn put(path: &Path, bytes: &[u8], mode: u32) {
    io::Write::write_all(&mut std_fs::File::create_new(path).unwrap(), bytes).unwrap();
    std_fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn mode(path: &Path) -> u32 {
    std_fs::metadata(path).unwrap().mode() & 0o7777
}

fn names(dir: &Path) -> Vec<String> {
    let entries = std_fs::read_dir(dir).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn me() -> u32 {
    rustix::process::geteuid().as_raw()
}

#[test]
fn reads_whole_files_of_any_size_up_to_the_limit() {
    let dir = scratch();
    for size in [0_usize, 1, 7, 8, 100_000] {
        let path = dir.path().join(size.to_string());
        let bytes = b"x".repeat(size);
        put(&path, &bytes, 0o644);
        assert_eq!(read(&path, 100_000, &Trust::Any).unwrap(), bytes);
    }
    let error = read(&dir.path().join("100000"), 99_999, &Trust::Any).unwrap_err();
    assert!(matches!(error, FileError::TooLarge { max: 99_999, .. }), "{error}");
}

#[test]
fn files_of_proc_say_size_0_and_are_read_all_the_same() {
    let bytes = read(Path::new("/proc/self/status"), 1 << 20, &Trust::Any).unwrap();
    assert!(bytes.starts_with(b"Name:"));
    let error = read(Path::new("/proc/self/status"), 16, &Trust::Any).unwrap_err();
    assert!(matches!(error, FileError::TooLarge { .. }), "{error}");
}

#[test]
fn a_buffer_is_used_again() {
    let dir = scratch();
    let mut buffer = Vec::new();
    for text in ["a long first text", "short", ""] {
        let path = dir.path().join(format!("f{}", text.len()));
        put(&path, text.as_bytes(), 0o644);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let open = fs::openat(CWD, dir.path(), flags, Mode::empty()).unwrap();
        let name = CString::new(path.file_name().unwrap().as_bytes()).unwrap();
        read_at(open.as_fd(), dir.path(), &name, 100, &Trust::Any, &mut buffer).unwrap();
        assert_eq!(buffer, text.as_bytes());
        let error =
            read_at(open.as_fd(), dir.path(), c"gone", 100, &Trust::Any, &mut buffer).unwrap_err();
        assert_eq!(error.path(), dir.path().join("gone"));
    }
}

#[test]
fn only_regular_files_are_read_and_nothing_hangs() {
    let dir = scratch();
    let fifo = dir.path().join("fifo");
    fs::mkfifoat(CWD, &fifo, Mode::RUSR).unwrap();
    let socket = dir.path().join("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let (link, looped) = (dir.path().join("link"), dir.path().join("loop"));
    symlink(dir.path(), &link).unwrap();
    symlink(&looped, &looped).unwrap();
    for path in [&fifo, &socket, &link, Path::new("/dev/zero"), dir.path()] {
        let error = read(path, 100, &Trust::Any).unwrap_err();
        assert!(matches!(error, FileError::NotRegular { .. }), "{error}");
        assert_eq!(error.code(), "UNREADABLE");
    }
    let error = read(&looped, 100, &Trust::Any).unwrap_err();
    assert!(matches!(error, FileError::Io { .. }), "{error}");
    let error = read(&dir.path().join("none"), 100, &Trust::Any).unwrap_err();
    assert!(matches!(error, FileError::NotFound { .. }), "{error}");
}

#[test]
fn links_to_files_are_followed() {
    let dir = scratch();
    put(&dir.path().join("file"), b"x", 0o644);
    symlink("file", dir.path().join("link")).unwrap();
    assert_eq!(read(&dir.path().join("link"), 100, &Trust::Any).unwrap(), b"x");
}

#[test]
fn who_could_have_written_it_decides() {
    let dir = scratch();
    let path = dir.path().join("file");
    put(&path, b"x", 0o644);
    let read = |trust: Trust| read(&path, 100, &trust).map_err(|error| (error.code(), error));
    let stranger = if me() == 0 { 12345 } else { me() };
    if me() == 0 {
        std::os::unix::fs::chown(&path, Some(stranger), Some(stranger)).unwrap();
    }
    let (code, error) = read(Trust::Root).unwrap_err();
    assert_eq!(code, "UNTRUSTED");
    assert!(error.to_string().ends_with(&format!("not trusted: owned by user {stranger}")));
    assert!(read(Trust::RootOr(stranger + 1)).is_err());
    assert!(read(Trust::RootOr(stranger)).is_ok());
    assert!(read(Trust::Mapped(stranger + 1)).is_err());
    assert!(read(Trust::Mapped(stranger)).is_ok());
    assert!(read(Trust::Any).is_ok());
    for bits in [0o646, 0o666, 0o602] {
        std_fs::set_permissions(&path, Permissions::from_mode(bits)).unwrap();
        assert!(read(Trust::RootOr(stranger)).is_err(), "{bits:o}");
        assert!(read(Trust::Any).is_ok());
    }
    std_fs::set_permissions(&path, Permissions::from_mode(0o664)).unwrap();
    let gid = std_fs::metadata(&path).unwrap().gid();
    assert_eq!(read(Trust::RootOr(stranger)).is_err(), gid != 0);
}

#[test]
fn the_trust_of_a_process_follows_its_user() {
    assert_eq!(Trust::of(0), Trust::Root);
    assert_eq!(Trust::of(1000), Trust::RootOr(1000));
    assert_eq!(Trust::of_process(), Trust::of(me()));
}

#[test]
fn replace_sets_bytes_and_mode_and_leaves_nothing_else() {
    let dir = scratch();
    let path = dir.path().join("a.json");
    for (text, bits, durability) in [
        ("one", 0o644, Durability::Durable),
        ("two", 0o600, Durability::Volatile),
        ("", 0o666, Durability::Volatile),
    ] {
        replace(&path, text.as_bytes(), bits, durability).unwrap();
        assert_eq!(std_fs::read_to_string(&path).unwrap(), text);
        assert_eq!(mode(&path), bits);
        assert_eq!(names(dir.path()), ["a.json"]);
    }
    std_fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
    replace_keeping(&path, b"kept", Durability::Volatile).unwrap();
    assert_eq!((mode(&path), std_fs::read(&path).unwrap()), (0o640, b"kept".to_vec()));
    let error = replace_keeping(&dir.path().join("none"), b"", Durability::Volatile).unwrap_err();
    assert!(matches!(error, FileError::NotFound { .. }), "{error}");
}

#[test]
fn a_failed_replace_removes_its_temporary_file() {
    let dir = scratch();
    let target = dir.path().join("directory");
    std_fs::create_dir(&target).unwrap();
    let error = replace(&target, b"x", 0o644, Durability::Durable).unwrap_err();
    assert_eq!(error.code(), "UNWRITABLE");
    assert_eq!(names(dir.path()), ["directory"]);
    assert!(replace(&dir.path().join("no/such"), b"x", 0o644, Durability::Volatile).is_err());
    assert!(replace(Path::new("/"), b"x", 0o644, Durability::Volatile).is_err());
}

#[test]
fn the_remains_of_a_crash_and_a_planted_link_are_passed_over() {
    let dir = scratch();
    let pid = std::process::id();
    symlink("victim", dir.path().join(format!(".divvy-{pid}-0.tmp"))).unwrap();
    put(&dir.path().join(format!(".divvy-{pid}-1.tmp")), b"old", 0o644);
    replace(&dir.path().join("a"), b"x", 0o644, Durability::Volatile).unwrap();
    assert!(!dir.path().join("victim").exists());
    assert_eq!(names(dir.path()).len(), 3);
}

#[test]
fn remove_says_whether_it_was_there() {
    let dir = scratch();
    let path = dir.path().join("a");
    put(&path, b"", 0o644);
    assert!(remove(&path, Durability::Durable).unwrap());
    assert!(!remove(&path, Durability::Durable).unwrap());
    // A read-only file system refuses before it looks.
    assert_eq!(removed(Err(Errno::ROFS), || false), Ok(false));
    assert_eq!(removed(Err(Errno::ROFS), || true), Err(Errno::ROFS));
    assert!(remove(dir.path(), Durability::Volatile).is_err());
}

#[test]
fn a_sweep_takes_what_the_dead_left_and_nothing_else() {
    let dir = scratch();
    let put = |name: &str| put(&dir.path().join(name), b"", 0o600);
    // No process has the largest number that there can be; 1 is always there.
    let dead = [".divvy-2147483647-0.tmp", ".divvy-2147483647-999.tmp"];
    let stays = [
        ".divvy-+5-0.tmp",
        ".divvy-0-0.tmp",
        ".divvy-1-0.tmp",
        ".divvy-2147483647-0.tmp.json",
        ".divvy-2147483647-1000.tmp",
        ".divvy-2147483647-x.tmp",
        ".divvy-2147483647.tmp",
        ".divvy-2147483648-0.tmp",
        "a.json",
    ];
    dead.iter().chain(&stays).for_each(|name| put(name));
    symlink("a.json", dir.path().join(".divvy-2147483647-1.tmp")).unwrap();
    std_fs::create_dir(dir.path().join(".divvy-2147483647-2.tmp")).unwrap();
    // Of an earlier process of this number; and what somebody here is just writing.
    let [old, new] =
        ["0", "1"].map(|attempt| format!(".divvy-{}-{attempt}.tmp", std::process::id()));
    [&old, &new].into_iter().for_each(|name| put(name));
    let long_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
    let file = std_fs::File::options().write(true).open(dir.path().join(&old)).unwrap();
    file.set_modified(long_ago).unwrap();
    sweep(dir.path());
    let mut left: Vec<_> = [".divvy-2147483647-2.tmp", &new].into_iter().chain(stays).collect();
    left.sort_unstable();
    let mut there = names(dir.path());
    there.sort();
    assert_eq!(there, left);
    sweep(&dir.path().join("none"));
}

#[test]
fn a_link_replaces_what_stood_there_in_one_step() {
    let dir = scratch();
    let path = dir.path().join("link");
    put(&path, b"a file", 0o644);
    for to in ["one", "two/three", "two/three"] {
        link(&path, Path::new(to), Durability::Durable).unwrap();
        assert_eq!(std_fs::read_link(&path).unwrap(), Path::new(to));
        assert_eq!(names(dir.path()), ["link"]);
    }
    // A crash's remains are in nobody's way.
    symlink("x", dir.path().join(format!(".divvy-{}-0.tmp", std::process::id()))).unwrap();
    link(&path, Path::new("four"), Durability::Volatile).unwrap();
    assert_eq!(std_fs::read_link(&path).unwrap(), Path::new("four"));
    let into = dir.path().join("folder");
    std_fs::create_dir(&into).unwrap();
    assert!(link(&into, Path::new("one"), Durability::Volatile).is_err());
    assert!(link(&dir.path().join("none/link"), Path::new("one"), Durability::Volatile).is_err());
    assert_eq!(names(dir.path()).len(), 3);
}
