use serde_json::{Value, json};

use super::reviewed;

/// What is answered for an object of a kind with this configuration, and one before it.
fn asked(kind: &str, parameters: &Value, before: Option<&Value>) -> Value {
    let config = |parameters: &Value| json!([{"opaque": {"driver": "gpu.divvy.dev", "parameters": parameters}}]);
    let spec = |parameters: &Value| match kind {
        "DeviceClass" => json!({"config": config(parameters)}),
        "ResourceClaim" => json!({"devices": {"config": config(parameters)}}),
        _ => json!({"spec": {"devices": {"config": config(parameters)}}}),
    };
    let object = |parameters: &Value| {
        json!({"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": {"name": "a"},
               "spec": spec(parameters)})
    };
    let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request":
        {"uid": "u", "object": object(parameters), "oldObject": before.map(object)}});
    let answer = reviewed(review.to_string().as_bytes()).expect("an answer");
    assert_eq!(answer["response"]["uid"], "u");
    answer["response"].clone()
}

fn config(interval: &str) -> Value {
    json!({"apiVersion": "gpu.divvy.dev/v1alpha1", "kind": "GpuConfig",
           "sharing": {"timeSlicing": {"interval": interval}}})
}

#[test]
fn what_a_node_would_refuse_is_refused_in_every_kind() {
    for kind in ["ResourceClaim", "ResourceClaimTemplate", "DeviceClass"] {
        assert_eq!(asked(kind, &config("Short"), None)["allowed"], true, "{kind}");
        let refused = asked(kind, &config("Tiny"), None);
        assert_eq!(refused["allowed"], false, "{kind}");
        let said = refused["status"]["message"].as_str().unwrap_or_default();
        let place = "config[0].opaque.parameters.sharing.timeSlicing.interval";
        assert!(said.starts_with("CONFIG-INVALID: ") && said.contains(place), "{said}");
        assert!(said.contains("Tiny") && said.contains("Short"), "{said}");
    }
}

#[test]
fn what_is_stored_already_can_go() {
    let wrong = config("Tiny");
    assert_eq!(asked("ResourceClaim", &wrong, Some(&wrong))["allowed"], true);
    assert_eq!(asked("DeviceClass", &wrong, Some(&config("Short")))["allowed"], false);
}

#[test]
fn what_is_no_review_is_none() {
    for wrong in
        ["", "[]", "{}", r#"{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}"#]
    {
        assert!(reviewed(wrong.as_bytes()).is_err(), "{wrong}");
    }
}

/// Of a few MiB anybody could make hundreds of them in memory.
#[test]
fn what_is_larger_than_any_object_is_not_read() {
    let object = "{\"\":0},".repeat(super::MAX_OBJECT / 7 + 1);
    let review = format!(
        "{{\"apiVersion\": \"admission.k8s.io/v1\", \"kind\": \"AdmissionReview\", \"request\": {{\"uid\": \"u\", \
         \"object\": [{object} 1]}}}}"
    );
    assert!(reviewed(review.as_bytes()).is_err_and(|why| why.contains("3 MiB")));
}

#[test]
fn an_object_of_any_shape_is_answered() {
    for object in [
        json!([]),
        json!("a"),
        json!({}),
        json!({"kind": "ResourceClaim", "spec": [1]}),
        json!({"kind": "Pod", "spec": {"config": 1}}),
        json!({"kind": "DeviceClass", "spec": {"config": [{"opaque": 1}]}}),
    ] {
        let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
                            "request": {"uid": "u", "object": object}});
        assert!(reviewed(review.to_string().as_bytes()).is_ok(), "{object}");
    }
}
