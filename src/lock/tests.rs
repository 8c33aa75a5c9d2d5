use super::*;

#[test]
fn the_holder_is_that_of_the_same_file_on_the_same_device() {
    let locks = "1: POSIX  ADVISORY  WRITE 700 fd:01:5243 0 EOF\n\
                 2: FLOCK  ADVISORY  WRITE 701 fd:02:5243 0 EOF\n\
                 3: FLOCK  ADVISORY  READ 702 fd:01:5243 0 EOF\n\
                 4: FLOCK  ADVISORY  WRITE 703 fd:01:5243 0 EOF\n\
                 4: -> FLOCK  ADVISORY  WRITE 704 fd:01:5243 0 EOF\n\
                 5: FLOCK  ADVISORY  WRITE 0 00:1a:9 0 EOF\n";
    let device = |major, minor| rustix::fs::makedev(major, minor);
    assert_eq!(holder_in(locks, (device(0xfd, 1), 5243)), Some(703));
    assert_eq!(holder_in(locks, (device(0xfd, 2), 5243)), Some(701));
    assert_eq!(holder_in(locks, (device(0xfd, 3), 5243)), None);
    assert_eq!(holder_in(locks, (device(0, 0x1a), 9)), None, "in another PID namespace");
}

#[test]
fn what_is_no_file_is_named_with_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    std::fs::create_dir(path("directory")).unwrap();
    std::os::unix::fs::symlink("elsewhere", path("link")).unwrap();
    let fifo = rustix::fs::FileType::Fifo;
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, path("FIFO"), fifo, mode, 0).unwrap();
    for name in ["directory", "link", "FIFO"] {
        let error = Lock::wait(&path(name)).unwrap_err().to_string();
        let says = format!("is a {name}, and a lock file belongs there: remove it");
        assert!(error.contains(&says) && error.contains(dir.path().to_str().unwrap()), "{error}");
        assert!(Lock::share(&path(name)).is_err() && Lock::attempt(&path(name)).is_err());
    }
    assert!(!path("elsewhere").exists());
    let missing = Lock::wait(&path("none/lock")).unwrap_err();
    assert!(matches!(missing, LockError::Io { .. }), "{missing}");
}
