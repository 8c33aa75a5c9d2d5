//! Replays the vectors: our answer is the Go library's, or the deviation's.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    reason = "a test: it may fail by panic, and writes its own fresh folders"
)]

#[path = "vectors/divvy.rs"]
mod divvy;
#[path = "vectors/host.rs"]
mod host;
#[path = "vectors/model.rs"]
mod model;
#[path = "vectors/replay.rs"]
mod replay;

use divvy::plain;
use host::VectorHost;
use model::{Answer, Ask, Vector};
use replay::answer;

const DEVIATIONS: &str = include_str!("../DEVIATIONS.md");

/// What is wrong with our answer to a vector.
fn complaint(vector: &Vector) -> Option<String> {
    let folder = tempfile::tempdir().expect("a folder");
    // One level down: a document name with `..` stays in the folder.
    let root = &folder.path().join("root");
    std::fs::create_dir(root).expect("made");
    let ask = vector.ask.at(root);
    match &ask {
        Ask::List(tree) => tree.lay_out(root).expect("laid out"),
        Ask::Inject(inject) => inject.tree.lay_out(root).expect("laid out"),
        _ => (),
    }
    let host = VectorHost::of(&ask, root);
    let ours = answer(&ask, root, &host).without(root);
    let go = vector.go.as_ref().expect("make vectors has written it");
    let wanted = vector.divvy.as_ref().unwrap_or(go);
    let good = match (wanted, &ours) {
        (Answer::Accepts(wanted), Answer::Accepts(ours)) => plain(wanted) == plain(ours),
        // Go's own words are not ours; where our answer is given, its words are looked for.
        (Answer::Refuses(words), Answer::Refuses(ours)) => {
            vector.divvy.is_none() || ours.contains(words.as_str())
        }
        _ => false,
    };
    if !good {
        let text = |answer| serde_json::to_string(answer).expect("serialises");
        return Some(format!("answers {}\n  instead of {}", text(&ours), text(wanted)));
    }
    match (&vector.divvy, &vector.deviation) {
        (None, None) => None,
        (Some(_), Some(id)) if DEVIATIONS.contains(&format!("\n### {id}\n")) => None,
        (_, id) => Some(format!("an answer of ours and a deviation belong together: {id:?}")),
    }
}

#[test]
fn vectors() {
    let mut count = 0;
    let mut wrong = Vec::new();
    for (path, vectors) in model::tables() {
        let table = path.file_stem().expect("a name").to_string_lossy().into_owned();
        for vector in vectors {
            count += 1;
            if let Some(complaint) = complaint(&vector) {
                wrong.push(format!("{table} {}: {complaint}", vector.id));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {count} are wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert!(count > 700, "only {count}");
}
