//! What the cluster is told of claims.

use serde_json::{Value, json};

use super::world::{SMALL, WHOLE, World};

const EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/team/events";

fn status_of(name: &str) -> String {
    format!("/resourceclaims/{name}/status?fieldManager=gpu.divvy.dev&force=true")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_devices_of_a_prepared_claim_are_ready_and_that_is_said_once() {
    let world = World::new().await;
    world.api.claim("a", "uid-a", &SMALL[..2]);
    world.prepare("a", "uid-a").await.unwrap();
    world.soon("the status", |world| world.api.written(&status_of("a")).len() == 1).await;
    let told = world.api.written(&status_of("a")).remove(0);
    assert_eq!(told["metadata"], json!({"namespace": "team", "name": "a", "uid": "uid-a"}));
    let devices = told["status"]["devices"].as_array().unwrap();
    let names: Vec<_> = devices.iter().map(|one| one["device"].as_str().unwrap()).collect();
    assert_eq!(names, SMALL[..2]);
    for device in devices {
        assert_eq!(
            (&device["driver"], &device["pool"]),
            (&json!("gpu.divvy.dev"), &json!("worker-1"))
        );
        let ready = &device["conditions"][0];
        assert_eq!((&ready["type"], &ready["status"]), (&json!("Ready"), &json!("True")));
        let since = ready["lastTransitionTime"].as_str().unwrap();
        assert!(since.len() == "2026-11-30T12:00:00Z".len() && since.ends_with('Z'), "{since}");
    }
    // It says so already.
    world.api.edit("a", |claim| claim["status"]["devices"] = told["status"]["devices"].clone());
    world.prepare("a", "uid-a").await.unwrap();
    world.api.claim("b", "uid-b", &[WHOLE]);
    world.prepare("b", "uid-b").await.unwrap();
    world.soon("the next", |world| world.api.written(&status_of("b")).len() == 1).await;
    assert_eq!(world.api.written(&status_of("a")).len(), 1);
    assert_eq!(world.api.written(EVENTS).len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_is_an_event_of_the_claim_and_of_its_pods() {
    let world = World::new().await;
    world.api.claim("odd", "uid-odd", &[WHOLE]);
    let odd = json!([{"source": "FromClaim", "opaque": {"driver": "gpu.divvy.dev", "parameters": {
        "apiVersion": "gpu.divvy.dev/v1alpha1", "kind": "GpuConfig", "bogus": 1}}}]);
    world.api.edit("odd", |claim| claim["status"]["allocation"]["devices"]["config"] = odd);
    let failed = world.prepare("odd", "uid-odd").await.unwrap_err();
    world.soon("the events", |world| world.api.written(EVENTS).len() == 2).await;
    let events = world.api.written(EVENTS);
    let kinds: Vec<_> = events.iter().map(|event| &event["regarding"]["kind"]).collect();
    assert_eq!(kinds, ["ResourceClaim", "Pod"]);
    assert_eq!(events[1]["regarding"]["uid"], "pod-uid-odd");
    for event in &events {
        assert_eq!(event["note"], failed);
        assert_eq!(
            (&event["type"], &event["reason"]),
            (&json!("Warning"), &json!("PrepareFailed"))
        );
        assert_eq!(event["reportingInstance"], "gpu.divvy.dev-worker-1");
        assert_eq!(event["eventTime"].as_str().unwrap().len(), "2026-11-30T12:00:00.000000Z".len());
    }
    let told = world.api.written(&status_of("odd")).remove(0);
    let ready = &told["status"]["devices"][0]["conditions"][0];
    assert_eq!((&ready["status"], &ready["message"]), (&json!("False"), &json!(failed)));
    // The same again is counted, on the event that is there.
    world.prepare("odd", "uid-odd").await.unwrap_err();
    let of = |name: &Value| format!("{EVENTS}/{}", name.as_str().unwrap());
    let first = of(&events[0]["metadata"]["name"]);
    world.soon("the series", |world| world.api.written(&first).len() == 1).await;
    assert_eq!(world.api.written(&first)[0]["series"]["count"], 2);
    assert_eq!(world.api.written(EVENTS).len(), 2);
}
