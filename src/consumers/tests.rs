use std::sync::Arc;

use divvy_hook::record::{
    ClaimRecord, Consumer, Driver, Origin, PodRecord, RunDir, SpecRef, VERSION,
};
use k8s_openapi::api::core::v1 as core;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{Pods, pod::Pod, state::Known};
use crate::{api::Api, claim::DRIVER, plugin::Consumers as _};

const BOOT: &str = "this-boot";

fn ours(uid: &str) -> Known {
    Known::Ours { uid: uid.to_owned(), drivers: [DRIVER.to_owned()].into() }
}

struct World {
    dir: TempDir,
    pods: Arc<Pods>,
}

impl World {
    /// A node whose API server says nothing.
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let pods = Self::pods(&dir);
        // The API server has told of all there are: none yet.
        pods.list(Vec::new());
        Self { pods, dir }
    }

    /// The driver's instance on it.
    fn pods(dir: &TempDir) -> Arc<Pods> {
        let config = dir.path().join("kubeconfig");
        let text = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "here",
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
            "clusters": [{"name": "here", "cluster": {"server": "http://127.0.0.1:9"}}],
            "users": [{"name": "me", "user": {}}],
        });
        divvy_cdi::file::replace(
            &config,
            text.to_string().as_bytes(),
            0o600,
            divvy_cdi::file::Durability::Volatile,
        )
        .expect("a kubeconfig");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime");
        let api = runtime.block_on(Api::new(Some(&config))).expect("an API server");
        let run = RunDir::new(dir.path().join("run"));
        Pods::new(api, "node1".into(), [DRIVER.to_owned()].into(), run, BOOT.into())
    }

    fn run(&self) -> RunDir {
        RunDir::new(self.dir.path().join("run"))
    }

    fn record(&self, uid: &str) -> Option<PodRecord> {
        self.run().pod(uid).expect("a good record, or none")
    }

    /// Container → the CDI names that it gets.
    fn given(&self, uid: &str) -> Option<Vec<(String, Vec<String>)>> {
        let containers = self.record(uid)?.containers.into_iter();
        let names = |(name, devices): (String, Vec<divvy_hook::record::DeviceRef>)| {
            (name, devices.into_iter().map(|device| device.name).collect())
        };
        Some(containers.map(names).collect())
    }

    /// As if `claim` had just been prepared for these pods.
    fn prepare(&self, claim: &str, consumers: &[&str]) {
        let record = record_of(claim, consumers);
        self.run().write_claim(&record).expect("a record");
        let records = [(DRIVER.to_owned(), record.clone())];
        self.pods.state().claims.insert(record.uid, records.into());
        let of_claim = self.pods.state().pods_of("default", claim);
        let mut state = self.pods.state();
        of_claim.iter().for_each(|uid| self.pods.settle(&mut state, uid));
    }
}

fn record_of(claim: &str, consumers: &[&str]) -> ClaimRecord {
    let name = |device: &str| format!("gpu.divvy.dev/claim={claim}-uid-{device}");
    let spec = SpecRef { path: format!("/cdi/{claim}.json").into(), digest: "sha256:0".into() };
    let pod = |uid: &&str| Consumer { kind: "Pod".into(), uid: (*uid).into(), name: (*uid).into() };
    ClaimRecord {
        version: VERSION,
        origin: Origin::Api,
        uid: format!("{claim}-uid"),
        namespace: "default".into(),
        name: claim.into(),
        driver: Driver { name: "gpu.divvy.dev".into(), version: "0".into() },
        boot: BOOT.into(),
        requests: [("a".into(), vec![name("a")]), ("b".into(), vec![name("b")])].into(),
        specs: [(name("a"), spec.clone()), (name("b"), spec)].into(),
        consumers: consumers.iter().map(pod).collect(),
        stamp: None,
    }
}

fn pod(uid: &str, spec: &Value, status: &Value) -> Pod {
    let pod: core::Pod = serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": uid, "namespace": "default", "uid": uid},
        "spec": spec, "status": status,
    }))
    .expect("a pod");
    Pod::of(&pod).expect("a pod with a UID")
}

fn container(name: &str, claims: &Value) -> Value {
    json!({"name": name, "resources": {"claims": claims}})
}

fn one_claim(uid: &str, claim: &str) -> Pod {
    let spec = json!({
        "containers": [container("main", &json!([{"name": "gpu"}]))],
        "resourceClaims": [{"name": "gpu", "resourceClaimName": claim}],
    });
    pod(uid, &spec, &json!({}))
}

fn names(claim: &str, devices: &[&str]) -> Vec<String> {
    devices.iter().map(|device| format!("gpu.divvy.dev/claim={claim}-uid-{device}")).collect()
}

#[test]
fn a_record_is_there_once_all_of_the_pods_claims_are_prepared() {
    let world = World::new();
    let spec = json!({
        "initContainers": [container("init", &json!([{"name": "one", "request": "b"}]))],
        "containers": [
            container("main", &json!([{"name": "one"}, {"name": "two", "request": "a"}])),
            container("twice", &json!([{"name": "one", "request": "a"}, {"name": "one"}])),
            container("without", &json!([])),
        ],
        "resourceClaims": [
            {"name": "one", "resourceClaimName": "c1"},
            {"name": "two", "resourceClaimTemplateName": "template"},
        ],
    });
    let made = json!({"resourceClaimStatuses": [{"name": "two", "resourceClaimName": "c2"}]});
    world.pods.apply(pod("p", &spec, &made));
    assert_eq!(world.record("p"), None);
    world.prepare("c1", &["p"]);
    assert_eq!(world.record("p"), None, "the other claim is not prepared yet");
    world.prepare("c2", &["p"]);
    let main = [names("c1", &["a", "b"]), names("c2", &["a"])].concat();
    let expected = vec![
        ("init".to_owned(), names("c1", &["b"])),
        ("main".to_owned(), main),
        ("twice".to_owned(), names("c1", &["a", "b"])),
    ];
    assert_eq!(world.given("p"), Some(expected));
}

#[test]
fn a_claim_of_a_template_is_waited_for_until_it_is_made() {
    let world = World::new();
    let spec = json!({
        "containers": [container("main", &json!([{"name": "gpu"}]))],
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "template"}],
        "runtimeClassName": "divvy",
    });
    world.pods.apply(pod("p", &spec, &json!({})));
    assert_eq!(world.record("p"), None);
    // Kubernetes says that none is needed.
    world.pods.apply(pod("p", &spec, &json!({"resourceClaimStatuses": [{"name": "gpu"}]})));
    assert_eq!(world.given("p"), Some(vec![]));
}

#[test]
fn only_the_pods_that_a_claim_is_reserved_for_get_it() {
    let world = World::new();
    world.prepare("c", &["p"]);
    world.pods.apply(one_claim("p", "c"));
    world.pods.apply(one_claim("q", "c"));
    assert_eq!(world.given("p"), Some(vec![("main".into(), names("c", &["a", "b"]))]));
    assert_eq!(world.record("q"), None);
    // The API server says that it is by now, of the same claim.
    assert!(world.pods.state().learn("q", "c", ours("c-uid")));
    world.pods.refresh();
    assert_eq!(world.given("q"), Some(vec![("main".into(), names("c", &["a", "b"]))]));
}

#[test]
fn a_claim_of_another_uid_is_another_claim() {
    let world = World::new();
    world.prepare("c", &["p"]);
    world.pods.apply(one_claim("q", "c"));
    assert!(world.pods.state().learn("q", "c", ours("of-its-successor")));
    world.pods.refresh();
    assert_eq!(world.record("q"), None);
}

#[test]
fn without_a_claim_only_who_chose_a_handler_has_a_record() {
    let world = World::new();
    let containers = json!([{"name": "main"}]);
    world.pods.apply(pod("plain", &json!({"containers": containers}), &json!({})));
    let handled = json!({"containers": containers, "runtimeClassName": "divvy"});
    world.pods.apply(pod("handled", &handled, &json!({})));
    assert_eq!(world.record("plain"), None);
    assert_eq!(world.given("handled"), Some(vec![]));
}

#[test]
fn other_drivers_claims_give_nothing_and_hold_nothing_up() {
    let world = World::new();
    let spec = json!({
        "containers": [container("main", &json!([{"name": "ours"}, {"name": "theirs"}]))],
        "resourceClaims": [
            {"name": "ours", "resourceClaimName": "c"},
            {"name": "theirs", "resourceClaimName": "other"},
        ],
    });
    world.prepare("c", &["p"]);
    world.pods.apply(pod("p", &spec, &json!({})));
    assert_eq!(world.record("p"), None, "the other claim may be ours as well");
    assert!(world.pods.state().learn("p", "other", Known::Others));
    world.pods.refresh();
    assert_eq!(world.given("p"), Some(vec![("main".into(), names("c", &["a", "b"]))]));
}

#[test]
fn extended_resources_are_given_as_the_scheduler_says() {
    let world = World::new();
    world.prepare("made", &["p"]);
    let status = json!({"extendedResourceClaimStatus": {
        "resourceClaimName": "made",
        "requestMappings": [
            {"containerName": "one", "resourceName": "nvidia.com/gpu", "requestName": "a"},
            {"containerName": "two", "resourceName": "nvidia.com/gpu", "requestName": "b"},
        ],
    }});
    let spec = json!({"containers": [{"name": "one"}, {"name": "two"}, {"name": "three"}]});
    world.pods.apply(pod("p", &spec, &status));
    let expected =
        vec![("one".into(), names("made", &["a"])), ("two".into(), names("made", &["b"]))];
    assert_eq!(world.given("p"), Some(expected));
}

#[test]
fn a_record_goes_with_its_pod_and_with_its_claim() {
    let world = World::new();
    world.prepare("c", &["p", "q"]);
    for uid in ["p", "q"] {
        world.pods.apply(one_claim(uid, "c"));
        assert!(world.record(uid).is_some());
    }
    world.pods.delete("q");
    assert_eq!(world.record("q"), None);
    assert!(world.run().remove_claim("c-uid").expect("it is removed"));
    world.pods.unprepared(DRIVER, "c-uid");
    assert_eq!(world.record("p"), None);
    // Prepared again, as after a restart of the kubelet.
    world.prepare("c", &["p"]);
    assert!(world.record("p").is_some());
}

#[test]
fn a_list_ends_the_records_of_pods_that_are_gone() {
    let world = World::new();
    world.prepare("c", &["p", "gone"]);
    world.pods.apply(one_claim("gone", "c"));
    // Of an earlier run: nobody here knows it.
    let stray = PodRecord {
        version: VERSION,
        uid: "stray".into(),
        namespace: "default".into(),
        name: "stray".into(),
        boot: BOOT.into(),
        containers: Default::default(),
    };
    world.run().write_pod(&stray).expect("a record");
    world.pods.list(vec![one_claim("p", "c")]);
    assert_eq!(world.run().pods().expect("the records"), ["p"]);
}

#[test]
fn a_record_that_was_lost_or_is_of_the_past_is_written_again() {
    let world = World::new();
    world.prepare("c", &["p"]);
    world.pods.apply(one_claim("p", "c"));
    assert!(world.run().remove_pod("p").expect("it is removed"));
    let mut claim = record_of("c", &["p"]);
    claim.specs.values_mut().for_each(|spec| spec.digest = "sha256:1".into());
    world.run().write_claim(&claim).expect("a record");
    world.pods.refresh();
    let record = world.record("p").expect("a record");
    let digests = record.containers.values().flatten().map(|device| device.digest.as_str());
    assert_eq!(digests.collect::<Vec<_>>(), ["sha256:1", "sha256:1"]);
}

#[test]
fn claims_of_another_boot_or_of_a_person_are_no_pods() {
    let world = World::new();
    let mut earlier = record_of("earlier", &["p"]);
    earlier.boot = "another".into();
    let mut local = record_of("local", &["q"]);
    local.origin = Origin::Local;
    for claim in [&earlier, &local] {
        world.run().write_claim(claim).expect("a record");
    }
    world.pods.list(vec![one_claim("p", "earlier"), one_claim("q", "local")]);
    assert_eq!(world.run().pods().expect("the records"), Vec::<String>::new());
}

#[test]
fn what_is_not_known_is_asked_for_ever_more_rarely() {
    let world = World::new();
    world.pods.apply(one_claim("p", "c"));
    let mut state = world.pods.state();
    let start = std::time::Instant::now();
    let (asks, next) = state.unknown(start);
    assert_eq!(asks, [("p".to_owned(), "default".to_owned(), "c".to_owned())]);
    let next = next.expect("it is asked for again");
    assert_eq!(state.unknown(start).0, []);
    let (asks, later) = state.unknown(next);
    assert_eq!(asks.len(), 1);
    assert!(later.expect("and again") - next > next - start);
    drop(state);
    let mut over = one_claim("p", "c");
    over.is_over = true;
    world.pods.apply(over);
    let far = start + std::time::Duration::from_secs(3600);
    assert_eq!(world.pods.state().unknown(far), (vec![], None));
}

#[test]
fn a_claim_that_somebody_else_ended_takes_its_record_along() {
    let world = World::new();
    world.prepare("c", &["p"]);
    world.pods.apply(one_claim("p", "c"));
    assert!(world.record("p").is_some());
    // By hand, or by a round: nobody said so.
    assert!(world.run().remove_claim("c-uid").expect("it is removed"));
    world.pods.refresh();
    assert_eq!(world.record("p"), None);
    // And the next of its name may be another.
    let asks = world.pods.state().unknown(std::time::Instant::now()).0;
    assert_eq!(asks.len(), 1);
}

#[test]
fn a_claim_that_is_prepared_again_has_its_record_again_at_once() {
    let world = World::new();
    let looks: [fn(&World); 2] =
        [|world| world.pods.refresh(), |world| world.pods.list(vec![one_claim("p", "c")])];
    for look in looks {
        world.prepare("c", &["p"]);
        world.pods.apply(one_claim("p", "c"));
        assert!(world.record("p").is_some());
        // Ended by somebody else; a look finds out.
        assert!(world.run().remove_claim("c-uid").expect("it is removed"));
        look(&world);
        assert_eq!(world.record("p"), None);
        world.prepare("c", &["p"]);
        assert!(world.record("p").is_some(), "it waits for the next look");
    }
}

#[test]
fn a_claim_that_the_other_instance_prepared_keeps_its_record() {
    let world = World::new();
    let other = World::pods(&world.dir);
    other.list(vec![one_claim("p", "c")]);
    world.pods.apply(one_claim("p", "c"));
    world.prepare("c", &["p"]);
    let record = world.record("p").expect("a record");
    // The other one has learned from the API server whose the claim is, and sees its pod again.
    other.state().learn("p", "c", ours("c-uid"));
    other.apply(one_claim("p", "c"));
    assert_eq!(world.record("p"), Some(record));
    assert!(world.run().remove_claim("c-uid").expect("it is removed"));
    other.refresh();
    assert_eq!(world.record("p"), None);
}

#[test]
fn a_record_that_is_as_it_should_be_is_left_alone() {
    let world = World::new();
    world.prepare("c", &["p"]);
    world.pods.apply(one_claim("p", "c"));
    let path = world.run().pod_path("p");
    let inode = |path| std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(path).expect("it"));
    let before = inode(&path);
    world.pods.refresh();
    assert_eq!(inode(&path), before);
}
