use std::sync::{Arc, Mutex};

use serde_json::json;

use super::*;

/// What is written while that is done.
fn written(form: Form, what: impl FnOnce()) -> Vec<String> {
    let lines: Arc<Mutex<Vec<String>>> = Arc::default();
    let to = {
        let lines = Arc::clone(&lines);
        move |line: &str| lines.lock().expect("no panic").push(line.to_owned())
    };
    let log = Registry::default().with(Log { form, to }.for_people());
    tracing::subscriber::with_default(log, what);
    Arc::try_unwrap(lines).expect("nobody else").into_inner().expect("no panic")
}

fn say() {
    let span = tracing::info_span!("prepare", namespace = "team", claim = "a b", uid = "u");
    span.in_scope(|| {
        tracing::info!(devices = 2_u64, "prepared");
        tracing::error!(code = "OVERLAP", "not prepared: \u{1b}[31mred\nline two");
        tracing::debug!("not for people");
        tracing::warn!(target: "kube_client", "not ours");
    });
    tracing::info!("alone");
}

#[test]
fn a_line_of_text_has_the_claim_behind_it() {
    let lines = written(Form::Text, say);
    assert_eq!(
        lines,
        [
            "prepared namespace=team claim=\"a b\" uid=u devices=2\n",
            "not prepared: \\u{1b}[31mred namespace=team claim=\"a b\" uid=u code=OVERLAP\nline two\n",
            "alone\n",
        ]
    );
}

#[test]
fn a_line_of_json_is_one_object() {
    let lines = written(Form::Json, say);
    let objects: Vec<Value> = lines
        .iter()
        .map(|line| {
            assert_eq!(line.matches('\n').count(), 1, "{line}");
            let mut object: Value = serde_json::from_str(line).expect("an object");
            let time = object.as_object_mut().expect("an object").remove("time");
            assert!(time.is_some_and(|time| time.as_str().is_some_and(|time| time.ends_with('Z'))));
            object
        })
        .collect();
    assert_eq!(
        objects,
        [
            json!({"level": "INFO", "message": "prepared", "namespace": "team", "claim": "a b",
                   "uid": "u", "devices": 2}),
            json!({"level": "ERROR", "message": "not prepared: \u{1b}[31mred\nline two",
                   "namespace": "team", "claim": "a b", "uid": "u", "code": "OVERLAP"}),
            json!({"level": "INFO", "message": "alone"}),
        ]
    );
}
