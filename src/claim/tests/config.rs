//! Opaque configuration, of our driver and of others.

mod nvidia;
mod random;

use super::{SHORT, allocated, claim, entry, parse, refused};
use crate::{
    claim::{ClaimError, Configured, Kind, MpsSettings, Sharing},
    gpu::Interval,
};

#[test]
fn classes_configuration_stands_before_the_claims_wherever_it_is_written() {
    let class = entry(SHORT).replace("FromClaim", "FromClass");
    let config =
        allocated(&(entry("{apiVersion: gpu.divvy.dev/v1alpha1, kind: GpuConfig}") + &class));
    let config = claim(&config).allocation.unwrap().config;
    assert_eq!(config[0].sharing, Sharing::TimeSlicing(Interval::Short));
    assert_eq!(config[1].sharing, Sharing::Exclusive);
}

#[test]
fn other_drivers_configuration_is_skipped_whatever_it_says() {
    let other = entry("{what: ever}").replace("gpu.divvy.dev", "net.example.com");
    assert!(claim(&allocated(&other)).allocation.unwrap().config.is_empty());
}

/// The configuration that is read of these parameters.
fn configured(parameters: &str) -> Configured {
    claim(&allocated(&entry(parameters))).allocation.unwrap().config.remove(0)
}

/// A `GpuConfig` or `MigDeviceConfig` of ours.
fn ours(kind: &str, rest: &str) -> String {
    format!("{{apiVersion: gpu.divvy.dev/v1alpha1, kind: {kind}, {rest}}}")
}

#[test]
fn ways_of_sharing_are_read_with_their_defaults() {
    let sharing = |kind: &str, text: &str| configured(&ours(kind, text)).sharing;
    for kind in ["GpuConfig", "MigDeviceConfig"] {
        assert_eq!(sharing(kind, "sharing: {exclusive: {}}"), Sharing::Exclusive);
        assert_eq!(sharing(kind, "sharing: null"), Sharing::Exclusive);
        assert_eq!(sharing(kind, "sharing: {mps: {}}"), Sharing::Mps(MpsSettings::default()));
    }
    for (text, interval) in [
        ("{}", Interval::Default),
        ("{interval: null}", Interval::Default),
        ("{interval: Default}", Interval::Default),
        ("{interval: Long}", Interval::Long),
    ] {
        let text = format!("sharing: {{timeSlicing: {text}}}");
        assert_eq!(sharing("GpuConfig", &text), Sharing::TimeSlicing(interval));
    }
    assert_eq!(configured(&ours("GpuConfig", "")).kind, Kind::Gpu);
    assert_eq!(configured(&ours("MigDeviceConfig", "")).kind, Kind::Mig);
}

#[test]
fn nodes_to_render_with_are_for_whole_gpus_alone_and_in_our_own_form() {
    let display = |text: &str| configured(&ours("GpuConfig", text)).display;
    assert!(display("display: true") && display("display: true, sharing: {timeSlicing: {}}"));
    assert!(!display("display: false") && !display("display: null") && !display(""));
    for (parameters, says) in [
        (ours("MigDeviceConfig", "display: true"), "display"),
        (ours("GpuConfig", "display: all"), "display"),
        (
            ours("GpuConfig", "display: true")
                .replace("gpu.divvy.dev/v1alpha1", "resource.nvidia.com/v1beta1"),
            "display",
        ),
    ] {
        let (text, code) = refused(&allocated(&entry(&parameters)));
        assert_eq!(code, "CONFIG-INVALID", "{parameters}: {text}");
        assert!(text.contains(says), "{parameters}: {text}");
    }
}

#[test]
fn mps_settings_are_read_and_limits_count_by_uuid_then_index_then_default() {
    let text = "sharing: {mps: {defaultActiveThreadPercentage: 50, defaultPinnedDeviceMemoryLimit: 10Gi, \
                multiUser: true, defaultPerDevicePinnedMemoryLimit: {0: 5Gi, '1': 1048576, GPU-1: 6Gi}}}";
    let sharing = configured(&ours("GpuConfig", text)).sharing;
    let Sharing::Mps(settings) = &sharing else { panic!("{sharing:?}") };
    assert_eq!((settings.active_thread_percentage, settings.multi_user), (Some(50), true));
    assert_eq!(settings.pinned_memory_of(0, "GPU-0"), Some(5 << 30));
    assert_eq!(settings.pinned_memory_of(0, "GPU-1"), Some(6 << 30));
    assert_eq!(settings.pinned_memory_of(1, "GPU-0"), Some(1 << 20));
    assert_eq!(settings.pinned_memory_of(2, "GPU-2"), Some(10 << 30));
    assert_eq!(MpsSettings::default().pinned_memory_of(0, "GPU-0"), None);
    assert_eq!(
        sharing.to_string(),
        "MPS, 50% of threads, 10Gi pinned memory, 5Gi on device 0, 1Mi on device 1, \
         6Gi on device GPU-1, several users"
    );
}

#[test]
fn sharing_reads_back_from_the_journal_as_it_was_written() {
    let limits = "sharing: {mps: {defaultPerDevicePinnedMemoryLimit: {0: 5Gi, GPU-1: 6Gi}}}";
    for (text, written) in [
        ("", r#""exclusive""#),
        ("sharing: {timeSlicing: {}}", r#"{"timeSlicing":"Default"}"#),
        ("sharing: {mps: {}}", r#"{"mps":{}}"#),
        (
            "sharing: {mps: {defaultActiveThreadPercentage: 1, defaultPinnedDeviceMemoryLimit: 1Mi}}",
            r#"{"mps":{"activeThreadPercentage":1,"pinnedMemory":1048576}}"#,
        ),
        (limits, r#"{"mps":{"pinnedMemoryPerDevice":{"0":5368709120,"GPU-1":6442450944}}}"#),
    ] {
        let sharing = configured(&ours("GpuConfig", text)).sharing;
        assert_eq!(serde_json::to_string(&sharing).unwrap(), written);
        assert_eq!(serde_json::from_str::<Sharing>(written).unwrap(), sharing);
    }
    for wrong in [r#"{"mps":{"a":1}}"#, r#"{"mps":{"pinnedMemoryPerDevice":{"zzz":1}}}"#] {
        assert!(serde_json::from_str::<Sharing>(wrong).is_err(), "{wrong}");
    }
}

/// Refused, at the parameters of an entry, with a text that says this.
fn assert_refused(parameters: &str, says: &str) {
    let (error, code) = refused(&allocated(&entry(parameters)));
    assert_eq!(code, "CONFIG-INVALID", "{error}");
    assert!(error.contains(says), "{error} does not say {says:?}");
    assert!(error.starts_with("c.yaml:25:"), "{error}");
}

#[test]
fn configuration_that_is_not_understood_is_refused_with_its_place() {
    for (parameters, says) in [
        ("text", "must be an object"),
        ("{kind: GpuConfig}", "parameters: apiVersion is missing"),
        ("{apiVersion: gpu.divvy.dev/v1alpha1}", "kind is missing"),
        ("{apiVersion: gpu.divvy.dev/v2, kind: GpuConfig}", "gpu.divvy.dev/v1alpha1"),
    ] {
        assert_refused(parameters, says);
    }
    assert_refused(
        &ours("Foo", ""),
        "kind: \"Foo\" is no kind of configuration; known are GpuConfig, MigDeviceConfig",
    );
    for (rest, says) in [
        ("bogus: 1", "parameters.bogus: unknown field"),
        ("sharing: {}", "exactly one of exclusive, timeSlicing, mps"),
        ("sharing: {exclusive: {}, timeSlicing: {}}", "exactly one of"),
        ("sharing: {mps: {}, timeSlicing: {}}", "exactly one of"),
        ("sharing: {mps: 1}", "sharing.mps: must be an object, and is a number"),
        ("sharing: {timeSlicing: {interval: Fast}}", "Default, Short, Medium, Long"),
        ("sharing: {timeSlicing: {interval: ''}}", "\"\" is no interval"),
        ("sharing: {timeSlicing: {interval: 3}}", "quotes"),
        ("sharing: {timeSlicing: {intervall: Long}}", "did you mean interval?"),
        ("sharing: {exclusive: {a: 1}}", "unknown field"),
        ("sharing: exclusive", "must be an object, and is a text"),
    ] {
        assert_refused(&ours("GpuConfig", rest), says);
    }
    assert_refused(
        &ours("MigDeviceConfig", "sharing: {timeSlicing: {}}"),
        "sharing.timeSlicing: a MIG device cannot be time-sliced: the hardware has no such setting; \
         known are exclusive, mps",
    );
}

#[test]
fn what_the_documentation_shows_is_read() {
    let text = include_str!("../../../docs/configuration.md");
    let blocks = text.split("```yaml\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let read = blocks.map(|block| {
        let indented = block.replace('\n', "\n            ");
        configured(&format!("\n            {}", indented.trim_end())).sharing
    });
    let [turns, mps, theirs] = read.collect::<Vec<_>>().try_into().unwrap();
    assert_eq!(turns, Sharing::TimeSlicing(Interval::Short));
    assert_eq!(mps.to_string(), "MPS, 50% of threads, 10Gi pinned memory, 5Gi on device 0");
    assert_eq!(theirs, Sharing::TimeSlicing(Interval::Long));
}

/// What is wrong below `mps`, and what is said of it.
const WRONG_MPS: &[(&str, &str)] = &[
    ("defaultActiveThreadPercentage: 0", "must be a whole number from 1 to 100, and is 0"),
    ("defaultActiveThreadPercentage: 101", "from 1 to 100, and is 101"),
    ("defaultActiveThreadPercentage: -1", "from 1 to 100, and is -1"),
    ("defaultActiveThreadPercentage: 50.5", "from 1 to 100, and is 50.5"),
    ("defaultActiveThreadPercentage: '50'", "from 1 to 100, and is a text"),
    ("defaultPinnedDeviceMemoryLimit: -1Gi", "defaultPinnedDeviceMemoryLimit: -1Gi is below"),
    ("defaultPinnedDeviceMemoryLimit: 0", "at least 1Mi, such as 10Gi, and is 0"),
    ("defaultPinnedDeviceMemoryLimit: 1023Ki", "at least 1Mi, such as 10Gi, and is 1023Ki"),
    ("defaultPinnedDeviceMemoryLimit: 1048576500m", "whole bytes, at least 1Mi"),
    ("defaultPinnedDeviceMemoryLimit: lots", "\"lots\" is no quantity"),
    ("defaultPinnedDeviceMemoryLimit: [1]", "must be a quantity"),
    ("defaultPerDevicePinnedMemoryLimit: {zzz: 1Gi}", "Limit.zzz: the key must be an index from 0"),
    ("defaultPerDevicePinnedMemoryLimit: {-1: 1Gi}", "the key must be an index from 0, or a UUID"),
    ("defaultPerDevicePinnedMemoryLimit: {'00': 1Gi}", "the key must be an index from 0"),
    ("defaultPerDevicePinnedMemoryLimit: {4294967296: 1Gi}", "the key must be an index from 0"),
    (
        "defaultPerDevicePinnedMemoryLimit: {GPU-: 1Gi}",
        "the key must be an index from 0, or a UUID",
    ),
    ("defaultPerDevicePinnedMemoryLimit: {GPU-a/b: 1Gi}", "the key must be an index from 0"),
    ("defaultPerDevicePinnedMemoryLimit: {0: -1Gi}", "Limit.0: -1Gi is below nothing"),
    ("defaultPerDevicePinnedMemoryLimit: {0: 0}", "at least 1Mi"),
    ("defaultPerDevicePinnedMemoryLimit: 1Gi", "must be an object"),
    ("multiUser: 1", "must be a truth value"),
    ("activeThreadPercentage: 50", "activeThreadPercentage: unknown field"),
];

#[test]
fn mps_settings_that_no_daemon_takes_are_refused() {
    for (settings, says) in WRONG_MPS {
        for kind in ["GpuConfig", "MigDeviceConfig"] {
            let rest = format!("sharing: {{mps: {{{settings}}}}}");
            assert_refused(&ours(kind, &rest), says);
        }
    }
}

#[test]
fn configuration_may_only_name_requests_that_are_there() {
    for (requests, fine) in [
        ("[gpu]", true),
        ("[any/small]", true),
        ("[any]", true),
        ("[any/big]", false),
        ("[x]", false),
    ] {
        let text = allocated(&entry(SHORT).replace("[gpu]", requests));
        assert_eq!(parse(&text).is_ok(), fine, "{requests}");
    }
}
