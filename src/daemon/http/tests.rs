use super::*;

#[test]
fn it_is_ready_only_while_everything_is_as_it_should_be() {
    let state = |generation, trouble: Option<&str>| publish::State {
        generation,
        trouble: trouble.map(str::to_owned),
        ..publish::State::default()
    };
    assert_eq!(lacks(true, &state(Some(3), None)), None);
    for (registered, state, says) in [
        (false, state(Some(3), None), "registered"),
        (true, state(None, None), "was not told of them yet"),
        (true, state(None, Some("no node")), "are not published: no node"),
        // They were, and are refused since.
        (true, state(Some(3), Some("status 403")), "not as they are now: status 403"),
    ] {
        let lacks = lacks(registered, &state).expect("it is not ready");
        assert!(lacks.contains(says), "{lacks}");
    }
}

#[test]
fn a_place_is_a_port_or_an_address_with_one() {
    assert_eq!("9400".parse(), Ok(Place::Everywhere(9400)));
    assert_eq!("[::1]:80".parse(), Ok(Place::At((Ipv6Addr::LOCALHOST, 80).into())));
    for wrong in ["", ":80", "::1", "70000", "localhost:80", "10.0.0.1"] {
        assert!(wrong.parse::<Place>().is_err(), "{wrong}");
    }
}

#[tokio::test]
async fn every_address_of_either_family_is_one() {
    let listener = Place::Everywhere(0).listen().await.unwrap();
    let port = listener.local_addr().unwrap().port();
    TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap();
    // Where the host has IPv6.
    if std::net::TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok() {
        TcpStream::connect((Ipv6Addr::LOCALHOST, port)).await.unwrap();
    }
}

#[test]
fn taints_are_counted_by_key_and_effect() {
    let key = |name: &str| format!("gpu.divvy.dev/{name}");
    let taints = [
        ((key("xid"), Effect::NoSchedule), 2),
        ((key("xid"), Effect::NoExecute), 1),
        ((key("unavailable"), Effect::NoSchedule), 7),
    ];
    let state = publish::State { taints: taints.into(), ..publish::State::default() };
    let text = taint_metrics(&state);
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(
        lines,
        [
            "divvy_device_taints{key=\"gpu.divvy.dev/unavailable\",effect=\"NoSchedule\"} 7",
            "divvy_device_taints{key=\"gpu.divvy.dev/xid\",effect=\"NoSchedule\"} 2",
            "divvy_device_taints{key=\"gpu.divvy.dev/xid\",effect=\"NoExecute\"} 1",
        ]
    );
    assert!(text.starts_with("# HELP divvy_device_taints "), "{text}");
    // The text of the others goes on with it.
    assert!(text.ends_with('\n'), "{text}");
}

#[test]
fn the_metrics_of_several_drivers_are_one_text() {
    let one = "# HELP a A.\n# TYPE a gauge\na 1\n# HELP b B.\n# TYPE b histogram\nb_sum 2\n";
    let other = "# HELP a A.\n# TYPE a gauge\na{x=\"y\"} 3\n# HELP c C.\n# TYPE c gauge\nc 4\n";
    assert_eq!(together(&[("d", one.to_owned())]), one);
    assert_eq!(
        together(&[("d", one.to_owned()), ("e", other.to_owned())]),
        "# HELP a A.\n# TYPE a gauge\na{driver=\"d\"} 1\na{driver=\"e\",x=\"y\"} 3\n\
         # HELP b B.\n# TYPE b histogram\nb_sum{driver=\"d\"} 2\n\
         # HELP c C.\n# TYPE c gauge\nc{driver=\"e\"} 4\n"
    );
}
