//! The rules of trust, engine by engine.

mod spelling;

use std::collections::BTreeMap;

use serde_json::json;

use super::*;
use crate::{
    log,
    record::{ClaimRecord, DeviceRef, Driver, Origin, PodRecord, SpecRef, VERSION, boot_id},
    settings::Settings,
};

const SETTINGS: &str = "
[handlers.cri]
engine = 'cri'
[handlers.cri-all]
engine = 'cri'
require_record = false
[handlers.cri-native]
engine = 'cri'
require_record = false
annotations = false
[handlers.crio]
engine = 'crio'
[handlers.crio-all]
engine = 'crio'
require_record = false
[handlers.podman]
engine = 'podman'
annotations = true
environment = ['DIVVY_DEVICES']
[handlers.podman-off]
engine = 'podman'
[handlers.ctr]
engine = 'ctr'
annotations = true
";

const DEVICE: &str = "gpu.divvy.dev/claim=u-gpu0";

struct Host {
    _temp: tempfile::TempDir,
    run: RunDir,
    settings: Settings,
}

impl Host {
    fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        let run = RunDir::new(temp.path().join("divvy"));
        let settings = Settings::parse(Path::new("/c.toml"), SETTINGS.as_bytes()).unwrap();
        Self { _temp: temp, run, settings }
    }

    fn with_pod(boot: &str) -> Self {
        let host = Self::new();
        let device = DeviceRef { name: DEVICE.into(), path: "/s.json".into(), digest: "d".into() };
        let pod = PodRecord {
            version: VERSION,
            uid: "p-1".into(),
            namespace: "ml".into(),
            name: "train".into(),
            boot: boot.into(),
            containers: BTreeMap::from([("main".into(), vec![device])]),
        };
        host.run.write_pod(&pod).unwrap();
        host
    }

    fn claim(&self, origin: Origin, uid: &str, name: &str) {
        let spec = SpecRef { path: "/s.json".into(), digest: "d".into() };
        let claim = ClaimRecord {
            version: VERSION,
            origin,
            uid: uid.into(),
            namespace: "default".into(),
            name: name.into(),
            driver: Driver { name: "gpu.divvy.dev".into(), version: "0".into() },
            boot: boot_id().unwrap(),
            requests: BTreeMap::from([("gpu".into(), vec![DEVICE.into()])]),
            specs: BTreeMap::from([(DEVICE.into(), spec)]),
            consumers: Vec::new(),
            stamp: None,
        };
        self.run.write_claim(&claim).unwrap();
    }

    /// The request, or the error as it is shown; and that the quick look misses nothing.
    fn request(&self, handler: &str, config: &serde_json::Value) -> Result<Request, String> {
        self.request_of(handler, &serde_json::to_vec(config).unwrap())
    }

    fn request_of(&self, handler: &str, bytes: &[u8]) -> Result<Request, String> {
        let rules = Rules {
            name: handler,
            handler: self.settings.handlers.get(handler),
            settings: Path::new("/c.toml"),
            run_dir: &self.run,
            salvage: None,
        };
        let parsed = Config::parse(bytes).unwrap();
        let found = rules.request(&parsed, None).map_err(|error| log::chain(&error));
        if found != Ok(Request::default()) {
            assert!(may_request(bytes, &rules).unwrap_or(true), "quick misses {found:?}");
        }
        found
    }

    fn refuses(&self, handler: &str, config: &serde_json::Value, code: &str) -> String {
        let error = self.request(handler, config).unwrap_err();
        assert!(error.starts_with(&format!("{code}: ")), "{error}");
        assert!(!error.contains('\n'), "{error}");
        error
    }

    fn nothing(&self, handler: &str, config: &serde_json::Value) {
        assert_eq!(self.request(handler, config), Ok(Request::default()), "{handler} {config}");
    }
}

fn names(request: &Request) -> Vec<&str> {
    request.names.iter().map(QualifiedName::as_str).collect()
}

fn cri(uid: &str, container: &str) -> serde_json::Value {
    json!({"ociVersion": "1.0.0", "annotations": {
        "io.kubernetes.cri.container-type": "container",
        "io.kubernetes.cri.container-name": container,
        "io.kubernetes.cri.sandbox-uid": uid,
        "io.kubernetes.cri.sandbox-namespace": "ml",
        "io.kubernetes.cri.sandbox-name": "train",
    }})
}

fn cri_sandbox(uid: &str) -> serde_json::Value {
    json!({"annotations": {
        "io.kubernetes.cri.container-type": "sandbox",
        "io.kubernetes.cri.sandbox-uid": uid,
    }})
}

fn crio(uid: &str, container: &str, annotations: &serde_json::Value) -> serde_json::Value {
    let labels = json!({
        "io.kubernetes.container.name": container,
        "io.kubernetes.pod.name": "train",
        "io.kubernetes.pod.namespace": "ml",
        "io.kubernetes.pod.uid": uid,
    });
    json!({"annotations": {
        "io.kubernetes.cri-o.ContainerType": "container",
        "io.kubernetes.cri-o.Labels": labels.to_string(),
        "io.kubernetes.cri-o.Annotations": annotations.to_string(),
    }})
}

fn annotated(annotations: &serde_json::Value) -> serde_json::Value {
    json!({"ociVersion": "1.1.0-rc.3", "process": {"env": ["PATH=/bin"]}, "annotations": annotations})
}

#[test]
fn a_container_of_a_pod_gets_what_its_record_says() {
    let host = Host::with_pod(&boot_id().unwrap());
    for (handler, config) in
        [("cri", cri("p-1", "main")), ("crio", crio("p-1", "main", &json!(null)))]
    {
        let request = host.request(handler, &config).unwrap();
        let [Prepared { what, path, digest, names }] = &request.prepared[..] else { panic!() };
        assert_eq!(what, "container \"main\" of pod ml/train (p-1)");
        assert_eq!((path.to_str().unwrap(), digest.as_str()), ("/s.json", "d"));
        assert_eq!(names.iter().map(QualifiedName::as_str).collect::<Vec<_>>(), [DEVICE]);
    }
    // No consumer, no device; and the sandbox is none of the pod's containers.
    host.nothing("cri", &cri("p-1", "sidecar"));
    host.nothing("cri", &cri_sandbox("p-1"));
    host.nothing("crio", &crio("p-1", "sidecar", &json!({})));
}

#[test]
fn without_a_record_a_container_waits_where_one_is_required() {
    let host = Host::new();
    for (handler, config) in
        [("cri", cri("p-2", "main")), ("crio", crio("p-2", "main", &json!({})))]
    {
        let error = host.refuses(handler, &config, "CLAIM-NOT-PREPARED");
        assert!(error.contains("ml/train (p-2)") && error.contains("/pods/p-2.json"), "{error}");
        host.nothing(&format!("{handler}-all"), &config);
        let error = host.refuses(handler, &json!({}), "POD-UNKNOWN");
        assert!(error.contains("require_record"), "{error}");
        host.nothing(&format!("{handler}-all"), &json!({}));
    }
    host.nothing("cri", &cri_sandbox("p-2"));
    host.nothing("cri", &cri_sandbox(""));
}

#[test]
fn a_static_pod_can_have_no_claim_and_waits_for_no_record() {
    let host = Host::new();
    let uid = "0f1e2d3c4b5a69788796a5b4c3d2e1f0";
    host.nothing("cri", &cri(uid, "main"));
    host.nothing("crio", &crio(uid, "main", &json!({})));
    // What is nearly one may be a pod with claims.
    for other in [
        "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0",
        "0F1E2D3C4B5A69788796A5B4C3D2E1F0",
        "0f1e2d3c4b5a69788796a5b4c3d2e1f",
        "0f1e2d3c4b5a69788796a5b4c3d2e1g0",
    ] {
        host.refuses("cri", &cri(other, "main"), "CLAIM-NOT-PREPARED");
    }
}

#[test]
fn a_record_counts_only_for_its_pod_and_its_boot() {
    let host = Host::with_pod("another boot");
    host.refuses("cri", &cri("p-1", "main"), "CLAIM-STALE");
    let host = Host::with_pod(&boot_id().unwrap());
    let mut config = cri("p-1", "main");
    config["annotations"]["io.kubernetes.cri.sandbox-name"] = "other".into();
    let error = host.refuses("cri", &config, "CLAIM-OTHER-POD");
    assert!(error.contains("ml/other") && error.contains("ml/train"), "{error}");
    for uid in ["../claims/x", "a/b", ""] {
        let result = host.request("cri", &cri(uid, "main")).unwrap_err();
        assert!(result.starts_with("RECORD-INVALID") || result.starts_with("POD-UNKNOWN"));
    }
}

#[test]
fn annotations_of_a_pods_container_count_and_those_of_the_pod_do_not() {
    let host = Host::new();
    let mut config = cri("p-2", "main");
    config["annotations"]["cdi.k8s.io/plugin_x"] = "v.com/c=a,v.com/c=b".into();
    assert_eq!(names(&host.request("cri-all", &config).unwrap()), ["v.com/c=a", "v.com/c=b"]);
    host.nothing("cri-native", &config);

    // CRI-O merges the pod's annotations into the plain keys: anybody who makes pods writes them.
    let mut config = crio("p-2", "main", &json!({"cdi.k8s.io/x": "v.com/c=a"}));
    config["annotations"]["cdi.k8s.io/spoofed"] = "v.com/c=evil".into();
    config["annotations"]["divvy.dev/claim"] = "evil".into();
    assert_eq!(names(&host.request("crio-all", &config).unwrap()), ["v.com/c=a"]);
}

#[test]
fn a_pod_reaches_no_claim_by_name() {
    let host = Host::new();
    host.claim(Origin::Local, "u-1", "mine");
    let mut config = cri("p-2", "main");
    config["annotations"]["divvy.dev/claim"] = "mine".into();
    host.refuses("cri-all", &config, "REQUEST-REFUSED");
    let config = crio("p-2", "main", &json!({"divvy.dev/claim": "mine"}));
    host.refuses("crio-all", &config, "REQUEST-REFUSED");
}

#[test]
fn a_person_names_devices_and_claims_where_that_is_allowed() {
    let host = Host::new();
    host.claim(Origin::Local, "u-1", "mine");
    for handler in ["podman", "ctr"] {
        for value in ["mine", "default/mine", " mine , default/mine"] {
            let config = annotated(&json!({"divvy.dev/claim": value, "cdi.k8s.io/x": "v.com/c=a"}));
            let request = host.request(handler, &config).unwrap();
            assert_eq!(names(&request), ["v.com/c=a"]);
            assert_eq!(request.prepared.len(), 1);
            assert_eq!(request.prepared[0].what, "claim default/mine");
        }
    }
    for annotation in ["cdi.k8s.io/x", "divvy.dev/claim"] {
        let config = annotated(&json!({annotation: "v.com/c=a"}));
        let error = host.refuses("podman-off", &config, "REQUEST-REFUSED");
        assert!(error.contains(annotation) && error.contains("annotations = true"), "{error}");
    }
}

/// podman 4.5.0 and before: the annotations of an image are among those of the config.
#[test]
fn old_podmans_annotations_do_not_count() {
    let host = Host::new();
    host.claim(Origin::Local, "u-1", "mine");
    for annotations in [json!({"cdi.k8s.io/x": "v.com/c=a"}), json!({"divvy.dev/claim": "mine"})] {
        let mut config = annotated(&annotations);
        for version in
            ["1.0.2-dev", "1.1.0-rc.1", "1.1.0-rc.2", "1.1.0-dev", "1.1", "1.2.0-alpha", "2", ""]
                .into_iter()
                .map(|version| json!(version))
                .chain([json!(null), json!(7)])
        {
            config["ociVersion"] = version;
            let error = host.refuses("podman", &config, "REQUEST-REFUSED");
            assert!(error.contains("older than 4.6"), "{error}");
            host.request("ctr", &config).unwrap();
        }
        for version in ["1.1.0-rc.3", "1.1.0", "1.1.0+dev", "1.2.1", "1.3.0-rc.1"] {
            config["ociVersion"] = version.into();
            host.request("podman", &config).unwrap();
        }
    }
}

#[test]
fn a_claim_of_a_pod_is_never_reachable_by_name() {
    let host = Host::new();
    host.claim(Origin::Api, "u-1", "theirs");
    let config = annotated(&json!({"divvy.dev/claim": "theirs"}));
    let error = host.refuses("ctr", &config, "CLAIM-NOT-PREPARED");
    assert!(error.contains("local/default/theirs"), "{error}");
    // Not even where a name was made to point at it.
    host.claim(Origin::Local, "u-2", "theirs");
    let link = host.run.path().join("local/default/theirs");
    std::fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink("../../claims/u-1.json", &link).unwrap();
    host.refuses("ctr", &config, "CLAIM-OTHER-POD");
    for hostile in ["", "../x", "a/b/c", "/x", "x/", "a\nb"] {
        let config = annotated(&json!({"divvy.dev/claim": hostile}));
        let error = host.refuses("ctr", &config, "REQUEST-INVALID");
        assert!(error.contains("[namespace/]name"), "{error}");
    }
}

#[test]
fn the_environment_counts_only_where_it_is_configured() {
    let host = Host::new();
    let env = |value: &str| json!({"process": {"env": [format!("DIVVY_DEVICES={value}")]}});
    let request = host.request("podman", &env("v.com/c=a,v.com/c=b,v.com/c=a")).unwrap();
    assert_eq!(names(&request), ["v.com/c=a", "v.com/c=b"]);
    for handler in ["podman-off", "ctr", "cri-all", "not declared"] {
        host.nothing(handler, &env("v.com/c=a"));
    }
    host.nothing("podman", &env(""));
    for loose in ["all", "0", "v.com/c=a,", "none", "v.com/c=*/"] {
        let error = host.refuses("podman", &env(loose), "REQUEST-INVALID");
        assert!(error.contains("environment variable DIVVY_DEVICES"), "{error}");
    }
}

#[test]
fn a_handler_that_is_not_declared_runs_what_requests_nothing() {
    let host = Host::with_pod(&boot_id().unwrap());
    for config in [json!({}), cri("p-2", "main"), cri_sandbox("p-1"), cri("p-1", "sidecar")] {
        host.nothing("divvy-new", &config);
    }
    for config in [
        annotated(&json!({"cdi.k8s.io/x": "v.com/c=a"})),
        annotated(&json!({"divvy.dev/claim": "x"})),
        cri("p-1", "main"),
        crio("p-1", "main", &json!({})),
    ] {
        let error = host.refuses("divvy-new", &config, "CONFIG-INVALID");
        assert!(error.contains("[handlers.divvy-new]") && error.contains("/c.toml"), "{error}");
    }
}

#[test]
fn what_is_no_name_is_an_error_with_its_key() {
    let host = Host::new();
    for value in ["", "gpu", "v.com/c=a,", "v.com/c=a, v.com/c=b", "v.com/c=ä"] {
        let config = annotated(&json!({"cdi.k8s.io/x": value}));
        let error = host.refuses("ctr", &config, "REQUEST-INVALID");
        assert!(error.contains("cdi.k8s.io/x"), "{error}");
    }
    let config = json!({"annotations": {"io.kubernetes.cri-o.Labels": "[1"}});
    host.refuses("crio", &config, "REQUEST-INVALID");
    let config = json!({"annotations": {"io.kubernetes.cri-o.Annotations": "[\"cdi.k8s.io/\"]"}});
    host.refuses("crio-all", &config, "REQUEST-INVALID");
}

/// By its CDI name a claim would come without a look at its boot, its digest and whose it is.
#[test]
fn a_prepared_claim_is_reached_by_its_record_alone() {
    let host = Host::with_pod(&boot_id().unwrap());
    host.claim(Origin::Local, "u-1", "mine");
    let asks = json!({"cdi.k8s.io/x": DEVICE});
    let environment = json!({"process": {"env": [format!("DIVVY_DEVICES={DEVICE}")]}});
    let pod = |uid: &str, container: &str, name: &str| {
        let mut config = cri(uid, container);
        config["annotations"]["cdi.k8s.io/x"] = name.into();
        config
    };
    for (handler, config) in [
        ("ctr", annotated(&asks)),
        ("podman", annotated(&asks)),
        ("podman", environment),
        ("cri-all", pod("p-2", "main", DEVICE)),
        ("cri-all", pod("p-1", "sidecar", DEVICE)),
        ("cri-all", pod("p-1", "main", "gpu.divvy.dev/claim=u-gpu1")),
        ("crio-all", crio("p-2", "main", &asks)),
    ] {
        let error = host.refuses(handler, &config, "REQUEST-REFUSED");
        assert!(
            error.contains("gpu.divvy.dev/claim=u-gpu") && error.contains("divvy.dev/claim\""),
            "{error}"
        );
    }
    // An older kubelet names by annotation what the record gives: the same device.
    let request = host.request("cri", &pod("p-1", "main", DEVICE)).unwrap();
    assert_eq!((request.prepared.len(), request.names.len()), (1, 0));
    let request = host.request("crio", &crio("p-1", "main", &asks)).unwrap();
    assert_eq!((request.prepared.len(), request.names.len()), (1, 0));
}

#[test]
fn nobody_requests_names_without_end() {
    let host = Host::new();
    let list =
        |count: usize| (0..count).map(|n| format!("v.com/c=d{n}")).collect::<Vec<_>>().join(",");
    let environment =
        |count| json!({"process": {"env": [format!("DIVVY_DEVICES={}", list(count))]}});
    let claims = "a,".repeat(1 << 16);
    for (handler, config) in [
        ("ctr", annotated(&json!({"cdi.k8s.io/x": list(257)}))),
        ("ctr", annotated(&json!({"cdi.k8s.io/x": list(200), "cdi.k8s.io/y": list(57)}))),
        ("ctr", annotated(&json!({"divvy.dev/claim": claims}))),
        ("podman", environment(257)),
        ("crio-all", crio("p-2", "main", &json!({"cdi.k8s.io/x": list(1 << 16)}))),
    ] {
        let error = host.refuses(handler, &config, "REQUEST-INVALID");
        assert!(error.contains("256 are the most"), "{error}");
    }
    let request = host.request("ctr", &annotated(&json!({"cdi.k8s.io/x": list(256)}))).unwrap();
    assert_eq!(request.names.len(), 256);
    assert_eq!(host.request("podman", &environment(256)).unwrap().names.len(), 256);
}
