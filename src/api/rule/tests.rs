use super::*;

#[test]
fn a_request_is_what_rbac_calls_it() {
    for (asked, says) in [
        (
            "GET /apis/resource.k8s.io/v1/namespaces/team/resourceclaims/a",
            "get on resourceclaims of resource.k8s.io",
        ),
        (
            "PATCH /apis/resource.k8s.io/v1/namespaces/team/resourceclaims/a/status?fieldManager=x",
            "patch on resourceclaims/status of resource.k8s.io",
        ),
        (
            "GET /apis/resource.k8s.io/v1/resourceslices?watch=1&fieldSelector=spec.driver%3Dx",
            "watch on resourceslices of resource.k8s.io",
        ),
        (
            "GET /apis/resource.k8s.io/v1/resourceslices?fieldSelector=x",
            "list on resourceslices of resource.k8s.io",
        ),
        ("POST /apis/events.k8s.io/v1/namespaces/n/events", "create on events of events.k8s.io"),
        ("GET /api/v1/nodes/n", "get on nodes"),
        ("GET /api/v1/namespaces/n", "get on namespaces"),
        (
            "PUT /apis/resource.k8s.io/v1/resourceslices/s",
            "update on resourceslices of resource.k8s.io",
        ),
    ] {
        assert_eq!(Rule::of(asked).unwrap().to_string(), says, "{asked}");
    }
    for asked in ["GET /version", "GET /readyz", "GET /apis", "", "OPTIONS /api/v1/nodes/n"] {
        assert_eq!(Rule::of(asked), None, "{asked}");
    }
}

#[test]
fn only_the_resource_itself_is_absent() {
    let asked = "GET /apis/resource.k8s.io/v1/namespaces/team/resourceclaims/a";
    let rule = Rule::of(asked).unwrap();
    let status = |text: &str| serde_json::from_str::<kube::core::Status>(text).unwrap();
    let absent = r#"{"code": 404, "reason": "NotFound",
        "details": {"name": "a", "group": "resource.k8s.io", "kind": "resourceclaims"}}"#;
    assert!(rule.is_absent(&status(absent)));
    for other in [
        // A server that does not serve the resource.
        r#"{"code": 404, "reason": "NotFound", "details": {}}"#.to_owned(),
        r#"{"code": 404, "reason": "NotFound"}"#.to_owned(),
        // A proxy, or an aggregated server of something else.
        r#"{"code": 404, "reason": "Failed to parse error data"}"#.to_owned(),
        absent.replace("resourceclaims", "services"),
        absent.replace("\"a\"", "\"b\""),
        absent.replace("NotFound", "Gone"),
        absent.replace("404", "410"),
    ] {
        assert!(!rule.is_absent(&status(&other)), "{other}");
    }
}
