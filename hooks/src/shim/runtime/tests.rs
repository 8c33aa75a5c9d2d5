use super::*;

const SETTINGS: &str = "/etc/divvy/config.toml";

fn choose_of(candidates: &[PathBuf]) -> Result<PathBuf, String> {
    first(candidates, Path::new(SETTINGS), None)
        .map(Path::to_owned)
        .map_err(|error| crate::log::chain(&error))
}

#[test]
fn the_first_that_can_run_is_taken() {
    let temp = tempfile::tempdir().unwrap();
    let plain = temp.path().join("plain");
    std::fs::copy("/proc/self/cmdline", &plain).unwrap();
    std::fs::set_permissions(&plain, std::fs::Permissions::from_mode(0o644)).unwrap();
    let [absent, dir, sh] = ["/nonexistent/runc", "/usr", "/bin/sh"].map(PathBuf::from);
    let all = [absent.clone(), dir.clone(), plain.clone(), sh.clone()];
    assert_eq!(choose_of(&all).unwrap(), sh);
    let error = choose_of(&all[..3]).unwrap_err();
    assert_eq!(
        error,
        format!(
            "RUNTIME-NOT-FOUND: no low-level runtime: looked at /nonexistent/runc (not there), \
             /usr (not a file), {} (not executable); install one, or set runtimes in {SETTINGS}",
            plain.display()
        )
    );
}

#[test]
fn we_are_never_executed_again() {
    let temp = tempfile::tempdir().unwrap();
    let ours = std::env::current_exe().unwrap();
    let [link, copy] = ["link", "copy"].map(|name| temp.path().join(name));
    std::os::unix::fs::symlink(&ours, &link).unwrap();
    std::fs::copy(&ours, &copy).unwrap();
    for runtime in [ours.clone(), link, copy] {
        for executable in [None, Some(&*ours), Some(Path::new("/nonexistent"))] {
            let candidates = [runtime.clone()];
            let error = first(&candidates, Path::new(SETTINGS), executable).unwrap_err();
            assert!(matches!(error, HookError::RuntimeLoop { .. }), "{error:?}");
        }
    }
}
