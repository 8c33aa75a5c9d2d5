use super::*;

#[test]
fn a_collector_has_a_host_and_a_port_and_no_tls() {
    for text in ["http://localhost:4317", "http://[::1]:4317/", "http://otel.monitoring.svc:4317"] {
        assert_eq!(text.parse::<Collector>().expect(text).0, text);
    }
    for (text, why) in [
        ("localhost:4317", "http://HOST:PORT"),
        ("http://localhost", "http://HOST:PORT"),
        ("http://localhost:4318/v1/traces", "by gRPC"),
        ("https://localhost:4317", "without TLS"),
        ("http://[::1:4317", "http://HOST:PORT"),
        ("", "http://HOST:PORT"),
    ] {
        let error = text.parse::<Collector>().expect_err(text);
        assert!(error.contains(why), "{text}: {error}");
    }
}
