use std::path::Path;

use super::{AllocateError, Allocated, Source, allocate};
use crate::{
    claim::{Manifests, Sharing},
    gpu::{Placement, fixture::node},
    plan::{Held, Target},
};

mod pools;

const CLASSES: &str = r#"
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: half}
spec:
  selectors:
  - cel: {expression: 'device.driver == "gpu.divvy.dev" && device.attributes["gpu.divvy.dev"].type == "mig"'}
  - cel: {expression: 'device.attributes["gpu.divvy.dev"].profile == "3g.40gb"'}
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: any}
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: broken}
spec:
  selectors: [{cel: {expression: 'device.driver == '}}]
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: sliced}
spec:
  selectors:
  - cel: {expression: 'device.attributes["gpu.divvy.dev"].type == "gpu"'}
  config:
  - opaque: {driver: other.example.com, parameters: {}}
  - opaque:
      driver: gpu.divvy.dev
      parameters: {apiVersion: gpu.divvy.dev/v1alpha1, kind: GpuConfig, sharing: {timeSlicing: {}}}
"#;

fn manifests(devices: &str) -> Manifests {
    let text = format!(
        "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {{name: c}}\n\
         spec:\n  devices:\n    {devices}\n---\n{CLASSES}"
    );
    Manifests::parse(Path::new("c.yaml"), text.as_bytes(), "gpu.divvy.dev").unwrap()
}

fn allocated(devices: &str, held: &[Held]) -> Result<Allocated, AllocateError> {
    let manifests = manifests(devices);
    allocate(&manifests.claims[0], &manifests.classes, &node(&[]), held)
}

/// The devices for a claim with these requests.
fn chosen(requests: &str, held: &[Held]) -> Result<Vec<String>, AllocateError> {
    let allocated = allocated(&format!("requests: {requests}"), held)?;
    Ok(allocated.results.into_iter().map(|chosen| chosen.device).collect())
}

/// Held by another claim, not in part.
fn whole(target: Target) -> Held {
    Held {
        claim: "x/y".to_owned(),
        target,
        share: None,
        sharing: Sharing::Exclusive,
        switched: false,
    }
}

fn held(profile: &str, start: u8, size: u8) -> Vec<Held> {
    let placement = Placement { start, size };
    let (gpu, profile) = ("GPU-1".to_owned(), profile.to_owned());
    let target = Target::Partition { gpu, profile, placement };
    vec![whole(target)]
}

#[test]
fn the_first_that_fits_is_chosen() {
    let ask = |what: &str| chosen(&format!("[{{name: r, exactly: {{{what}}}}}]"), &[]).unwrap();
    assert_eq!(ask("deviceClassName: gpu.divvy.dev"), ["gpu-0000-1b-00"]);
    assert_eq!(
        ask("deviceClassName: half, count: 2"),
        ["gpu-0000-43-00-3g40gb-0", "gpu-0000-43-00-3g40gb-4"]
    );
    let expression = "device.capacity['gpu.divvy.dev'].memory.isGreaterThan(quantity('30Gi')) \
                      && device.attributes['gpu.divvy.dev'].type == 'mig'";
    assert_eq!(
        ask(&format!(
            "deviceClassName: any, count: 2, selectors: [{{cel: {{expression: \"{expression}\"}}}}]"
        )),
        ["gpu-0000-43-00-3g40gb-0", "gpu-0000-43-00-3g40gb-4"]
    );
    assert_eq!(
        ask("deviceClassName: mig.gpu.divvy.dev, capacity: {requests: {memory: 20Gi}}"),
        ["gpu-0000-43-00-1g20gb-0"]
    );
}

#[test]
fn a_choice_that_leads_nowhere_is_taken_back() {
    // The first seventh that fits alone would lie in the way of two halves.
    let requests = "[{name: a, exactly: {deviceClassName: mig.gpu.divvy.dev}}, \
                    {name: b, exactly: {deviceClassName: half}}]";
    assert_eq!(
        chosen(requests, &[]).unwrap(),
        ["gpu-0000-43-00-1g10gb-0", "gpu-0000-43-00-3g40gb-4"]
    );
    let requests = "[{name: a, exactly: {deviceClassName: mig.gpu.divvy.dev}}, \
                    {name: b, exactly: {deviceClassName: half, count: 2}}]";
    let error = chosen(requests, &[]).unwrap_err();
    assert_eq!(error.code(), "NO-DEVICE", "{error}");
    let requests = "[{name: a, exactly: {deviceClassName: any}}, \
                    {name: b, exactly: {deviceClassName: gpu.divvy.dev}}]";
    assert_eq!(chosen(requests, &[]).unwrap(), ["gpu-0000-43-00-1g10gb-0", "gpu-0000-1b-00"]);
}

#[test]
fn the_first_subrequest_that_can_be_had_is_taken() {
    let requests = "[{name: r, firstAvailable: [{name: two, deviceClassName: gpu.divvy.dev, \
                    count: 2}, {name: one, deviceClassName: gpu.divvy.dev}]}]";
    let allocated = allocated(&format!("requests: {requests}"), &[]).unwrap();
    assert_eq!(allocated.results.len(), 1);
    assert_eq!(allocated.results[0].request, "r/one");
    // One that would leave nothing for the others is passed over.
    let requests = "[{name: r, firstAvailable: [{name: a, deviceClassName: gpu.divvy.dev}, \
                    {name: b, deviceClassName: half}]}, \
                    {name: s, exactly: {deviceClassName: gpu.divvy.dev}}]";
    assert_eq!(chosen(requests, &[]).unwrap(), ["gpu-0000-43-00-3g40gb-0", "gpu-0000-1b-00"]);
}

#[test]
fn what_is_held_is_passed_over_and_named_when_nothing_is_left() {
    let held_half = held("3g.40gb", 0, 4);
    assert_eq!(
        chosen("[{name: r, exactly: {deviceClassName: half}}]", &held_half).unwrap(),
        ["gpu-0000-43-00-3g40gb-4"]
    );
    let two = "[{name: r, exactly: {deviceClassName: half, count: 2}}]";
    let error = chosen(two, &held_half).unwrap_err();
    assert_eq!(error.code(), "NO-DEVICE");
    assert_eq!(
        error.to_string(),
        "claim default/c: node n cannot give it what it asks for: request r: 2 asked for, 1 free: \
         26 devices: 23 not matching `device.attributes[\"gpu.divvy.dev\"].profile == \"3g.40gb\"` \
         of class half, 1 not matching `device.driver == \"gpu.divvy.dev\" && \
         device.attributes[\"gpu.divvy.dev\"].type == \"mig\"` of class half, 1 held by claim x/y (gpu-0000-43-00-3g40gb-0)"
    );
    let text = chosen(two, &held("1g.10gb+me", 1, 1)).unwrap_err().to_string();
    let says = "1 overlaps gpu-0000-43-00-1g10gb-me-1, held by claim x/y (gpu-0000-43-00-3g40gb-0)";
    assert!(text.contains(says), "{text}");
    let looking = "[{name: r, exactly: {deviceClassName: half, count: 2, adminAccess: true}}]";
    assert_eq!(chosen(looking, &held_half).unwrap().len(), 2);
}

#[test]
fn what_cannot_be_honoured_is_refused() {
    for (requests, code, says) in [
        (
            "[{name: r, exactly: {deviceClassName: broken}}]",
            "SELECTOR-INVALID",
            "`device.driver ==`: at 1:18 of the expression",
        ),
        ("[{name: r, exactly: {deviceClassName: unknown}}]", "CLAIM-INVALID", "\"unknown\""),
        (
            "[{name: r, exactly: {deviceClassName: half, derivedAttributes: [{name: x}]}}]",
            "CLAIM-UNSUPPORTED",
            "derivedAttributes",
        ),
        ("[]", "CLAIM-INVALID", "requests nothing"),
    ] {
        let error = chosen(requests, &[]).unwrap_err();
        assert_eq!(error.code(), code, "{requests}: {error}");
        let source = std::error::Error::source(&error).map(ToString::to_string);
        let text = format!("{error}: {}", source.unwrap_or_default());
        assert!(text.contains(says), "{text}");
    }
}

/// As in Kubernetes: an attribute that a device lacks is an error, not a device that does not fit,
/// but for devices that were not looked at.
#[test]
fn an_attribute_that_a_device_lacks_ends_the_allocation() {
    let expression = r#"device.attributes["gpu.divvy.dev"].profile == "1g.10gb""#;
    let requests = format!(
        "[{{name: r, exactly: {{deviceClassName: any, selectors: [{{cel: {{expression: \
         '{expression}'}}}}]}}}}]"
    );
    let error = chosen(&requests, &[]).unwrap_err();
    assert_eq!(error.code(), "SELECTOR-INVALID");
    let text = format!("{error}: {}", std::error::Error::source(&error).unwrap());
    let says = "exactly.selectors[0].cel.expression: \
                `device.attributes[\"gpu.divvy.dev\"].profile == \"1g.10gb\"`: device \
                gpu-0000-1b-00: no such key: profile";
    assert!(text.starts_with("c.yaml:6:") && text.ends_with(says), "{text}");
    let held = [whole(Target::Gpu { gpu: "GPU-0".to_owned() })];
    assert_eq!(chosen(&requests, &held).unwrap(), ["gpu-0000-43-00-1g10gb-0"]);
}

#[test]
fn configuration_of_classes_comes_once_and_before_the_claims() {
    let config = "{driver: gpu.divvy.dev, parameters: {apiVersion: gpu.divvy.dev/v1alpha1, kind: GpuConfig}}";
    let claim = |more: &str| {
        format!(
            "requests: [{{name: r, exactly: {{deviceClassName: sliced}}}}, {{name: s, \
             firstAvailable: [{{name: x, deviceClassName: half}}, {{name: y, deviceClassName: \
             sliced}}]}}]\n    config: [{{requests: [{more}], opaque: {config}}}]"
        )
    };
    let merged = |more: &str| {
        let merged = allocated(&claim(more), &[]).unwrap().config;
        merged.into_iter().map(|m| (m.source, m.index, m.requests)).collect::<Vec<_>>()
    };
    let class = |index| (Source::Class("sliced".to_owned()), index, vec!["r".to_owned()]);
    assert_eq!(merged("s/y"), [class(0), class(1)]);
    for requests in ["r", "s", "s/x"] {
        let own = (Source::Claim, 0, vec![requests.to_owned()]);
        assert_eq!(merged(requests), [class(0), class(1), own]);
    }
    let given = allocated(&claim("r"), &[]).unwrap().allocation();
    assert_eq!(given.config.len(), 2, "the other driver's is not ours");
    assert_eq!(given.config[0].requests, ["r"]);
}

#[test]
fn all_means_every_device_that_matches_or_nothing() {
    let all = |class: &str| {
        let requests =
            format!("[{{name: r, exactly: {{deviceClassName: {class}, allocationMode: All}}}}]");
        requests
    };
    assert_eq!(chosen(&all("gpu.divvy.dev"), &[]).unwrap(), ["gpu-0000-1b-00"]);
    assert_eq!(chosen(&all("half"), &[]).unwrap().len(), 2);
    let error = chosen(&all("half"), &held("3g.40gb", 4, 4)).unwrap_err().to_string();
    assert!(error.contains("all that match asked for, 1 free"), "{error}");
    // They overlap each other, so all cannot be had.
    let error = chosen(&all("mig.gpu.divvy.dev"), &[]).unwrap_err().to_string();
    assert!(error.contains("overlapping what the claim is given already"), "{error}");
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
