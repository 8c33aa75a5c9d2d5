//! Inputs that must not count, and files that must not be trusted.

use std::{
    fs::{self, Permissions},
    os::unix::fs::{PermissionsExt as _, symlink},
    process::Command,
};

use divvy_hook::record::Origin;

use crate::support::{HOOK, Host, annotate, has_device, spec};

const LINE: &str = "create --bundle @/bundle ID";

/// podman 4.3.1 copies the annotations of an image's manifest into the config.
#[test]
fn an_image_with_annotations_gets_no_device_from_podman() {
    for key in ["cdi.k8s.io/evil", "divvy.dev/claim"] {
        let host = Host::new("[handlers.divvy-runtime]\nengine = 'podman'");
        host.prepare_claim(Origin::Local, "mine");
        let value = if key.starts_with("cdi") { crate::support::DEVICE } else { "mine" };
        let config = host.bundle("podman", |config| annotate(config, key, value));
        let line = host.shim(LINE).error("REQUEST-REFUSED").to_owned();
        assert!(line.contains(key) && line.contains("annotations = true"), "{line}");
        assert_eq!(host.read("bundle/config.json"), config);
    }
}

#[test]
fn a_claim_of_a_pod_is_not_reachable_by_name() {
    let host = Host::new("[handlers.divvy-runtime]\nengine = 'ctr'\nannotations = true");
    host.prepare_claim(Origin::Api, "theirs");
    for name in ["theirs", "default/theirs", "u-1", "../claims/u-1", "default/../default/theirs"] {
        host.bundle("ctr", |config| annotate(config, "divvy.dev/claim", name));
        let outcome = host.shim(LINE);
        assert_eq!(outcome.status, 1, "{name}: {}", outcome.stderr);
        assert!(!has_device(&host.config()), "{name}");
    }
}

#[test]
fn a_pods_annotations_do_not_count_with_crio() {
    let host = Host::new("[handlers.divvy-runtime]\nengine = 'crio'\nrequire_record = false");
    host.spec("v.json", &spec("v.com/gpu", "0", "GPU=0"));
    host.bundle("crio", |config| annotate(config, "cdi.k8s.io/x", "v.com/gpu=0"));
    assert_eq!(host.shim(LINE).status, 7);
    assert!(!has_device(&host.config()));
}

#[test]
fn a_key_hidden_by_escapes_is_still_a_request() {
    let host = Host::new("[handlers.divvy-runtime]\nengine = 'ctr'\nannotations = true");
    host.spec("v.json", &spec("v.com/gpu", "0", "GPU=0"));
    for hidden in ["cdi.k8s.io\\/x", "\\u0063di.k8s.io/x", "cdi.k8s.io\\u002Fx"] {
        let config = host.bundle("ctr", |config| annotate(config, "KEY", "v.com/gpu=0"));
        host.write("bundle/config.json", &config.replace("KEY", hidden));
        assert_eq!(host.shim(LINE).status, 7);
        assert!(has_device(&host.config()), "{hidden}");
    }
}

#[test]
fn a_handler_that_is_not_declared_takes_no_request() {
    let host = Host::new("");
    host.bundle("ctr", |_| {});
    assert_eq!(host.shim(LINE).status, 7);
    host.bundle("ctr", |config| annotate(config, "cdi.k8s.io/x", "v.com/gpu=0"));
    let line = host.shim(LINE).error("CONFIG-INVALID").to_owned();
    assert!(line.contains("[handlers.divvy-runtime]"), "{line}");
}

/// With the configuration where it is always, and nothing of the machine that runs the test.
#[test]
fn the_installed_name_is_the_handler() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let host = Host::new("");
    host.spec("v.json", &spec("v.com/gpu", "0", "GPU=0"));
    host.bundle("ctr", |config| annotate(config, "cdi.k8s.io/x", "v.com/gpu=0"));
    let link = host.path("divvy-elsewhere");
    symlink(HOOK, &link).unwrap();
    let call = || {
        let mut command = Command::new(&link);
        command.args(["create", "--bundle"]).arg(host.path("bundle")).arg("ID");
        host.call(&mut command, b"")
    };
    let outcome = call();
    let line = outcome.error("CONFIG-INVALID");
    let says = "\"divvy-elsewhere\" is not declared in /etc/divvy/config.toml: add [handlers.divvy-elsewhere]";
    assert!(line.contains(says), "{line}");
    assert!(host.read("machine/run/divvy/hook.log").contains(line));
    let handler = "[handlers.divvy-elsewhere]\nengine = 'ctr'\nannotations = true";
    host.write("machine/etc/divvy/config.toml", &host.settings(handler));
    assert_eq!(call().status, 7);
    assert!(has_device(&host.config()));
}

#[test]
fn a_broken_configuration_is_closed_for_requests() {
    let host = Host::new("");
    let broken = host.settings("[handlers.divvy-runtime]\nengine = 'ctr'\nanotations = true\n");
    host.write("config.toml", &broken);
    let config = host.bundle("ctr", |config| annotate(config, "cdi.k8s.io/x", "v.com/gpu=0"));
    let line = host.shim(LINE).error("CONFIG-INVALID").to_owned();
    assert!(
        line.contains("config.toml:6: handlers.divvy-runtime.anotations: unknown key"),
        "{line}"
    );
    assert_eq!(host.read("bundle/config.json"), config);
}

/// Where the records are, a broken file may still say; a pod that has one must not start without
/// its devices.
#[test]
fn a_broken_configuration_hides_no_record() {
    let host = Host::new("");
    host.prepare_pod("p-1");
    for broken in ["bogus = 1", "engine = 'crii'"] {
        let broken = format!("[handlers.divvy-runtime]\nrequire_record = false\n{broken}");
        let broken = broken.as_str();
        host.write("config.toml", &host.settings(broken));
        let config = host.bundle("containerd", |_| {});
        let line = host.shim(LINE).error("CONFIG-INVALID").to_owned();
        assert!(line.contains("the record of container \"main\" of pod ml/train"), "{line}");
        assert_eq!(host.read("bundle/config.json"), config);
    }
}

/// What a broken file does not say any more was asked for all the same.
#[test]
fn a_broken_configuration_is_closed_for_the_environment_and_for_pods_without_a_record() {
    let host = Host::new("");
    for broken in ["engine = 'docker'\nenvironment = ['DEV']\nbogus = 1", "engine = 'docker'\n= ["]
    {
        host.write("config.toml", &host.settings(&format!("[handlers.divvy-runtime]\n{broken}")));
        let config = host.bundle("docker", |config| {
            config["process"]["env"]
                .as_array_mut()
                .unwrap()
                .push("DEV=v.com/gpu=0,v.com/gpu=1".into());
        });
        let line = host.shim(LINE).error("CONFIG-INVALID").to_owned();
        assert!(line.contains("environment variable \"DEV\""), "{line}");
        assert_eq!(host.read("bundle/config.json"), config);
    }
    for (broken, closed) in [
        ("engine = 'cri'\nbogus = 1", true),
        ("engine = 'cri'\nrequire_record = true\n= [", true),
        ("engine = 'cri'\nrequire_record = false\nbogus = 1", false),
        ("engine = 'crii'\nrequire_record = false", false),
        ("engine = 'cri'\nrequire_record = false\nrun_dir = '/elsewhere'", true),
        ("engine = 'cri'\nrequire_record = false\n= [", true),
        ("engine = cri", true),
        ("engine = 'containerd'", true),
    ] {
        host.write("config.toml", &host.settings(&format!("[handlers.divvy-runtime]\n{broken}")));
        // By verify, since the shim would go on to a runtime of this machine.
        let state = host.word("{\"id\":\"ID\",\"bundle\":\"@/bundle\"}");
        let verify = || host.hook(&["verify"], state.as_bytes());
        host.bundle("containerd", |_| {});
        let outcome = verify();
        if closed {
            let line = outcome.error("CONFIG-INVALID");
            assert!(line.contains("may require a record of container \"main\""), "{line}");
        } else {
            assert_eq!((outcome.status, outcome.stderr.as_str()), (0, ""), "{broken}");
        }
        host.bundle("containerd-sandbox", |_| {});
        let outcome = verify();
        assert_eq!((outcome.status, outcome.stderr.as_str()), (0, ""), "{broken}");
    }
}

/// What cannot be read at all does not say that nobody needs a record.
#[test]
fn a_configuration_that_cannot_be_read_is_closed_for_pods_only() {
    let host = Host::new("[handlers.divvy-runtime]\nengine = 'cri'\nrequire_record = false");
    let path = host.path("config.toml");
    let good = host.read("config.toml");
    let state = host.word("{\"id\":\"ID\",\"bundle\":\"@/bundle\"}");
    let check = |code: &str| {
        for (name, uid) in [("containerd", "sandbox-uid"), ("crio", "pod.uid")] {
            let config = host.bundle(name, |_| {});
            assert!(config.contains(uid));
            host.hook(&["verify"], state.as_bytes()).error(code);
        }
        // A UID alone is a pod's.
        host.bundle("containerd", |config| {
            let keys = config["annotations"].as_object_mut().unwrap();
            keys.remove("io.kubernetes.cri.container-name").unwrap();
        });
        host.hook(&["verify"], state.as_bytes()).error(code);
        for name in ["containerd-sandbox", "ctr", "docker", "podman"] {
            host.bundle(name, |_| {});
            let outcome = host.hook(&["verify"], state.as_bytes());
            assert_eq!((outcome.status, outcome.stderr.as_str()), (0, ""), "{name}");
        }
        assert_eq!(host.hook(&["runtime", "--version"], b"").stderr.find("CONFIG"), None);
    };
    host.write("config.toml", &format!("{good}{}", "#".repeat(70_000)));
    check("CONFIG-INVALID");
    host.write("config.toml", &good);
    fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
    check("UNTRUSTED");
    for target in ["config.toml", "nothing"] {
        fs::remove_file(&path).unwrap();
        symlink(target, &path).unwrap();
        check("CONFIG-INVALID");
    }
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    check("CONFIG-INVALID");
}

/// A file that anybody may have written chooses no file that we write to.
#[test]
fn an_untrusted_configuration_says_not_where_the_log_is() {
    let host = Host::new("");
    fs::create_dir(host.path("elsewhere")).unwrap();
    let settings = host.settings("").replace("/run\"", "/elsewhere\"");
    host.write("config.toml", &format!("log = {:?}\n{settings}", host.path("log")));
    fs::set_permissions(host.path("config.toml"), Permissions::from_mode(0o666)).unwrap();
    host.shim("--version");
    assert!(!host.path("log").exists());
    assert_eq!(fs::read_dir(host.path("elsewhere")).unwrap().count(), 0);
}

#[test]
fn the_log_of_the_run_directory_is_a_regular_file_that_nobody_else_chose() {
    let host = Host::new("[handlers.divvy-runtime]\nengine = 'cri'");
    host.bundle("containerd", |_| {});
    fs::set_permissions(host.path("run"), Permissions::from_mode(0o777)).unwrap();
    host.shim(LINE);
    assert!(!host.path("run/hook.log").exists());
    fs::set_permissions(host.path("run"), Permissions::from_mode(0o755)).unwrap();
    host.shim(LINE);
    assert!(host.read("run/hook.log").contains("CLAIM-NOT-PREPARED"));
}

#[test]
fn files_that_others_can_write_are_refused_by_name() {
    let host = Host::new("[handlers.divvy-runtime]\nengine = 'cri'");
    host.prepare_pod("p-1");
    let config = host.bundle("containerd", |_| {});
    for (path, mode) in [
        ("run", 0o777),
        ("run/pods", 0o757),
        ("run/pods/p-1.json", 0o666),
        ("cdi/claim.json", 0o646),
        ("config.toml", 0o666),
    ] {
        let path = host.path(path);
        let before = fs::metadata(&path).unwrap().permissions();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        let line = host.shim(LINE).error("UNTRUSTED").to_owned();
        assert!(line.contains(path.to_str().unwrap()), "{line}");
        assert!(line.contains("everybody can write it"), "{line}");
        assert_eq!(host.read("bundle/config.json"), config);
        fs::set_permissions(&path, before).unwrap();
    }
    assert_eq!(host.shim(LINE).status, 7);
    assert!(has_device(&host.config()));
}

#[test]
fn files_of_another_user_are_refused() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let host = Host::new("[handlers.divvy-runtime]\nengine = 'cri'");
    host.prepare_pod("p-1");
    host.bundle("containerd", |_| {});
    for path in ["run/pods/p-1.json", "cdi/claim.json", "run/pods"] {
        let path = host.path(path);
        std::os::unix::fs::chown(&path, Some(1234), None).unwrap();
        let line = host.shim(LINE).error("UNTRUSTED").to_owned();
        assert!(line.contains(path.to_str().unwrap()) && line.contains("1234"), "{line}");
        std::os::unix::fs::chown(&path, Some(0), None).unwrap();
    }
}
