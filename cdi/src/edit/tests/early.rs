//! Paths that are looked at before the runtime does.

use super::{FakeHost, Options, edit_with, minimal, resolution};
use crate::edit::missing_paths;

#[test]
fn what_is_missing_is_found_before_the_runtime_stumbles() {
    let host = FakeHost {
        files: [("/lib/a.so", 0o644), ("/bin/h", 0o755), ("/bin/data", 0o644), ("/dir", 0o40755)]
            .into(),
        ..FakeHost::default()
    };
    let text = minimal().to_string();
    for good in [
        "{mounts: [{hostPath: /lib/a.so, containerPath: /a, type: bind}, {hostPath: tmpfs, containerPath: /t, type: tmpfs}, {hostPath: /dir, containerPath: /d, options: [rbind]}]}",
        "{mounts: [{hostPath: /none, containerPath: /t, type: tmpfs}, {hostPath: /none, containerPath: /o, type: overlay, options: [ro]}]}",
        "{hooks: [{hookName: createRuntime, path: /bin/h}, {hookName: startContainer, path: /inside}, {hookName: poststop, path: relative}]}",
    ] {
        edit_with(&text, good, &host, Options::default()).unwrap();
    }
    for (bad, expected) in [
        (
            "{env: [A=1], mounts: [{hostPath: /lib/b.so, containerPath: /t, type: tmpfs}, {hostPath: /lib/b.so, containerPath: /b, options: [bind]}]}",
            "MOUNT-SOURCE: mount source \"/lib/b.so\" of \"/b\": nothing is there (device \"d\" of \
             /etc/cdi/v.yaml); install what is missing, or write the spec again after a driver update",
        ),
        (
            "{hooks: [{hookName: prestart, path: /bin/none}]}",
            "HOOK-MISSING: prestart hook \"/bin/none\": nothing is there (device \"d\" of \
             /etc/cdi/v.yaml); install the hook, or write the spec again",
        ),
        (
            "{hooks: [{hookName: prestart, path: /bin/data}]}",
            "HOOK-MISSING: prestart hook \"/bin/data\": not executable (",
        ),
        (
            "{hooks: [{hookName: prestart, path: /dir}]}",
            "HOOK-MISSING: prestart hook \"/dir\": not a program (",
        ),
    ] {
        let error = edit_with(&text, bad, &host, Options::default()).unwrap_err();
        assert!(error.to_string().starts_with(expected), "{error}");
        assert_eq!(missing_paths(&resolution(bad, "{}"), &host), [error]);
        edit_with(&text, bad, &host, super::UNCHECKED).unwrap();
    }
}
