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

mod compare;
mod deviations;
#[path = "../../cdi/tests/vectors/divvy.rs"]
mod divvy;
mod generate;
mod go;
#[path = "../../cdi/tests/vectors/model.rs"]
mod model;
mod nodes;
#[path = "../../cdi/tests/vectors/replay.rs"]
mod replay;
mod shrink;

use std::{collections::BTreeSet, fs, path::Path};

use compare::{Compare, Difference};
use divvy_cdi::host::ThisHost;
use fastrand::Rng;
use go::Go;
use model::{Answer, Ask, Vector};
use serde_json::Value;

/// How many differences are shown before a comparison gives up.
const SHOWN: usize = 5;

/// How many random names are compared, and as many annotations and keys.
const NAMES: u64 = 4000;

/// How many random documents are compared.
const DOCUMENTS: u64 = 5000;

/// How many random injections are compared.
const INJECTIONS: u64 = 1800;

/// The Go library's answer to one vector.
fn answer(go: &mut Go, vector: &Vector) -> Answer {
    let folder = tempfile::tempdir().expect("a folder");
    // One level down: a document name with `..` stays in the folder.
    let root = &folder.path().join("root");
    fs::create_dir(root).expect("made");
    let ask = vector.ask.at(root);
    lay_out(&ask, root);
    go.answer(&ask, root).without(root)
}

fn lay_out(ask: &Ask, root: &Path) {
    match ask {
        Ask::List(tree) => tree.lay_out(root).expect("laid out"),
        Ask::Inject(inject) => {
            inject.tree.lay_out(root).expect("laid out");
            nodes::make_all(inject, root).expect("device nodes (this test needs root)");
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

/// Random names, annotations and keys are good or bad for both.
#[test]
fn names() {
    let mut go = Go::start();
    let rng = &mut Rng::with_seed(0);
    let mut accepted = 0;
    for _ in 0..NAMES {
        let name = generate::name::name(rng);
        let annotations = generate::name::annotations(rng);
        let (plugin, device) = generate::name::plugin_and_device(rng);
        for ask in [Ask::Name(name), Ask::Annotations(annotations), Ask::Key { plugin, device }] {
            let mut theirs = go.answer(&ask, Path::new("/"));
            if let (Ask::Annotations(_), Answer::Accepts(Value::Array(names))) = (&ask, &mut theirs)
            {
                // The deviation annotation-once.
                let mut seen = BTreeSet::new();
                names.retain(|name| seen.insert(name.to_string()));
            }
            let ours = replay::answer(&ask, Path::new("/"), &ThisHost);
            accepted += u64::from(matches!(theirs, Answer::Accepts(_)));
            assert!(
                compare::exactly(&theirs, &ours),
                "{ask:?}\n  Go: {theirs:?}\n  divvy: {ours:?}"
            );
        }
    }
    assert!(accepted > NAMES / 2, "too few good ones to mean something: {accepted}");
}

/// Random documents, in all styles, say the same to both.
#[test]
fn documents() {
    let mut compare = Compare::new();
    let nodes = compare.nodes();
    let mut accepted = 0;
    let mut differences = Vec::new();
    for seed in 0..DOCUMENTS {
        let mut rng = Rng::with_seed(seed);
        let tree = generate::spec::spec(&mut rng, &nodes, 6);
        let bytes = generate::render::text(&mut rng, &tree);
        match compare.document(&bytes) {
            Ok(good) => accepted += u64::from(good),
            Err(_) => {
                let small = shrink::document(&bytes, |bytes| compare.document(bytes).is_err());
                let Difference { go, ours } = compare.document(&small).expect_err("as before");
                let text = String::from_utf8_lossy(&small);
                differences.push(format!("seed {seed}: {text:?}\n  Go: {go:?}\n  divvy: {ours:?}"));
            }
        }
        if differences.len() == SHOWN {
            break;
        }
    }
    assert!(differences.is_empty(), "no deviation explains:\n{}", differences.join("\n"));
    println!(
        "{DOCUMENTS} documents, {accepted} accepted by Go; explained: {:?}",
        compare.explained
    );
    assert!(accepted > DOCUMENTS / 5, "too few valid documents to mean something: {accepted}");
}

/// Random directories hold the same for both, and an injection from them does the same.
#[test]
fn injections() {
    let mut compare = Compare::new();
    let nodes = compare.nodes();
    let mut accepted = 0;
    let mut differences = Vec::new();
    for seed in 0..INJECTIONS {
        let case = generate::tree::case(&mut Rng::with_seed(seed), &nodes);
        match compare.case(&case) {
            Ok(good) => accepted += u64::from(good),
            Err(_) => {
                let small = shrink::case(&case, |case| compare.case(case).is_err());
                let Difference { go, ours } = compare.case(&small).expect_err("as before");
                let text = compare::shown(&small);
                differences.push(format!("seed {seed}:\n{text}  Go: {go:?}\n  divvy: {ours:?}"));
            }
        }
        if differences.len() == SHOWN {
            break;
        }
    }
    assert!(differences.is_empty(), "no deviation explains:\n{}", differences.join("\n"));
    println!(
        "{INJECTIONS} injections, {accepted} accepted by Go; explained: {:?}",
        compare.explained
    );
    assert!(accepted > INJECTIONS / 5, "too few injections to mean something: {accepted}");
}
