//! The createRuntime hooks: verify and report.

use crate::support::{Host, has_device};

#[test]
fn verify_sees_missing_edits_and_never_makes_them() {
    let host = Host::new("[handlers.divvy-runtime]\nengine = 'cri'");
    host.prepare_pod("p-1");
    let config = host.bundle("containerd", |_| {});
    // As crun prints it.
    let state = host.word(
        "{\n  \"ociVersion\": \"1.0\",\n  \"id\": \"ID\",\n  \"pid\": 7,\n  \"root\": \"@\\/x\",\n  \
         \"bundle\": \"@\\/bundle\",\n  \"status\": \"creating\"\n}",
    );
    let verify = || host.hook(&["verify"], state.as_bytes());
    let outcome = verify();
    let line = outcome.error("EDITS-MISSING");
    assert!(line.contains("\"ID\"") && line.contains("bundle/config.json"), "{line}");
    assert_eq!(host.read("bundle/config.json"), config);

    assert_eq!(host.shim("create --bundle @/bundle ID").status, 7);
    assert!(has_device(&host.config()));
    let outcome = verify();
    assert_eq!((outcome.status, outcome.stderr.as_str()), (0, ""));

    // Another handler may be named.
    let outcome = host.hook(&["verify", "divvy-other"], state.as_bytes());
    outcome.error("CONFIG-INVALID");
    for bad in ["", "{}", "[", "{\"id\":\"x\",\"bundle\":\"relative\"}"] {
        host.hook(&["verify"], bad.as_bytes()).error("INPUT");
    }
}

#[test]
fn a_report_says_its_text_and_fails() {
    let host = Host::new("");
    let errors = host.path("run/errors");
    std::fs::create_dir(&errors).unwrap();
    host.write("run/errors/1.txt", "divvy: CODE: text\n");
    let file = host.word("@/run/errors/1.txt");
    let outcome = host.hook(&["report", &file], b"{}");
    assert_eq!((outcome.status, outcome.stderr.as_str()), (1, "divvy: CODE: text\n"));
    assert!(!errors.join("1.txt").exists(), "said once, it is gone");
    host.hook(&["report", &file], b"{}").error("REPORT");
    let outcome = host.hook(&["report", "--text", "divvy: CODE: other"], b"{}");
    assert_eq!((outcome.status, outcome.stderr.as_str()), (1, "divvy: CODE: other\n"));
    host.hook::<&str>(&["report"], b"").error("REPORT");
    // What is elsewhere is not removed.
    host.write("elsewhere.txt", "divvy: CODE: text\n");
    let elsewhere = host.word("@/elsewhere.txt");
    assert_eq!(host.hook(&["report", &elsewhere], b"").status, 1);
    assert!(host.path("elsewhere.txt").exists());
}
