use crate::support::{SMALL, WHOLE, World, claim};

fn asking(version: &str, name: &str, request: &str) -> String {
    format!(
        "apiVersion: resource.k8s.io/{version}\nkind: ResourceClaim\nmetadata: {{name: {name}}}\nspec: \
         {{devices: {{requests: [{{name: r, {request}}}]}}}}\n---\n"
    )
}

#[test]
fn a_claim_is_printed_as_a_scheduler_would_leave_it() {
    let world = World::new();
    world.write("c.yaml", asking("v1beta1", "a", "deviceClassName: gpu.divvy.dev"));
    let ended = world.divvy(&["allocate", "-f", "c.yaml"]);
    assert_eq!(
        ended.ok(),
        "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata:\n  name: a\nspec:\n  devices:\n    \
         requests:\n    - name: r\n      exactly:\n        deviceClassName: gpu.divvy.dev\nstatus:\n  \
         allocation:\n    devices:\n      results:\n      - request: r\n        driver: gpu.divvy.dev\n        \
         pool: \"n\"\n        device: gpu-0000-1b-00\n    nodeSelector:\n      nodeSelectorTerms:\n      \
         - matchFields:\n        - key: metadata.name\n          operator: In\n          values:\n          \
         - \"n\"\n"
    );
    assert_eq!(world.left(), Vec::<String>::new(), "nothing is changed");
    let json = world.json(&["allocate", "-f", "c.yaml"]);
    assert_eq!(json["status"]["allocation"]["devices"]["results"][0]["device"], WHOLE);
    // What is printed can be prepared, and is then what was shown.
    let prepared = world.divvy_with(&["prepare", "-f", "-"], ended.out.as_bytes());
    assert!(prepared.ok().contains(WHOLE), "{prepared:?}");
    world.write("d.yaml", asking("v1", "b", "exactly: {deviceClassName: gpu.divvy.dev}"));
    world.divvy(&["allocate", "-f", "d.yaml"]).failed(1, "NO-DEVICE", "1 held by claim default/a");
}

#[test]
fn each_claim_of_a_file_leaves_to_the_next_what_it_does_not_take() {
    let world = World::new();
    let small = "exactly: {deviceClassName: mig.gpu.divvy.dev}";
    let all = asking("v1", "a", small) + &asking("v1", "b", small) + &claim("c", SMALL, "");
    world.write("c.yaml", all);
    let ended = world.divvy(&["allocate", "-f", "c.yaml", "-o", "json"]);
    let json: serde_json::Value = serde_json::from_str(ended.ok()).unwrap();
    let device = |at: usize| {
        json["items"][at]["status"]["allocation"]["devices"]["results"][0]["device"].clone()
    };
    assert_eq!(device(0), "gpu-0000-43-00-1g10gb-0");
    assert_eq!(device(1), "gpu-0000-43-00-1g10gb-1");
    assert_eq!(device(2), SMALL, "as it was");
    assert_eq!(ended.err, "claim default/c: is allocated already\n");
    let one = world.json(&["allocate", "-f", "c.yaml", "--name", "b"]);
    assert_eq!(one["metadata"]["name"], "b");
    world.divvy(&["allocate", "-f", "c.yaml", "--name", "d"]).failed(
        4,
        "CLAIM-INVALID",
        "no ResourceClaim \"d\"",
    );
}

#[test]
fn shares_are_given_where_they_are_asked_for_and_all_of_a_gpu_otherwise() {
    let world = World::new();
    let part = |name: &str| {
        let capacity = "capacity: {requests: {memory: 30Gi}}";
        let request = format!("exactly: {{deviceClassName: gpu.divvy.dev, {capacity}}}");
        asking("v1", name, &request)
    };
    world.write("parts.yaml", part("a") + &part("b") + &part("c"));
    // Without the option a GPU is one claim's.
    world.divvy(&["allocate", "-f", "parts.yaml"]).failed(
        1,
        "NO-DEVICE",
        "held by claim default/a",
    );
    let ended = world.divvy(&["allocate", "--shares", "-f", "parts.yaml"]);
    ended.failed(1, "NO-DEVICE", "claim default/c: node n cannot give it");
    assert!(ended.err.contains("1 with too little memory"), "{ended:?}");
    world.write("parts.yaml", part("a") + &part("b"));
    let given = world.json(&["allocate", "--shares", "-f", "parts.yaml"]);
    let result =
        |at: usize| given["items"][at]["status"]["allocation"]["devices"]["results"][0].clone();
    for at in 0..2 {
        assert_eq!(
            (&result(at)["device"], &result(at)["consumedCapacity"]["memory"]),
            (&WHOLE.into(), &"30Gi".into())
        );
    }
    assert_ne!(result(0)["shareID"], result(1)["shareID"]);
    // Nothing but MPS sets a part of a GPU up. All of it needs nothing.
    let ended = world.divvy(&["prepare", "--shares", "-f", "parts.yaml", "--name", "a"]);
    ended.failed(4, "CONFIG-UNSUPPORTED", "a GPU is given in shares by mps alone");
    world.write("all.yaml", asking("v1", "all", "exactly: {deviceClassName: gpu.divvy.dev}"));
    let prepared = world.divvy(&["prepare", "--shares", "-f", "all.yaml"]);
    assert!(prepared.ok().contains(WHOLE), "{prepared:?}");
    let ended = world.divvy(&["allocate", "--shares", "-f", "parts.yaml"]);
    ended.failed(1, "NO-DEVICE", "1 with too little memory");
}
