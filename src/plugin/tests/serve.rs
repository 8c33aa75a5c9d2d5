//! What the plugin is besides its claims: registered, watched, and gone at the end.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};
use tokio_stream::StreamExt;
use tonic::Streaming;

use super::{
    api::Trouble,
    world::{SMALL, WHOLE, World},
};
use crate::claim::DRIVER;
use crate::health::{Cause, GpuHealth};
use crate::plugin::{
    Kubelet, Paths, Plugin,
    claims::Nobody,
    proto::{
        health_v1::{
            DeviceHealth, HealthStatus, NodeWatchResourcesRequest, NodeWatchResourcesResponse,
            dra_resource_health_client::DraResourceHealthClient,
        },
        registration::{InfoRequest, RegistrationStatus, registration_client::RegistrationClient},
    },
};

/// Longer than anything here takes.
const SOON: Duration = Duration::from_secs(60);

fn url(path: &Path) -> String {
    format!("unix://{}", path.display())
}

#[tokio::test(flavor = "multi_thread")]
async fn it_registers_by_its_sockets_and_takes_them_along() {
    let mut world = World::new().await;
    let mut client = RegistrationClient::connect(url(&world.registration())).await.unwrap();
    let info = client.get_info(InfoRequest {}).await.unwrap().into_inner();
    assert_eq!((info.r#type.as_str(), info.name.as_str()), ("DRAPlugin", "gpu.divvy.dev"));
    assert_eq!(Path::new(&info.endpoint), world.socket());
    assert_eq!(info.supported_versions[..2], ["v1.DRAPlugin", "v1beta1.DRAPlugin"]);
    let plugin = world.plugin.take().unwrap();
    assert!(!plugin.monitor().is_registered());
    let status = RegistrationStatus { plugin_registered: true, error: String::new() };
    client.notify_registration_status(status).await.unwrap();
    assert!(plugin.monitor().is_registered());
    plugin.end().await;
    assert!(!world.registration().exists() && !world.socket().exists());
}

/// As gRPC for Go has it: whatever the authority is, the call is answered.
#[tokio::test(flavor = "multi_thread")]
async fn the_kubelets_own_frames_are_answered() {
    let world = World::new().await;
    let path = world.registration();
    for authority in [
        format!("{}", path.display()).replace('/', "%2F"),
        path.display().to_string(),
        String::new(),
        "localhost".to_owned(),
    ] {
        let mut block = Vec::new();
        for (name, value) in [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", "/pluginregistration.Registration/GetInfo"),
            (":authority", authority.as_str()),
            ("content-type", "application/grpc"),
            ("user-agent", "grpc-go/1.79.3"),
            ("te", "trailers"),
            ("grpc-timeout", "999842u"),
        ] {
            block.push(0);
            for text in [name, value] {
                assert!(text.len() < 127);
                block.push(u8::try_from(text.len()).unwrap());
                block.extend_from_slice(text.as_bytes());
            }
        }
        let frame = |kind: u8, flags: u8, stream: u8, payload: &[u8]| {
            let length = u16::try_from(payload.len()).unwrap().to_be_bytes();
            [&[0, length[0], length[1], kind, flags, 0, 0, 0, stream], payload].concat()
        };
        let mut stream = tokio::net::UnixStream::connect(&path).await.unwrap();
        let call = [
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
            frame(4, 0, 0, &[]),
            frame(1, 4, 1, &block),
            frame(0, 1, 1, &[0; 5]),
        ];
        stream.write_all(&call.concat()).await.unwrap();
        let mut answer = Vec::new();
        while !answer.windows(9).any(|part| part == b"DRAPlugin") {
            let mut bytes = [0; 4096];
            let read = timeout(Duration::from_secs(10), stream.read(&mut bytes));
            let read = read.await.expect("no answer").unwrap();
            assert_ne!(read, 0, "{authority:?}: closed after {answer:?}");
            answer.extend_from_slice(&bytes[..read]);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn health_comes_at_once_to_everybody_and_ends_with_us() {
    let mut world = World::new().await;
    let mut streams = Vec::new();
    for _ in 0..3 {
        let mut client = DraResourceHealthClient::connect(url(&world.socket())).await.unwrap();
        let stream = client.node_watch_resources(NodeWatchResourcesRequest {}).await.unwrap();
        streams.push(stream.into_inner());
    }
    for stream in &mut streams {
        let devices = stream.next().await.unwrap().unwrap().devices;
        let names: Vec<_> = devices.iter().map(|one| one.device.clone().unwrap()).collect();
        assert!(names.iter().all(|one| one.pool_name == "worker-1"));
        assert!(names.iter().any(|one| one.device_name == WHOLE));
        assert!(names.iter().any(|one| one.device_name == SMALL[2]));
        assert!(devices.iter().all(|one| one.health() == HealthStatus::Healthy));
        assert!(devices.iter().all(|one| one.health_check_timeout_seconds == 30));
    }
    // One GPU is ill, and all that there is of it.
    let ill = world.machine().pool().gpus().unwrap().inventory().unwrap().gpus[1].uuid.clone();
    let causes = vec![Cause::Xid(95)];
    let pci = "0000:43:00.0".parse().unwrap();
    let health = GpuHealth { pci, gpu: Some(ill), causes };
    world.known.send_modify(|known| known.gpus = vec![health]);
    for stream in &mut streams {
        let is_well = |one: &DeviceHealth| one.health() == HealthStatus::Healthy;
        let devices = next_list(stream, |devices| !devices.iter().all(is_well)).await;
        for one in devices {
            let is_ill = one.device.as_ref().unwrap().device_name.starts_with("gpu-0000-43-00-");
            let wanted = if is_ill { HealthStatus::Unhealthy } else { HealthStatus::Healthy };
            assert_eq!(one.health(), wanted, "{one:?}");
            assert_eq!(one.message.starts_with("XID 95, uncontained memory error: "), is_ill);
        }
    }
    // The whole node is not to be seen any more: nobody knows.
    fs::rename(world.path("node.state.json"), world.path("kept")).unwrap_or_default();
    fs::create_dir(world.path("node.state.json")).unwrap();
    world.known.send_modify(|known| known.gpus.clear());
    for stream in &mut streams {
        let is_unknown = |one: &DeviceHealth| one.health() == HealthStatus::Unknown;
        let devices = next_list(stream, |devices| devices.iter().any(is_unknown)).await;
        assert!(devices.iter().all(is_unknown));
        assert!(devices[0].message.contains("node.state.json"), "{}", devices[0].message);
    }
    world.plugin.take().unwrap().end().await;
    for stream in &mut streams {
        while let Some(Ok(_)) = stream.next().await {}
    }
}

/// The next list that is so: what was known before is told again while a machine is slow.
async fn next_list(
    stream: &mut Streaming<NodeWatchResourcesResponse>,
    is: impl Fn(&[DeviceHealth]) -> bool,
) -> Vec<DeviceHealth> {
    let next = async {
        loop {
            let devices = stream.next().await.unwrap().unwrap().devices;
            if is(&devices) {
                return devices;
            }
        }
    };
    timeout(SOON, next).await.expect("it is told")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_waits_for_nothing_that_may_last() {
    let mut world = World::new().await;
    world.api.claim("a", "uid-a", &[WHOLE]);
    world.api.trouble(&[Trouble::Fails; 1000]);
    let plugin = world.plugin.take().unwrap();
    let (prepared, ()) = tokio::join!(world.prepare("a", "uid-a"), async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        plugin.end().await;
    });
    assert!(prepared.unwrap_err().starts_with("divvy: API-SERVER: "));
    assert_eq!(world.left(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_pods_serve_side_by_side_and_two_of_a_name_do_not() {
    let mut world = World::new().await;
    let api = crate::api::Api::new(Some(&world.path("kubeconfig"))).await.unwrap();
    let kubelet = Kubelet { node: "worker-1".to_owned(), dir: world.path("kubelet"), pod: None };
    let machine = std::sync::Arc::new(world.machine());
    let (nobody, known) = (std::sync::Arc::new(Nobody), world.known.subscribe());
    let second = Plugin::start(kubelet, machine, api, nobody, Some(known)).await;
    assert_eq!(second.unwrap_err().code(), "PLUGIN-SERVED");
    world.api.claim("a", "uid-a", &[WHOLE]);
    let names = world.prepare("a", "uid-a").await.unwrap();
    let old = world.plugin.take().unwrap();
    world.start(Some("0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0")).await;
    let new =
        Paths::of(&world.path("kubelet"), DRIVER, Some("0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0"))
            .unwrap();
    assert!(new.registration.exists() && new.dra.exists() && world.socket().exists());
    old.end().await;
    assert!(new.registration.exists() && new.dra.exists() && !world.socket().exists());
    // The new one has what the old one did.
    fs::hard_link(&new.dra, world.socket()).unwrap();
    assert_eq!(world.prepare("a", "uid-a").await.unwrap(), names);
    world.unprepare("a", "uid-a").await.unwrap();
    assert_eq!(world.left(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_say_what_was_done_and_what_failed() {
    let mut world = World::new().await;
    world.plugin.as_mut().unwrap().look().await;
    world.api.claim("a", "uid-a", &[WHOLE]);
    world.prepare("a", "uid-a").await.unwrap();
    world.prepare("gone", "uid-gone").await.unwrap_err();
    world.unprepare("b", "uid-b").await.unwrap();
    let lines = [
        "# TYPE divvy_claim_duration_seconds histogram",
        "divvy_claim_duration_seconds_bucket{operation=\"prepare\",le=\"+Inf\"} 2",
        "divvy_claim_duration_seconds_count{operation=\"unprepare\"} 1",
        "divvy_claim_phase_duration_seconds_count{operation=\"prepare\",phase=\"api\"} 2",
        "divvy_orphaned_claims 0",
        "divvy_mig_free_slices{gpu=\"gpu-0000-43-00\"} 8",
        "divvy_mig_largest_free_slices{gpu=\"gpu-0000-43-00\"} 8",
        "divvy_mig_fragmentation_ratio{gpu=\"gpu-0000-43-00\"} 0",
        "divvy_errors_total{operation=\"prepare\",code=\"CLAIM-GONE\"} 1",
        "divvy_prepared_claims 1",
        "divvy_devices{health=\"unhealthy\"} 0",
        "divvy_devices{health=\"unknown\"} 0",
        "# TYPE divvy_gpu_ailments gauge",
        "divvy_registered 0",
    ];
    let text = metrics_with(&world, &lines).await;
    assert_eq!(text.matches("# TYPE divvy_claim_phase_duration_seconds ").count(), 1);
    // The phases of a call are parts of it: none is counted twice.
    let sum = |of: &str| -> f64 {
        let values = text.lines().filter_map(|line| line.strip_prefix(of)?.split(' ').nth(1));
        values.map(|value| value.parse::<f64>().unwrap()).sum()
    };
    let parts = sum("divvy_claim_phase_duration_seconds_sum{operation=\"prepare\"");
    let all = sum("divvy_claim_duration_seconds_sum{operation=\"prepare\"");
    assert!(0.0 < parts && parts <= all, "{parts} of {all}\n{text}");
    for phase in ["api", "journal", "nvml", "cdi"] {
        let labels = format!("{{operation=\"prepare\",phase=\"{phase}\"");
        assert!(sum(&format!("divvy_claim_phase_duration_seconds_sum{labels}")) > 0.0, "{phase}");
    }
    // A partition in the middle leaves room for small ones alone.
    world.api.claim("part", "uid-part", &["gpu-0000-43-00-1g10gb-3"]);
    world.prepare("part", "uid-part").await.unwrap();
    // The devices are looked at again as soon as something is known anew.
    world.known.send_modify(|_| {});
    let lines = [
        "divvy_mig_free_slices{gpu=\"gpu-0000-43-00\"} 7",
        "divvy_mig_largest_free_slices{gpu=\"gpu-0000-43-00\"} 4",
    ];
    metrics_with(&world, &lines).await;
}

/// The metrics, as soon as they have these lines.
async fn metrics_with(world: &World, lines: &[&str]) -> String {
    let end = Instant::now() + SOON;
    loop {
        let text = world.plugin.as_ref().unwrap().monitor().metrics().await;
        let lacking = lines.iter().find(|line| !text.lines().any(|found| found == **line));
        let Some(line) = lacking else { return text };
        assert!(Instant::now() < end, "{line} is not in\n{text}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[test]
fn sockets_have_paths_that_linux_takes() {
    let pod = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0";
    let paths = Paths::of("/var/lib/kubelet".as_ref(), DRIVER, Some(pod)).unwrap();
    assert!(paths.registration.ends_with(format!("gpu.divvy.dev-{pod}-reg.sock")));
    assert!(paths.dra.ends_with(format!("plugins/gpu.divvy.dev/dra-{pod}.sock")));
    let deep = format!("/{}", "d".repeat(47));
    let paths = Paths::of(deep.as_ref(), DRIVER, Some(pod)).unwrap();
    for path in [&paths.registration, &paths.dra] {
        assert!(path.as_os_str().len() <= 107, "{}", path.display());
    }
    let too_deep = Paths::of(format!("/{}", "d".repeat(90)).as_ref(), DRIVER, None).unwrap_err();
    assert_eq!(too_deep.code(), "PLUGIN-SOCKET");
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_that_nobody_knows_any_more_are_ended() {
    let mut world = World::new().await;
    for (name, device) in [("a", SMALL[0]), ("b", SMALL[1]), ("c", SMALL[2]), ("d", WHOLE)] {
        world.api.claim(name, &format!("uid-{name}"), &[device]);
        world.prepare(name, &format!("uid-{name}")).await.unwrap();
    }
    // The API server has a, b and c no more; the kubelet has a note of b, and the pod of c.
    world.api.delete("a");
    world.api.claim("b", "uid-of-another", &[SMALL[1]]);
    world.api.delete("c");
    #[expect(clippy::disallowed_methods, reason = "a test's own input")]
    fs::write(
        world.path("kubelet/dra_manager_state"),
        "{\"Data\":\"{\\\"ClaimUID\\\":\\\"uid-b\\\"}\"}",
    )
    .unwrap();
    let claims = |world: &World| -> Vec<String> {
        let listing = fs::read_dir(world.path("state/claims")).unwrap();
        let mut names: Vec<_> =
            listing.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    // A daemon that does not see the kubelet's pods knows nothing of them.
    for _ in 0..2 {
        world.plugin.as_mut().unwrap().look().await;
    }
    assert_eq!(claims(&world).len(), 4);
    fs::create_dir_all(world.path("kubelet/pods/pod-uid-c")).unwrap();
    let plugin = world.plugin.as_mut().unwrap();
    plugin.look().await;
    // The API server does not say, and then it does: once is not enough.
    world.api.trouble(&[Trouble::Fails; 4]);
    plugin.look().await;
    world.api.trouble(&[]);
    plugin.look().await;
    assert_eq!(claims(&world).len(), 4);
    world.plugin.as_mut().unwrap().look().await;
    assert_eq!(claims(&world), ["uid-b.json", "uid-c.json", "uid-d.json"]);
    fs::remove_file(world.path("kubelet/dra_manager_state")).unwrap();
    fs::remove_dir(world.path("kubelet/pods/pod-uid-c")).unwrap();
    for _ in 0..2 {
        world.plugin.as_mut().unwrap().look().await;
    }
    assert_eq!(claims(&world), ["uid-d.json"]);
    // The claims that are there still, but not with what they were prepared with.
    for (name, device) in [("e", SMALL[0]), ("f", SMALL[1]), ("g", SMALL[2])] {
        world.api.claim(name, &format!("uid-{name}"), &[device]);
        world.prepare(name, &format!("uid-{name}")).await.unwrap();
    }
    world.api.claim("e", "uid-e", &[WHOLE]);
    world.api.edit("f", |claim| claim["status"] = serde_json::Value::Null);
    for _ in 0..2 {
        assert_eq!(claims(&world).len(), 4);
        world.plugin.as_mut().unwrap().look().await;
    }
    assert_eq!(claims(&world), ["uid-d.json", "uid-g.json"]);
}
