//! Configuration in the form of NVIDIA's driver, addressed to it or to ours.

use super::*;

/// A `GpuConfig` or `MigDeviceConfig` of NVIDIA.
fn theirs(kind: &str, rest: &str) -> String {
    format!("{{apiVersion: resource.nvidia.com/v1beta1, kind: {kind}, {rest}}}")
}

/// An entry for NVIDIA's driver.
fn for_theirs(parameters: &str) -> String {
    entry(parameters).replace("driver: gpu.divvy.dev", "driver: gpu.nvidia.com")
}

#[test]
fn both_apis_say_the_same() {
    let settings = "{defaultActiveThreadPercentage: 50, defaultPinnedDeviceMemoryLimit: 10Gi, \
                    defaultPerDevicePinnedMemoryLimit: {'0': 5Gi, GPU-1: 6Gi}, multiUser: true}";
    let mps = format!("sharing: {{strategy: MPS, mpsConfig: {settings}}}");
    let ours_mps = format!("sharing: {{mps: {settings}}}");
    for (kind, their, our) in [
        ("GpuConfig", "", ""),
        ("GpuConfig", "sharing: null", ""),
        ("GpuConfig", "sharing: {strategy: TimeSlicing}", "sharing: {timeSlicing: {}}"),
        (
            "GpuConfig",
            "sharing: {strategy: TimeSlicing, timeSlicingConfig: {}}",
            "sharing: {timeSlicing: {}}",
        ),
        (
            "GpuConfig",
            "sharing: {strategy: TimeSlicing, timeSlicingConfig: {interval: Medium}, mpsConfig: null}",
            "sharing: {timeSlicing: {interval: Medium}}",
        ),
        ("GpuConfig", "sharing: {strategy: MPS}", "sharing: {mps: {}}"),
        ("GpuConfig", &mps, &ours_mps),
        ("MigDeviceConfig", "", ""),
        ("MigDeviceConfig", "sharing: {strategy: MPS, mpsConfig: {}}", "sharing: {mps: {}}"),
        ("MigDeviceConfig", &mps, &ours_mps),
    ] {
        let expected = configured(&ours(kind, our));
        let found = |entry: String| {
            let config = claim(&allocated(&entry)).allocation.unwrap().config.remove(0);
            (config.kind, config.sharing)
        };
        let parameters = theirs(kind, their);
        for entry in [entry(&parameters), for_theirs(&parameters)] {
            assert_eq!(found(entry), (expected.kind, expected.sharing.clone()), "{parameters}");
        }
    }
}

#[test]
fn what_nvidia_refuses_or_should_is_refused_with_what_is_allowed() {
    for (kind, rest, says) in [
        ("GpuConfig", "bogus: 1", "parameters.bogus: unknown field"),
        ("GpuConfig", "sharing: {}", "sharing: strategy is missing; known are TimeSlicing, MPS;"),
        ("MigDeviceConfig", "sharing: {}", "sharing: strategy is missing; known is MPS;"),
        (
            "GpuConfig",
            "sharing: {strategy: Exclusive}",
            "sharing.strategy: \"Exclusive\" is no strategy; known are TimeSlicing, MPS",
        ),
        ("MigDeviceConfig", "sharing: {strategy: Fair}", "\"Fair\" is no strategy; known is MPS"),
        ("GpuConfig", "sharing: {strategy: 1}", "sharing.strategy: the number 1 must be text"),
        ("GpuConfig", "sharing: [MPS]", "sharing: must be an object, and is a list"),
        ("GpuConfig", "sharing: {mps: {}}", "sharing.mps: unknown field; known are strategy,"),
        (
            "GpuConfig",
            "sharing: {strategy: TimeSlicing, timeSlicingConfig: {interval: Fast}}",
            "interval: \"Fast\" is no interval; known are Default, Short, Medium, Long",
        ),
        (
            "GpuConfig",
            "sharing: {strategy: TimeSlicing, timeSlicingConfig: {}, mpsConfig: {}}",
            "mpsConfig: cannot be set with strategy TimeSlicing; known is timeSlicingConfig",
        ),
        (
            "GpuConfig",
            "sharing: {strategy: MPS, timeSlicingConfig: {interval: Short}}",
            "timeSlicingConfig: cannot be set with strategy MPS; known is mpsConfig",
        ),
        (
            "MigDeviceConfig",
            "sharing: {strategy: TimeSlicing}",
            "strategy: a MIG device cannot be time-sliced: the hardware has no such setting; known is \
             MPS",
        ),
        (
            "MigDeviceConfig",
            "sharing: {strategy: MPS, timeSlicingConfig: {}}",
            "timeSlicingConfig: cannot be set with strategy MPS",
        ),
        ("VfioDeviceConfig", "", "\"VfioDeviceConfig\" is no kind of configuration; known are Gpu"),
        ("VfioDeviceConfig", "iommu: {backendPolicy: X}", "known are GpuConfig, MigDeviceConfig"),
        ("ComputeDomainChannelConfig", "domainID: ''", "known are GpuConfig, MigDeviceConfig"),
        ("Foo", "", "parameters.kind: \"Foo\" is no kind of configuration"),
    ] {
        assert_refused(&theirs(kind, rest), says);
    }
    for (settings, says) in WRONG_MPS {
        for kind in ["GpuConfig", "MigDeviceConfig"] {
            let rest = format!("sharing: {{strategy: MPS, mpsConfig: {{{settings}}}}}");
            assert_refused(&theirs(kind, &rest), says);
        }
    }
    assert_refused("{kind: GpuConfig}", "parameters: apiVersion is missing");
    assert_refused("{apiVersion: resource.nvidia.com/v1beta1}", "parameters: kind is missing");
    assert_refused(
        &theirs("GpuConfig", "").replace("v1beta1", "v1"),
        "\"resource.nvidia.com/v1\" is no configuration of driver gpu.divvy.dev; known are \
         gpu.divvy.dev/v1alpha1, resource.nvidia.com/v1beta1",
    );
    let twice = parse(&allocated(&entry(&theirs("GpuConfig", "kind: GpuConfig")))).unwrap_err();
    let ClaimError::Document { source, .. } = &twice else { panic!("{twice}") };
    assert!(twice.to_string().starts_with("c.yaml:25:"), "{twice}");
    assert!(source.to_string().contains("\"kind\""), "{source}");
}

#[test]
fn nvidias_driver_has_only_nvidias_api() {
    let (error, code) = refused(&allocated(&for_theirs(SHORT)));
    assert_eq!(code, "CONFIG-INVALID", "{error}");
    let says = "\"gpu.divvy.dev/v1alpha1\" is no configuration of driver gpu.nvidia.com; known is \
                resource.nvidia.com/v1beta1";
    assert!(error.contains(says), "{error}");
}

#[test]
fn what_is_for_nvidias_driver_counts_where_a_request_got_a_device_of_ours() {
    let short = theirs("GpuConfig", "sharing: {strategy: TimeSlicing}");
    let counted = |text: &str| claim(text).allocation.unwrap().config.len();
    for (requests, count) in [("[gpu]", 1), ("[]", 1), ("[any, gpu]", 1), ("[any]", 0)] {
        let entry = for_theirs(&short).replace("[gpu]", requests);
        assert_eq!(counted(&allocated(&entry)), count, "{requests}");
        // Whatever is wrong is NVIDIA's to say where no device is ours.
        let wrong = entry.replace("strategy: TimeSlicing", "strategy: 1");
        assert_eq!(parse(&allocated(&wrong)).is_ok(), count == 0, "{requests}");
        let other = allocated(&wrong).replace("driver: gpu.divvy.dev, pool", "driver: x.y, pool");
        assert_eq!(counted(&other), 0, "{requests}");
    }
}

#[test]
fn what_is_for_nvidias_driver_counts_in_claims_and_classes_before_they_are_allocated() {
    let short = theirs("GpuConfig", "sharing: {strategy: TimeSlicing}");
    let text = format!(
        "apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {{name: c}}\nspec:\n  config: \
         [{{opaque: {{driver: gpu.nvidia.com, parameters: {short}}}}}]\n---\n\
         apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {{name: c}}\nspec:\n  \
         devices: {{config: [{{opaque: {{driver: gpu.nvidia.com, parameters: {short}}}}}]}}\n"
    );
    let found = parse(&text).unwrap();
    let sliced = Sharing::TimeSlicing(Interval::Default);
    for entry in found.classes[0].config.iter().chain(&found.claims[0].config) {
        assert_eq!(entry.ours.as_ref().unwrap().sharing, sliced);
    }
    let wrong = text.replace("TimeSlicing", "Fair");
    let ClaimError::Many { problems, .. } = parse(&wrong).unwrap_err() else { panic!() };
    assert_eq!(problems.len(), 2);
}
