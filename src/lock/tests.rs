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
        let error = Lock::wait(&path(name), None).unwrap_err().to_string();
        let says = format!("is a {name}, and a lock file belongs there: remove it");
        assert!(error.contains(&says) && error.contains(dir.path().to_str().unwrap()), "{error}");
        assert!(Lock::share(&path(name), None).is_err() && Lock::attempt(&path(name)).is_err());
    }
    assert!(!path("elsewhere").exists());
    let missing = Lock::wait(&path("none/lock"), None).unwrap_err();
    assert!(matches!(missing, LockError::Io { .. }), "{missing}");
}

#[test]
fn a_wait_has_an_end_and_says_who_has_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lock");
    let mut held = Lock::wait(&path, None).unwrap();
    held.note("a-longer-uid");
    held.note("uid-a");
    for take in [Lock::wait, Lock::share] {
        let error = take(&path, Some(Instant::now() + Duration::from_millis(30))).unwrap_err();
        let LockError::Held { by, .. } = &error else { panic!("{error}") };
        assert_eq!(by.process.as_ref().map(|(pid, _)| *pid), Some(std::process::id()));
        assert_eq!(by.claim.as_deref(), Some("uid-a"));
        assert!(error.to_string().contains("at claim uid-a, has had this lock"), "{error}");
    }
    // In time, it is had; and with no time left, when it is free.
    let waiting = thread::spawn({
        let path = path.clone();
        move || Lock::wait(&path, Some(Instant::now() + Duration::from_secs(60))).map(drop)
    });
    drop(held);
    waiting.join().unwrap().unwrap();
    Lock::share(&path, Some(Instant::now())).unwrap();
}
