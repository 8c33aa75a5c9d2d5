//! The comparison with the Go reference library (`tags.cncf.io/container-device-interface`): the
//! vectors of `cdi/tests/vectors` are checked to be what it says today.
//!
//! `cargo test --test reference -- --ignored write_vectors` (`make vectors`) writes its answers
//! into the tables.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test: it may fail by panic, and writes its own fresh folders"
)]

mod go;
#[path = "../../cdi/tests/vectors/model.rs"]
mod model;

use std::{fs, path::Path};

use go::Go;
use model::{Answer, Ask, Vector};

/// The Go library's answer to one vector.
fn answer(go: &mut Go, vector: &Vector) -> Answer {
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path();
    let ask = vector.ask.at(root);
    lay_out(&ask, root);
    go.answer(&ask, root).without(root)
}

fn lay_out(ask: &Ask, root: &Path) {
    match ask {
        Ask::List(tree) => tree.lay_out(root).expect("laid out"),
        Ask::Inject(inject) => {
            inject.tree.lay_out(root).expect("laid out");
            inject.make_nodes(root).expect("device nodes (this test needs root)");
        }
        _ => (),
    }
}

/// The tables say what the library says.
#[test]
fn vectors_are_what_go_answers() {
    let mut go = Go::start();
    let mut wrong = Vec::new();
    for (path, vectors) in model::tables() {
        for vector in vectors {
            let answer = answer(&mut go, &vector);
            if vector.go.as_ref() != Some(&answer) {
                wrong.push(format!(
                    "{} {}: {:?}, not {answer:?}",
                    path.display(),
                    vector.id,
                    vector.go
                ));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} differ (make vectors rewrites them):\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// Writes the library's answers into the tables.
#[test]
#[ignore = "rewrites the tables: make vectors"]
fn write_vectors() {
    let mut go = Go::start();
    for (path, mut vectors) in model::tables() {
        for vector in &mut vectors {
            vector.go = Some(answer(&mut go, vector));
        }
        let text = serde_json::to_string_pretty(&vectors).expect("serialises");
        fs::write(&path, text + "\n").expect("written");
    }
}
