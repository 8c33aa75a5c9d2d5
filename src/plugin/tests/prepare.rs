//! What becomes of claims.

use std::{fs, time::Duration};

use serde_json::json;

use super::{
    api::Trouble,
    world::{SMALL, WHOLE, World, references},
};
use crate::plugin::proto::{dra_v1, dra_v1beta1};

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_is_prepared_and_ended_without_a_trace() {
    let world = World::new().await;
    world.api.claim("a", "uid-a", &SMALL[..2]);
    let answer = world.prepare_all(&[("a", "uid-a")]).await.remove(0);
    assert_eq!(answer.error, "");
    let device = |name: &str| dra_v1::Device {
        request_names: vec!["gpu".to_owned()],
        pool_name: "worker-1".to_owned(),
        device_name: name.to_owned(),
        cdi_device_ids: vec![format!("gpu.divvy.dev/claim=uid-a-{name}")],
        share_id: None,
    };
    assert_eq!(answer.devices, [device(SMALL[0]), device(SMALL[1])]);
    assert_eq!(world.left().len(), 5);
    // Again, it is the same, and what is missing comes back.
    fs::remove_dir_all(world.path("cdi")).unwrap();
    assert_eq!(world.prepare_all(&[("a", "uid-a")]).await.remove(0), answer);
    assert_eq!(world.left().len(), 5);
    world.unprepare("a", "uid-a").await.unwrap();
    assert_eq!(world.left(), [""; 0]);
    world.unprepare("a", "uid-a").await.unwrap();
    let told = world.told.lines.lock().unwrap().clone();
    let twice = "prepared team/a 2";
    assert_eq!(told, [twice, twice, "unprepared uid-a", "unprepared uid-a"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_older_version_of_the_call_does_the_same() {
    let world = World::new().await;
    world.api.claim("a", "uid-a", &[WHOLE]);
    let path = format!("unix://{}", world.socket().display());
    let mut client = dra_v1beta1::dra_plugin_client::DraPluginClient::connect(path).await.unwrap();
    let claim = dra_v1beta1::Claim {
        namespace: "team".to_owned(),
        uid: "uid-a".to_owned(),
        name: "a".to_owned(),
    };
    let request = dra_v1beta1::NodePrepareResourcesRequest { claims: vec![claim.clone()] };
    let answer = client.node_prepare_resources(request).await.unwrap().into_inner();
    assert_eq!(answer.claims["uid-a"].devices[0].device_name, WHOLE);
    let request = dra_v1beta1::NodeUnprepareResourcesRequest { claims: vec![claim] };
    let answer = client.node_unprepare_resources(request).await.unwrap().into_inner();
    assert_eq!(answer.claims["uid-a"].error, "");
    assert_eq!(world.left(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_bad_claim_keeps_no_other_of_its_call() {
    let world = World::new().await;
    for (name, device) in [("a", SMALL[0]), ("panics", SMALL[1]), ("new", SMALL[2])] {
        world.api.claim(name, &format!("uid-{name}"), &[device]);
    }
    world.api.claim("free", "uid-free", &[]);
    world.api.edit("free", |claim| claim["status"] = json!({}));
    world.api.claim("nobodys", "uid-nobodys", &[WHOLE]);
    world.api.edit("nobodys", |claim| claim["status"]["reservedFor"] = json!([]));
    world.api.claim("there", "uid-there", &[WHOLE]);
    world.api.edit("there", |claim| {
        claim["status"]["allocation"]["devices"]["results"][0]["pool"] = json!("worker-2");
    });
    world.api.claim("other", "uid-other", &[WHOLE]);
    world.api.edit("other", |claim| {
        claim["status"]["allocation"]["devices"]["results"][0]["driver"] = json!("x.example.com");
    });
    world.api.claim("odd", "uid-odd", &[WHOLE]);
    let odd = json!([{"source": "FromClaim", "opaque": {"driver": "gpu.divvy.dev", "parameters": {
        "apiVersion": "gpu.divvy.dev/v1alpha1", "kind": "GpuConfig", "bogus": 1}}}]);
    world.api.edit("odd", |claim| claim["status"]["allocation"]["devices"]["config"] = odd);
    *world.told.panics.lock().unwrap() = Some("panics".to_owned());
    let claims = [
        ("a", "uid-a"),
        ("gone", "uid-gone"),
        ("new", "uid-of-the-old"),
        ("free", "uid-free"),
        ("nobodys", "uid-nobodys"),
        ("there", "uid-there"),
        ("other", "uid-other"),
        ("odd", "uid-odd"),
        ("../../x", "uid-x"),
        ("panics", "uid-panics"),
    ];
    let says = [
        "",
        "CLAIM-GONE: claim team/gone with UID uid-gone",
        "CLAIM-GONE: claim team/new with UID uid-of-the-old was replaced: the one of this name has UID uid-new",
        "CLAIM-NOT-ALLOCATED: claim team/free is not allocated",
        "CLAIM-NOT-ALLOCATED: claim team/nobodys is reserved for no pod",
        "NO-DEVICE: claim team/there: gpu-0000-1b-00 is allocated in pool \"worker-2\"",
        "CLAIM-INVALID: claim team/other: its allocation has no device of driver gpu.divvy.dev",
        "CONFIG-INVALID: claim team/odd: status.allocation.devices.config[0].opaque.parameters.bogus: \
         unknown field",
        "CLAIM-INVALID: \"team\", \"../../x\", \"uid-x\"",
        "FAILED: claim team/panics: divvy-node has a defect: ",
    ];
    for ((answer, says), (name, _)) in world.prepare_all(&claims).await.iter().zip(says).zip(claims)
    {
        match says {
            "" => assert_eq!((answer.error.as_str(), answer.devices.len()), ("", 1)),
            says => assert!(
                answer.error.starts_with(&format!("divvy: {says}")),
                "{name}: {}",
                answer.error
            ),
        }
    }
    // It is in nobody's hand any more.
    *world.told.panics.lock().unwrap() = None;
    world.prepare("panics", "uid-panics").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn trouble_of_the_api_server_is_waited_for() {
    let world = World::new().await;
    world.api.claim("a", "uid-a", &[WHOLE]);
    world.api.trouble(&[Trouble::Fails, Trouble::Drops, Trouble::Cuts, Trouble::Forbids]);
    world.prepare("a", "uid-a").await.unwrap();
    world.api.trouble(&[Trouble::Refuses]);
    let refused = world.prepare("a", "uid-a").await.unwrap_err();
    assert!(refused.starts_with("divvy: API-SERVER: GET /apis/"), "{refused}");
    // A claim is ended without it.
    world.api.trouble(&[Trouble::Drops; 100]);
    world.unprepare("a", "uid-a").await.unwrap();
    assert_eq!(world.left(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_successor_waits_until_its_device_is_free() {
    let world = World::new().await;
    world.api.claim("a", "uid-a", &[WHOLE]);
    world.prepare("a", "uid-a").await.unwrap();
    // Both are the cluster's: that is for nobody to heal.
    world.api.claim("b", "uid-b", &[WHOLE]);
    let refused = world.prepare("b", "uid-b").await.unwrap_err();
    assert!(refused.starts_with("divvy: OVERLAP: claim team/b"), "{refused}");
    // The pod of the first was deleted by force, and its containers are being stopped.
    world.api.delete("a");
    let (prepared, ()) = tokio::join!(world.prepare("b", "uid-b"), async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(fs::read_dir(world.path("state/claims")).unwrap().count(), 1);
        world.unprepare("a", "uid-a").await.unwrap();
    });
    prepared.unwrap();
    let claims: Vec<_> = fs::read_dir(world.path("state/claims")).unwrap().collect();
    assert_eq!(claims[0].as_ref().unwrap().file_name(), "uid-b.json");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_dropped_drops_nothing_and_the_next_one_joins_it() {
    let world = World::new().await;
    world.api.claim("a", "uid-a", &[WHOLE]);
    world.api.delay(Duration::from_millis(500));
    let call = tokio::time::timeout(Duration::from_millis(100), world.prepare("a", "uid-a"));
    assert!(call.await.is_err(), "it was not to be answered yet");
    let many = (0..20).map(|_| world.prepare("a", "uid-a"));
    let mut many: Vec<_> = many.map(Box::pin).collect();
    for one in &mut many {
        assert_eq!(one.await.unwrap(), [format!("gpu.divvy.dev/claim=uid-a-{WHOLE}")]);
        // The rest joined the attempt that the dropped call began, or found what it left.
        world.api.delay(Duration::ZERO);
    }
    // And nobody waits for it at all.
    world.unprepare("a", "uid-a").await.unwrap();
    let call = tokio::time::timeout(Duration::from_millis(20), world.prepare("a", "uid-a"));
    let _dropped = call.await;
    world.soon("the claim", |world| world.left().len() == 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_for_one_claim_at_once_are_one_attempt() {
    let world = World::new().await;
    world.api.claim("a", "uid-a", &[WHOLE]);
    world.api.delay(Duration::from_millis(300));
    let mut client = world.client().await;
    let calls: Vec<_> = (0..16)
        .map(|_| {
            let mut client = client.clone();
            let claims = references(&[("a", "uid-a")]);
            let request = dra_v1::NodePrepareResourcesRequest { claims };
            tokio::spawn(async move { client.node_prepare_resources(request).await })
        })
        .collect();
    for call in calls {
        let answer = call.await.unwrap().unwrap().into_inner();
        assert_eq!(answer.claims["uid-a"].error, "");
    }
    assert_eq!(world.api.asked(), 1);
    // The same claim twice in one call is one answer.
    let claims = references(&[("a", "uid-a"), ("a", "uid-a")]);
    let request = dra_v1::NodePrepareResourcesRequest { claims };
    let answer = client.node_prepare_resources(request).await.unwrap().into_inner();
    assert_eq!(answer.claims.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_is_ended_meanwhile_is_not_prepared() {
    let world = World::new().await;
    world.api.claim("a", "uid-a", &[WHOLE]);
    world.api.trouble(&[Trouble::Fails; 1000]);
    let (prepared, ()) = tokio::join!(world.prepare("a", "uid-a"), async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        world.unprepare("a", "uid-a").await.unwrap();
        world.api.trouble(&[]);
    });
    let refused = prepared.unwrap_err();
    assert!(
        refused.starts_with("divvy: CLAIM-INTERRUPTED: claim team/a was unprepared"),
        "{refused}"
    );
    assert_eq!(world.left(), [""; 0]);
    // A pod that comes later is another matter.
    world.prepare("a", "uid-a").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_ended_stays_known() {
    let world = World::new().await;
    world.api.claim("a", "uid-a", &[SMALL[0]]);
    world.prepare("a", "uid-a").await.unwrap();
    // A folder in the place of the spec cannot be removed as a file.
    let spec = world.path("cdi/gpu.divvy.dev-claim_uid-a.json");
    fs::remove_file(&spec).unwrap();
    fs::create_dir_all(spec.join("x")).unwrap();
    let refused = world.unprepare("a", "uid-a").await.unwrap_err();
    assert!(refused.contains("gpu.divvy.dev-claim_uid-a.json"), "{refused}");
    assert!(world.path("state/claims/uid-a.json").exists());
    fs::remove_dir_all(&spec).unwrap();
    world.unprepare("a", "uid-a").await.unwrap();
    assert_eq!(world.left(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_a_person_prepared_is_theirs_to_end() {
    let world = World::new().await;
    let manifest = format!(
        "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {{name: mine, uid: uid-mine}}\n\
         spec: {{devices: {{requests: [{{name: gpu, exactly: {{deviceClassName: c}}}}]}}}}\n\
         status: {{allocation: {{devices: {{results: [{{request: gpu, driver: gpu.divvy.dev, pool: \
         worker-1, device: {WHOLE}}}]}}}}}}\n"
    );
    let claims = crate::claim::Manifests::parse("c".as_ref(), manifest.as_bytes(), "gpu.divvy.dev")
        .unwrap()
        .claims;
    let machine = world.machine();
    machine.node().prepare(&claims[0], &[], divvy_hook::record::Origin::Local).unwrap();
    world.unprepare("mine", "uid-mine").await.unwrap();
    assert!(world.path("state/claims/uid-mine.json").exists());
    // What it has nobody else gets, and waiting is of no use.
    world.api.claim("a", "uid-a", &[WHOLE]);
    let refused = world.prepare("a", "uid-a").await.unwrap_err();
    assert!(refused.contains("is held by claim default/mine"), "{refused}");
}
