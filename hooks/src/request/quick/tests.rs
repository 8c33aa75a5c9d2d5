use std::path::Path;

use super::*;
use crate::{record::RunDir, settings::Settings};

fn uid(of: impl Fn(&[u8]) -> Uid<'_>, text: &str) -> Option<String> {
    match of(text.as_bytes()) {
        Uid::Absent => Some(String::new()),
        Uid::Found(uid) => Some(uid.to_owned()),
        Uid::Doubtful => None,
    }
}

#[test]
fn containerds_pod_is_found_and_two_are_doubtful() {
    let key = "io.kubernetes.cri.sandbox-uid";
    let cri = |text: &str| uid(cri_uid, text);
    assert_eq!(cri("{}").as_deref(), Some(""));
    assert_eq!(cri(&format!(r#"{{"{key}":"a-1"}}"#)).as_deref(), Some("a-1"));
    assert_eq!(cri(&format!("{{\"{key}\" :\n \"a-1\"}}")).as_deref(), Some("a-1"));
    // In a string the quotes are escaped, so that is no key.
    assert_eq!(cri(&format!(r#"{{"env":"\"{key}\":\"a\""}}"#)).as_deref(), Some(""));
    for doubtful in [
        format!(r#"{{"{key}":"a","x":{{"{key}":"b"}}}}"#),
        format!(r#"{{"{key}":"a\n"}}"#),
        format!(r#"{{"{key}":"../a"}}"#),
        format!(r#"{{"{key}":""}}"#),
        format!(r#"{{"{key}":7}}"#),
        format!(r#"["{key}"]"#),
        format!(r#"{{"{key}""#),
    ] {
        assert_eq!(cri(&doubtful), None, "{doubtful}");
    }
}

#[test]
fn crios_pod_is_found_in_its_labels() {
    let crio = |text: &str| uid(crio_uid, text);
    let labels =
        r#""io.kubernetes.cri-o.Labels":"{\"io.kubernetes.pod.uid\":\"a-1\",\"x\":\"y\"}""#;
    assert_eq!(crio("{}").as_deref(), Some(""));
    assert_eq!(crio(labels).as_deref(), Some("a-1"));
    assert_eq!(crio(r#"{"io.kubernetes.pod.uid":"a"}"#).as_deref(), Some(""));
    assert_eq!(crio(&format!("{labels},{labels}")), None);
    let spaced = r#""io.kubernetes.cri-o.Labels":"{\"io.kubernetes.pod.uid\": \"a-1\"}""#;
    assert_eq!(crio(spaced), None);
}

/// Whatever hides a key from a search of the bytes is parsed.
#[test]
fn no_escape_hides_a_request() {
    let settings = Settings::parse(
        Path::new("/c.toml"),
        b"[handlers.p]\nengine = 'podman'\nenvironment = ['DEV']\n[handlers.c]\nengine = 'ctr'",
    )
    .unwrap();
    let run_dir = RunDir::new("/nonexistent");
    let may = |name: &str, text: &str| {
        let handler = settings.handlers.get(name);
        let rules = Rules {
            name,
            handler,
            settings: Path::new("/c.toml"),
            run_dir: &run_dir,
            salvage: None,
        };
        may_request(text.as_bytes(), &rules).unwrap()
    };
    for text in [
        r#"{"annotations":{"cdi.k8s.io/x":"v.com/c=d"}}"#,
        r#"{"annotations":{"cdi.k8s.io\/x":"v.com/c=d"}}"#,
        r#"{"annotations":{"cdi.k8s.io\u002fx":"v.com/c=d"}}"#,
        r#"{"annotations":{"\u0063di.k8s.io/x":"v.com/c=d"}}"#,
        r#"{"annotations":{"divvy.dev/claim":"x"}}"#,
        r#"{"annotations":{"divvy.dev\/claim":"x"}}"#,
        r#"{"annotations":{"io.kubernetes.cri-o.Annotations":"{\"cdi\\u002ek8s.io/x\":1}"}}"#,
    ] {
        for handler in ["p", "c", "not declared"] {
            assert!(may(handler, text), "{handler}: {text}");
        }
    }
    let env = r#"{"process":{"env":["A=1","DEV=v.com/c=d"]}}"#;
    assert!(may("p", env));
    assert!(!may("c", env));
    for text in ["", "{}", r#"{"a":"\n\t\\ \"","b":"cdi.k8s.io","c":"divvy.dev"}"#] {
        for handler in ["p", "c", "not declared"] {
            assert!(!may(handler, text), "{handler}: {text}");
        }
    }
}
