use serde_json::{Value, json};

use crate::support::World;

const V1ALPHA1: &str = include_str!("old/v1alpha1.yaml");
const V1ALPHA2: &str = include_str!("old/v1alpha2.yaml");
const ARTICLE: &str = include_str!("old/article.yaml");
const V1ALPHA3: &str = include_str!("old/v1alpha3.yaml");
const PODS: &str = include_str!("old/pods.yaml");

/// What `divvy migrate` prints, and what it says of it.
fn migrated(text: &str, more: &[&str]) -> (Vec<Value>, String) {
    let world = World::new();
    world.write("old.yaml", text);
    let ended = world.divvy(&[&["migrate", "old.yaml", "-o", "json"], more].concat());
    let printed: Value = serde_json::from_str(ended.ok()).unwrap();
    let items = printed["items"].as_array().cloned().unwrap_or_else(|| vec![printed.clone()]);
    (items, ended.err)
}

#[track_caller]
fn says(told: &str, lines: &[&str]) {
    for line in lines {
        assert!(told.lines().any(|told| told.contains(line)), "{line:?} is not in\n{told}");
    }
}

fn selectors(spec: &Value) -> Vec<&str> {
    let list = spec["selectors"].as_array().unwrap();
    list.iter().map(|selector| selector["cel"]["expression"].as_str().unwrap()).collect()
}

#[test]
fn the_classic_form_of_1_26() {
    let (items, told) = migrated(V1ALPHA1, &[]);
    assert_eq!(items.len(), 2, "the scheduling object is gone");
    assert_eq!(items[0]["kind"], "DeviceClass");
    assert_eq!(selectors(&items[0]["spec"]), ["device.driver == \"gpu.example.com\""]);
    assert_eq!(
        items[1]["spec"],
        json!({"devices": {"requests": [
            {"name": "req-0", "exactly": {"deviceClassName": "accelerator"}}
        ]}})
    );
    says(
        &told,
        &[
            "old.yaml:2:1: apiVersion: resource.k8s.io/v1alpha1 became resource.k8s.io/v1",
            "old.yaml:5:13: driverName: devices of driver gpu.example.com, as a selector",
            "old.yaml:13:19: spec.allocationMode: gone",
            "spec.parametersRef: gone: ClaimParameters big was of a kind that its driver alone knew",
            "PodScheduling: gone since 1.32",
        ],
    );
}

#[test]
fn the_structured_form_of_1_30() {
    let (items, told) = migrated(V1ALPHA2, &[]);
    let kinds: Vec<_> = items.iter().map(|item| item["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["DeviceClass", "ResourceClaimTemplate", "ResourceSlice"]);
    let exactly = &items[1]["spec"]["spec"]["devices"]["requests"][0]["exactly"];
    assert_eq!(
        selectors(exactly),
        ["device.capacity[\"gpu.example.com\"].memory.isGreaterThan(quantity(\"30Gi\")) && \
          device.attributes[\"gpu.example.com\"].kind == \"mig\""]
    );
    assert_eq!(
        items[2]["spec"]["devices"],
        json!([{
            "name": "a",
            "attributes": {
                "driverVersion": {"version": "1.2.0"},
                "eccOn": {"bool": true},
                "links": {"ints": [1, 2]},
            },
            "capacity": {"memory": {"value": "40Gi"}},
        }])
    );
    assert_eq!(items[2]["spec"]["pool"]["name"], "n1");
    says(&told, &["the selectors of ResourceClaimParameters large stand in the claim itself"]);
}

#[test]
fn what_articles_made_up_is_named_as_such() {
    let (items, told) = migrated(ARTICLE, &[]);
    assert_eq!(selectors(&items[0]["spec"])[0], "device.driver == \"gpu.nvidia.com\"");
    assert_eq!(
        selectors(&items[1]["spec"]["devices"]["requests"][0]["exactly"]),
        [
            "device.capacity[\"gpu.nvidia.com\"].memory.compareTo(quantity(\"40Gi\")) >= 0",
            "device.attributes[\"gpu.nvidia.com\"].driverVersion.compareTo(semver(\"535.104.5\")) >= 0",
            "device.attributes[\"gpu.nvidia.com\"].tenant == \"blue\"",
        ]
    );
    says(
        &told,
        &[
            "kind: v1alpha2 had no DeviceClass",
            "spec.driverName: nvidia.com/gpu is the name of an extended resource of a device plugin",
            "spec.colour: left out: no API that Kubernetes served ever had this field here",
            "spec.parameters: no API that Kubernetes served ever had this field: v1alpha2 had parametersRef",
            "spec.parameters.tenant: this attribute, as a selector; whether gpu.nvidia.com publishes tenant",
        ],
    );
}

/// What is printed works: here on a simulated node.
#[test]
fn what_is_printed_can_be_allocated() {
    let world = World::new();
    let article = ARTICLE.replace(", tenant: blue", "");
    for (text, more, device) in [
        (article.as_str(), &["--driver", "gpu.divvy.dev"][..], "gpu-0000-1b-00"),
        (V1ALPHA3, &[], "gpu-0000-43-00-3g40gb-0"),
    ] {
        world.write("old.yaml", text);
        let new = world.divvy(&[&["migrate", "old.yaml"], more].concat());
        let allocated = world.divvy_with(&["allocate", "-f", "-"], new.ok().as_bytes());
        assert!(allocated.ok().contains(&format!("device: {device}\n")), "{allocated:?}");
        // What is in today's form stays as it is.
        let again = world.divvy_with(&["migrate", "-"], new.ok().as_bytes());
        assert_eq!(again.ok(), new.out);
        says(&again.err, &["is in today's form already"]);
    }
}

#[test]
fn versions_that_were_served_after_it() {
    let (items, told) = migrated(V1ALPHA3, &[]);
    let request = &items[1]["spec"]["devices"]["requests"][0];
    assert_eq!(request["exactly"], json!({"deviceClassName": "half", "count": 2}));
    assert_eq!(items[2]["spec"]["devices"][0]["capacity"]["memory"], json!({"value": "40Gi"}));
    says(
        &told,
        &[
            "spec.suitableNodes: of the classic form",
            "spec.controller: of the classic form",
            "old.yaml:17:7: spec.devices.requests[0]: deviceClassName, count stand below exactly",
            "spec.devices[0].capacity.memory: the quantity stands below value",
        ],
    );
}

#[test]
fn pods_name_claims_in_place_of_what_they_named_before() {
    let (items, told) = migrated(PODS, &[]);
    assert_eq!(
        items[0]["spec"]["resourceClaims"],
        json!([{"name": "gpu", "resourceClaimTemplateName": "per-pod"}])
    );
    assert_eq!(items[1]["metadata"]["name"], "plugin-c-1g10gb");
    let exactly = &items[1]["spec"]["spec"]["devices"]["requests"][0]["exactly"];
    assert_eq!(
        (&exactly["deviceClassName"], &exactly["count"]),
        (&json!("mig.nvidia.com"), &json!(2))
    );
    let pod = &items[2]["spec"]["template"]["spec"];
    assert_eq!(pod["nodeSelector"], json!({"zone": "a"}));
    assert_eq!(
        pod["containers"][0]["resources"],
        json!({"limits": {"cpu": 1}, "claims": [{"name": "c-1g10gb"}]})
    );
    assert_eq!(pod["resourceClaims"][0]["resourceClaimTemplateName"], "plugin-c-1g10gb");
    says(
        &told,
        &["was served by a device plugin", "nodeSelector[nvidia.com/gpu.present]: not needed"],
    );
}

#[test]
fn what_is_no_manifest_is_refused_and_other_objects_pass_through() {
    let world = World::new();
    world.write("bad.yaml", "a: [\n");
    world.divvy(&["migrate", "bad.yaml"]).failed(4, "CLAIM-INVALID", "bad.yaml:");
    world.divvy(&["migrate", "none.yaml"]).failed(1, "UNREADABLE", "none.yaml");
    let ended = world.divvy(&["migrate", "--driver", "a/b", "bad.yaml"]);
    ended.failed(2, "USAGE", "it is a DNS name");
    let (items, told) = migrated("kind: Service\napiVersion: v1\nspec: {a: [1, b]}\n", &[]);
    assert_eq!(items[0]["spec"], json!({"a": [1, "b"]}));
    assert_eq!(told, "");
    for odd in [
        "[]",
        "3",
        "{}",
        "kind: 3",
        "kind: List",
        "kind: Pod\nspec: 3",
        "kind: Pod\nspec: \
        {containers: [1], resourceClaims: {a: 1}}",
        "apiVersion: resource.k8s.io/v1alpha2\nkind: \
        ResourceClaim\nspec: [x]",
        "apiVersion: resource.k8s.io/v1alpha2\nkind: ResourceSlice\nspec: \
        {resourceModel: 3}",
    ] {
        world.write("odd.yaml", odd);
        world.divvy(&["migrate", "odd.yaml"]).ok();
    }
}
