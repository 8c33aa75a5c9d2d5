use std::path::Path;

use super::{Claim, ClaimError, Count, Manifests, Share, Sharing, Wants};
use crate::gpu::Interval;

mod config;
mod served;

/// A claim of one request `gpu`, allocated, with `config` below its allocation.
fn allocated(config: &str) -> String {
    format!(
        r#"apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {{name: shared, namespace: team-a, uid: 11111111-2222-3333-4444-555555555555, labels: {{a: b}}}}
spec:
  devices:
    requests:
    - name: gpu
      exactly: {{deviceClassName: gpu.divvy.dev}}
    - name: any
      firstAvailable:
      - {{name: small, deviceClassName: mig.gpu.divvy.dev}}
status:
  reservedFor: []
  allocation:
    nodeSelector: {{}}
    devices:
      results:
      - {{request: other, driver: net.example.com, pool: n, device: eth0}}
      - {{request: gpu, driver: gpu.divvy.dev, pool: n, device: gpu-0000-1b-00}}
      config:
{config}"#
    )
}

fn entry(parameters: &str) -> String {
    format!(
        "      - source: FromClaim\n        requests: [gpu]\n        opaque:\n          \
         driver: gpu.divvy.dev\n          parameters: {parameters}\n"
    )
}

fn parse(text: &str) -> Result<Manifests, ClaimError> {
    Manifests::parse(Path::new("c.yaml"), text.as_bytes(), "gpu.divvy.dev")
}

fn claim(text: &str) -> Claim {
    parse(text).unwrap().claims.remove(0)
}

fn refused(text: &str) -> (String, &'static str) {
    let error = parse(text).unwrap_err();
    (error.to_string(), error.code())
}

const SHORT: &str = "{apiVersion: gpu.divvy.dev/v1alpha1, kind: GpuConfig, \
                     sharing: {timeSlicing: {interval: Short}}}";

#[test]
fn an_allocated_claim_is_read_with_its_configuration() {
    let claim = claim(&allocated(&entry(SHORT)));
    assert_eq!(claim.title(), "team-a/shared");
    assert_eq!(claim.uid, "11111111-2222-3333-4444-555555555555");
    let allocation = claim.allocation.unwrap();
    assert_eq!(allocation.results.len(), 1, "other drivers' devices are not ours");
    assert_eq!(allocation.results[0].device, "gpu-0000-1b-00");
    assert_eq!(allocation.config[0].sharing, Sharing::TimeSlicing(Interval::Short));
    assert_eq!(allocation.config[0].requests, ["gpu"]);
}

#[test]
fn claims_that_are_wrong_say_where() {
    let good = allocated("");
    for (from, to, says) in [
        ("name: shared, ", "", "metadata: name is missing"),
        ("name: shared", "name: Shared", "metadata.name: must be a DNS name"),
        ("name: shared", "name: ../../etc", "metadata.name: must be a DNS name"),
        ("uid: 11111111-2222", "uid: ../1", "metadata.uid: must be a UID"),
        ("namespace: team-a", "namespace: 7", "metadata.namespace: the number 7 must be text"),
        ("request: gpu,", "request: none,", "results[1]: the claim has no request \"none\""),
        (
            "device: gpu-0000",
            "consumedCapacity: {memory: 1Gi}, device: gpu-0000",
            "consumedCapacity",
        ),
        (
            "      exactly: {deviceClassName: gpu.divvy.dev}\n",
            "",
            "exactly one of exactly, firstAvailable",
        ),
        ("- name: any", "- name: gpu", "request gpu is there twice"),
        (
            "deviceClassName: gpu.divvy.dev",
            "count: 0",
            "must be a whole number from 1 to 32, and is 0",
        ),
        ("exactly: {", "exactly: {count: 1.5, ", "a whole number from 1 to 32, and is 1.5"),
        ("exactly: {", "exactly: {count: -1, ", "a whole number from 1 to 32, and is -1"),
        ("exactly: {", "exactly: {count: 33, ", "a whole number from 1 to 32, and is 33"),
        ("exactly: {", "exactly: {count: 9223372036854775807, ", "and is 9223372036854775807"),
        ("exactly: {", "exactly: {count: x, ", "a whole number from 1 to 32, and is a text"),
        ("exactly: {", "exactly: {allocationMode: Some, ", "ExactCount, All"),
        ("requests:\n", "requests: 3\n    constraints:\n", "spec.devices.requests: must be a list"),
    ] {
        assert!(good.contains(from), "{from}");
        let (error, code) = refused(&good.replacen(from, to, 1));
        assert!(error.contains(says), "{error} does not say {says:?}");
        assert!(code.starts_with("CLAIM-"), "{code}");
    }
}

#[test]
fn a_misspelled_field_is_refused_with_its_place_and_what_was_meant() {
    let good = allocated(&entry(SHORT));
    for (from, to, says) in [
        ("status:", "statsu:", "c.yaml:12:1: statsu: unknown field; did you mean status?"),
        ("devices:", "device:", "c.yaml:5:3: spec.device: unknown field; did you mean devices?"),
        ("requests:", "reqests:", "spec.devices.reqests: unknown field; did you mean requests?"),
        (
            "exactly:",
            "exactlyy:",
            "c.yaml:8:7: spec.devices.requests[0].exactlyy: unknown field; did you mean exactly?",
        ),
        ("exactly:", "exakt:", "unknown field; known are name, exactly, firstAvailable"),
        ("exactly: {", "exactly: {sellectors: [], ", "exactly.sellectors: unknown field; did you"),
        ("exactly: {", "exactly: {selectors: [{sel: {}}], ", "selectors[0].sel: unknown field"),
        (
            "exactly: {",
            "exactly: {selectors: [{cel: {expresion: 'true'}}], ",
            "cel.expresion: unknown field; did you mean expression?",
        ),
        ("{name: small,", "{name: small, adminAccess: true,", "adminAccess: unknown field"),
        ("    requests:", "    confg: []\n    requests:", "spec.devices.confg: unknown field; did"),
        (
            "    requests:",
            "    constraints: [{matchAtribute: a/b}]\n    requests:",
            "matchAttribute?",
        ),
        (
            "allocation:",
            "allocatoin:",
            "status.allocatoin: unknown field; did you mean allocation?",
        ),
        ("reservedFor:", "reservdFor:", "status.reservdFor: unknown field; did you"),
        (
            "reservedFor: []",
            "reservedFor: [{nam: x, resource: pods, uid: u}]",
            "did you mean name?",
        ),
        ("nodeSelector:", "nodeSelektor:", "status.allocation.nodeSelektor: unknown field"),
        ("results:", "result:", "allocation.devices.result: unknown field; did you mean results?"),
        ("pool: n, device: eth0", "pol: n, device: eth0", "results[0].pol: unknown field"),
        ("      config:", "      cnfig:", "status.allocation.devices.cnfig: unknown field"),
        ("- source:", "- sourc:", "config[0].sourc: unknown field; did you mean source?"),
        ("        opaque:", "        opaqe:", "config[0].opaqe: unknown field; did you"),
        ("parameters:", "paramters:", "config[0].opaque.paramters: unknown field; did you"),
    ] {
        assert!(good.contains(from), "{from}");
        let (error, code) = refused(&good.replacen(from, to, 1));
        assert!(error.contains(says), "{error} does not say {says:?}");
        assert_eq!(code, "CLAIM-INVALID");
    }
}

#[test]
fn a_misspelled_field_of_a_class_is_refused() {
    let good = "apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {name: c}\nspec:\n  \
                extendedResourceName: a/b\n  selectors: []\n  config: [{opaque: {driver: d, \
                parameters: {}}}]\n";
    assert!(refused(good).0.contains("no ResourceClaim"));
    for (from, to, says) in [
        ("spec:", "specs:", "c.yaml:4:1: specs: unknown field; did you mean spec?"),
        ("selectors:", "sellectors:", "spec.sellectors: unknown field; did you mean selectors?"),
        ("[{opaque", "[{requests: [], opaque", "spec.config[0].requests: unknown field; known are"),
    ] {
        let (error, _) = refused(&good.replacen(from, to, 1));
        assert!(error.contains(says), "{error} does not say {says:?}");
    }
}

#[test]
fn fields_of_kubernetes_that_change_nothing_here_are_passed_over() {
    let text = allocated("")
        .replace("exactly: {", "exactly: {tolerations: [{operator: Exists}], ")
        .replace("labels: {a: b}", "labels: {a: b}, annotations: {}, whatever: 1")
        .replace("  reservedFor:", "  devices: [{driver: d, pool: p, device: x}]\n  reservedFor:")
        .replace("nodeSelector: {}", "nodeSelector: {}\n    allocationTimestamp: null")
        .replace(
            "device: gpu-0000",
            "bindingConditions: [a], bindingFailureConditions: [b], tolerations: [], \
             skipNodeOperations: [], adminAccess: false, device: gpu-0000",
        );
    assert_eq!(claim(&text).allocation.unwrap().results.len(), 1);
}

#[test]
fn a_share_of_a_device_is_read_with_what_it_takes() {
    let with = |more: &str| {
        allocated("").replace("device: gpu-0000", &format!("{more}, device: gpu-0000"))
    };
    let id = "shareID: 5d3e7a52-0000-4000-8000-1234567890ab";
    let share = |more: &str| claim(&with(more)).allocation.unwrap().results.remove(0).share;
    let found =
        share(&format!("{id}, consumedCapacity: {{memory: 10Gi, gpu.divvy.dev/cores: '5'}}"));
    let found = found.unwrap();
    assert_eq!(found.id, "5d3e7a52-0000-4000-8000-1234567890ab");
    assert_eq!(found.consumed["memory"].to_string(), "10Gi");
    assert_eq!(found.consumed["gpu.divvy.dev/cores"].to_string(), "5");
    let written = serde_json::to_string(&found).unwrap();
    assert_eq!(serde_json::from_str::<Share>(&written).unwrap(), found);
    assert!(share(id).unwrap().consumed.is_empty());
    assert_eq!(share("consumedCapacity: {}"), None);
    for (more, says) in [
        ("consumedCapacity: {memory: 1Gi}", "shareID is missing"),
        ("shareID: ../x", "shareID: must be a UID"),
        ("shareID: x, consumedCapacity: {memory: -1}", "-1 is below nothing"),
        ("shareID: x, consumedCapacity: {'a b': 1}", "the name must be a C identifier"),
        ("shareID: x, consumedCapacity: 1", "consumedCapacity: must be an object"),
    ] {
        let (error, code) = refused(&with(more));
        assert!(error.contains(says), "{error} does not say {says:?}");
        assert_eq!(code, "CLAIM-INVALID");
    }
    let result = "      - {request: gpu, driver: gpu.divvy.dev, pool: n, shareID: a, device: x}\n";
    let twice = |other: &str| {
        allocated("").replace("      config:\n", &format!("{result}{other}      config:\n"))
    };
    assert_eq!(
        claim(&twice(&result.replace("shareID: a", "shareID: b")))
            .allocation
            .unwrap()
            .results
            .len(),
        3
    );
    let (error, _) = refused(&twice(result));
    assert!(error.contains("results[3]: the share a of x is there twice"), "{error}");
}

#[test]
fn every_bad_object_of_a_file_is_reported() {
    let text = "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {}\n---\n\
                apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {name: UP}\n";
    let ClaimError::Many { problems, .. } = parse(text).unwrap_err() else { panic!() };
    assert_eq!(problems.len(), 2);
    assert!(problems[1].to_string().starts_with("c.yaml:7:"), "{}", problems[1]);
}

#[test]
fn other_versions_are_refused_by_name_and_other_kinds_skipped() {
    let (error, code) = refused(&allocated("").replace("k8s.io/v1", "k8s.io/v1alpha2"));
    assert!(
        error.contains("resource.k8s.io/v1alpha2") && error.contains("divvy migrate"),
        "{error}"
    );
    assert_eq!(code, "CLAIM-VERSION");
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n";
    assert_eq!(parse(&format!("{pod}---\n{}", allocated(""))).unwrap().claims.len(), 1);
    assert!(refused(pod).0.contains("no ResourceClaim in it; it holds Pod"));
    assert!(refused("").0.contains("holds nothing"));
}

#[test]
fn a_list_of_kubectl_is_its_items() {
    let text = r#"{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"resource.k8s.io/v1",
        "kind":"ResourceClaim","metadata":{"name":"a"},"spec":{"devices":{"requests":[
        {"name":"r","exactly":{"deviceClassName":"c","count":2,
         "selectors":[{"cel":{"expression":"true"}}]}}]}}}]}"#;
    let claim = claim(text);
    let Wants::Exactly(ask) = &claim.requests[0].wants else { panic!() };
    assert_eq!(ask.count, Count::Exact(2));
    assert_eq!(ask.selectors[0].expression, "true");
    assert_eq!(claim.title(), "default/a");
}

#[test]
fn a_claim_without_uid_gets_the_same_one_each_time() {
    let text = |name: &str| {
        format!(
            "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {{name: {name}}}\nspec: {{}}\n"
        )
    };
    assert_eq!(claim(&text("a")).uid, claim(&text("a")).uid);
    assert_ne!(claim(&text("a")).uid, claim(&text("b")).uid);
    let twice = format!("{}---\n{}", text("a"), text("a"));
    assert!(refused(&twice).0.contains("ResourceClaim default/a is there twice"));
}

#[test]
fn the_digest_is_of_what_is_asked_for_not_of_how_it_is_written() {
    let text = allocated(&entry(SHORT));
    let digest = |text: &str| claim(text).digest(&[]);
    assert_eq!(digest(&text), digest(&format!("# a comment\n{text}")));
    assert_ne!(digest(&text), digest(&text.replace("Short", "Long")));
}

#[test]
fn a_claim_is_chosen_by_name() {
    let text = |ns: &str, name: &str| {
        format!(
            "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {{name: {name}, namespace: {ns}}}\nspec: {{}}\n---\n"
        )
    };
    let all = || parse(&(text("x", "a") + &text("y", "b"))).unwrap();
    let file = Path::new("c.yaml");
    assert_eq!(all().only(file, "b").unwrap().claims[0].title(), "y/b");
    assert_eq!(all().only(file, "x/a").unwrap().claims.len(), 1);
    let error = all().only(file, "c").unwrap_err().to_string();
    assert!(error.contains("x/a, y/b"), "{error}");
}

#[test]
fn lists_have_the_limits_of_kubernetes() {
    let requests = |count: usize| {
        let request = |n| format!("{{name: r{n}, exactly: {{deviceClassName: c}}}}");
        let requests = (0..count).map(request).collect::<Vec<_>>().join(", ");
        format!(
            "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {{name: c}}\n\
             spec: {{devices: {{requests: [{requests}]}}}}\n"
        )
    };
    assert_eq!(claim(&requests(32)).requests.len(), 32);
    let (error, _) = refused(&requests(80_000));
    assert!(error.contains("spec.devices.requests: has 80000 items, and may have 32"), "{error}");
}
