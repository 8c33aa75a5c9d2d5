use std::path::Path;

use super::{AllocateError, Condition, allocate, selector::parse};
use crate::{
    claim::Manifests,
    gpu::{Attribute, Placement, fixture::node},
    plan::{Held, Target},
};

const CLASSES: &str = r#"
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: half}
spec:
  selectors:
  - cel: {expression: 'device.driver == "gpu.divvy.dev"'}
  - cel: {expression: 'device.attributes["gpu.divvy.dev"].profile == "3g.40gb"'}
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: odd}
spec:
  selectors: [{cel: {expression: 'device.capacity["gpu.divvy.dev"].memory.isGreaterThan(quantity("1Gi"))'}}]
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: sliced}
spec:
  config:
  - opaque:
      driver: gpu.divvy.dev
      parameters: {apiVersion: gpu.divvy.dev/v1alpha1, kind: GpuConfig, sharing: {timeSlicing: {}}}
"#;

/// The devices for a claim with these requests.
fn chosen(requests: &str, held: &[Held]) -> Result<Vec<String>, AllocateError> {
    let text = format!(
        "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {{name: c}}\n\
         spec:\n  devices:\n    requests: {requests}\n---\n{CLASSES}"
    );
    let manifests = Manifests::parse(Path::new("c.yaml"), text.as_bytes()).unwrap();
    let allocation = allocate(&manifests.claims[0], &manifests.classes, &node(&[]), held)?;
    Ok(allocation.results.into_iter().map(|given| given.device).collect())
}

fn selecting(expression: &str) -> String {
    format!(
        "[{{name: r, exactly: {{deviceClassName: mig.gpu.divvy.dev, count: 2, \
         selectors: [{{cel: {{expression: '{expression}'}}}}]}}}}]"
    )
}

#[test]
fn the_first_that_fits_is_chosen() {
    assert_eq!(
        chosen("[{name: r, exactly: {deviceClassName: gpu.divvy.dev}}]", &[]).unwrap(),
        ["gpu-0000-1b-00"]
    );
    assert_eq!(
        chosen("[{name: r, exactly: {deviceClassName: half, count: 2}}]", &[]).unwrap(),
        ["gpu-0000-43-00-3g40gb-0", "gpu-0000-43-00-3g40gb-4"]
    );
    let expression = r#"device.attributes["gpu.divvy.dev"].profile == "1g.10gb""#;
    assert_eq!(
        chosen(&selecting(expression), &[]).unwrap(),
        ["gpu-0000-43-00-1g10gb-0", "gpu-0000-43-00-1g10gb-1"]
    );
}

#[test]
fn requests_of_one_claim_do_not_get_in_each_others_way() {
    let both = "[{name: a, exactly: {deviceClassName: half}}, \
                {name: b, exactly: {deviceClassName: mig.gpu.divvy.dev}}]";
    assert_eq!(chosen(both, &[]).unwrap(), ["gpu-0000-43-00-3g40gb-0", "gpu-0000-43-00-1g10gb-4"]);
}

#[test]
fn what_is_held_is_passed_over_and_named_when_nothing_is_left() {
    let placement = Placement { start: 0, size: 4 };
    let (gpu, profile) = ("GPU-1".to_owned(), "3g.40gb".to_owned());
    let target = Target::Partition { gpu, profile, placement };
    let held = [Held { claim: "x/y".to_owned(), target }];
    assert_eq!(
        chosen("[{name: r, exactly: {deviceClassName: half}}]", &held).unwrap(),
        ["gpu-0000-43-00-3g40gb-4"]
    );
    let two = "[{name: r, exactly: {deviceClassName: half, count: 2}}]";
    let error = chosen(two, &held).unwrap_err();
    assert_eq!(error.code(), "NO-DEVICE");
    let text = error.to_string();
    assert!(text.contains("2 asked for, 1 free on node n"), "{text}");
    assert!(text.contains("gpu-0000-43-00-3g40gb-0 is held by claim x/y"), "{text}");
    let target = Target::Partition {
        gpu: "GPU-1".to_owned(),
        profile: "1g.10gb+me".to_owned(),
        placement: Placement { start: 1, size: 1 },
    };
    let text = chosen(two, &[Held { claim: "x/y".to_owned(), target }]).unwrap_err().to_string();
    let says = "gpu-0000-43-00-3g40gb-0 overlaps gpu-0000-43-00-1g10gb-me-1, held by claim x/y";
    assert!(text.contains(says), "{text}");
}

#[test]
fn what_cannot_be_honoured_is_refused() {
    for (requests, code) in [
        ("[{name: r, exactly: {deviceClassName: odd}}]", "SELECTOR-UNSUPPORTED"),
        ("[{name: r, exactly: {deviceClassName: unknown}}]", "CLAIM-INVALID"),
        ("[{name: r, firstAvailable: [{name: s, deviceClassName: half}]}]", "CLAIM-UNSUPPORTED"),
        ("[{name: r, exactly: {deviceClassName: half, allocationMode: All}}]", "CLAIM-UNSUPPORTED"),
        ("[{name: r, exactly: {deviceClassName: half, adminAccess: true}}]", "CLAIM-UNSUPPORTED"),
        (
            "[{name: r, exactly: {deviceClassName: half, capacity: {requests: {memory: 1Gi}}}}]",
            "CLAIM-UNSUPPORTED",
        ),
        (
            "[{name: r, exactly: {deviceClassName: half}}]\n    constraints: [{matchAttribute: a/b}]",
            "CLAIM-UNSUPPORTED",
        ),
        ("[]", "CLAIM-INVALID"),
    ] {
        let error = chosen(requests, &[]).unwrap_err();
        assert_eq!(error.code(), code, "{requests}: {error}");
    }
    let error = chosen("[{name: r, exactly: {deviceClassName: odd}}]", &[]).unwrap_err();
    assert!(error.to_string().starts_with("c.yaml:21:"), "{error}");
    let why = std::error::Error::source(&error).unwrap().to_string();
    assert!(why.contains("stops being understood at \"capacity"), "{why}");
}

#[test]
fn a_classs_configuration_is_for_the_requests_that_name_it() {
    let text = format!(
        "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {{name: c}}\nspec:\n  \
         devices:\n    requests: [{{name: r, exactly: {{deviceClassName: sliced}}}}]\n---\n{CLASSES}"
    );
    let manifests = Manifests::parse(Path::new("c.yaml"), text.as_bytes()).unwrap();
    let given = allocate(&manifests.claims[0], &manifests.classes, &node(&[]), &[]).unwrap();
    assert_eq!(given.config[0].requests, ["r"]);
}

#[test]
fn selectors_of_the_form_that_is_understood() {
    let profile = || Condition::Attribute(Attribute::Profile, "1g.10gb".to_owned());
    for (expression, conditions) in [
        (r#"device.attributes["gpu.divvy.dev"].profile == "1g.10gb""#, vec![profile()]),
        ("device . attributes [ 'gpu.divvy.dev' ]\n.profile=='1g.10gb' ", vec![profile()]),
        (
            r#"device.driver == "gpu.divvy.dev" && device.attributes["gpu.divvy.dev"].profile == "1g.10gb""#,
            vec![Condition::Driver("gpu.divvy.dev".to_owned()), profile()],
        ),
    ] {
        assert_eq!(parse(expression).unwrap(), conditions, "{expression}");
    }
}

#[test]
fn selectors_of_any_other_form_are_refused_where_they_leave_it() {
    for (expression, at) in [
        ("", "\"\""),
        ("true", "\"true\""),
        (r#"!(device.driver == "x")"#, "\"!(device"),
        (r#"device.driver != "x""#, "\"!= "),
        (r#"device.driver == "x" || true"#, "\"|| true\""),
        (r#"device.driver == "x" &&"#, "\"\""),
        (r#"device.driver == "x" && device.driver"#, "\"\""),
        (r#"device.driver == "a\"b""#, r#"at "\"a"#),
        (r#"device.driver == """x""""#, "at "),
        (r#"device.driver == r"x""#, "at "),
        (r#"device.driver == "x"y"#, "\"y\""),
        (r#"device.attributes["other"].x == "y""#, "\"\\\"other"),
        (r#"device.capacity["gpu.divvy.dev"].memory == "y""#, "\"capacity"),
        (r#"device.attributes["gpu.divvy.dev"].type == 3"#, "\"3\""),
        (r#"device.attributes["gpu.divvy.dev"].index == "3""#, "type, uuid, productName"),
    ] {
        let error = parse(expression).unwrap_err().to_string();
        assert!(error.contains(at), "{expression}: {error} does not contain {at}");
    }
}

#[test]
fn a_claim_is_given_at_most_32_devices() {
    let ask = |name: &str, count| {
        format!("{{name: {name}, exactly: {{deviceClassName: mig.gpu.divvy.dev, count: {count}}}}}")
    };
    // One request for more is refused where it is read.
    for (first, second) in [(1, 32), (2, 31)] {
        let requests = format!("[{}, {}]", ask("a", first), ask("b", second));
        let error = chosen(&requests, &[]).unwrap_err();
        assert_eq!(error.code(), "CLAIM-INVALID");
        let says = "asks for 33 devices; one claim may have at most 32";
        assert!(error.to_string().contains(says), "{error}");
    }
}
