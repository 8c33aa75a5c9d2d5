//! What the repository promises about itself, held by reading it.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "what clippy.toml allows in tests, and here also in what they share"
)]

mod proto;

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

/// Lines of a source file that is neither a test nor generated.
const MAX_LINES: usize = 400;

/// Where unsafe code may stand: the hook's allocator and its entry, and both sides of NVML's C calls,
/// all with their reasons.
const UNSAFE: [&str; 6] = [
    "hooks/src/alloc.rs",
    "hooks/src/alloc/tests.rs",
    "hooks/src/main.rs",
    "src/gpu/nvml/api/mod.rs",
    "tests/fake-nvml/src/abi/mod.rs",
    "tests/fake-nvml/tests/events.rs",
];

#[test]
fn every_error_code_is_explained() {
    let page = read("docs/errors.md");
    let mut missing = BTreeSet::new();
    for path in sources() {
        for code in codes(&read(&path)) {
            if !page.contains(&format!("`{code}`")) {
                missing.insert(format!("{code} of {}", path.display()));
            }
        }
    }
    assert!(missing.is_empty(), "docs/errors.md does not explain {missing:#?}");
}

#[test]
fn every_explained_code_exists() {
    let all: BTreeSet<String> = sources().iter().flat_map(|path| codes(&read(path))).collect();
    let page = read("docs/errors.md");
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    let named = rows.flat_map(|row| row.split('|').nth(1).into_iter().flat_map(|c| c.split('`')));
    let gone: Vec<&str> = named.filter(|word| is_code(word) && !all.contains(*word)).collect();
    assert!(gone.is_empty(), "docs/errors.md explains codes that nothing raises: {gone:?}");
}

#[test]
fn source_files_stay_short() {
    let mut all = sources();
    all.extend(rust_files("tests/fake-nvml"));
    let long: Vec<String> = all
        .iter()
        .map(|path| (path, read(path).lines().count()))
        .filter(|(_, lines)| *lines > MAX_LINES)
        .map(|(path, lines)| format!("{}: {lines} lines", path.display()))
        .collect();
    assert!(long.is_empty(), "over {MAX_LINES} lines, so with a second noun in them: {long:#?}");
}

#[test]
fn unsafe_code_stands_where_it_may() {
    let mut all = sources();
    all.extend(rust_files("hooks/src").into_iter().filter(|path| is_test(path)));
    all.extend(rust_files("tests/fake-nvml"));
    all.retain(|path| read(path).contains("allow(unsafe_code"));
    let wrong: Vec<_> =
        all.iter().filter(|path| !UNSAFE.iter().any(|may| path.ends_with(may))).collect();
    assert!(wrong.is_empty(), "unsafe code in {wrong:?}");
}

/// The sources that ship: no tests.
fn sources() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> =
        ["cdi/src", "hooks/src", "src"].into_iter().flat_map(rust_files).collect();
    found.retain(|path| !is_test(path) && !is_generated(path));
    assert!(found.len() > 50, "only {} source files found: is this the repository?", found.len());
    found
}

fn is_test(path: &Path) -> bool {
    path.components().any(|part| part.as_os_str() == "tests" || part.as_os_str() == "tests.rs")
}

fn is_generated(path: &Path) -> bool {
    path.components().any(|part| part.as_os_str() == "generated")
}

fn rust_files(dir: impl AsRef<Path>) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut dirs = vec![root().join(dir)];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(&dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display())) {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                dirs.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// Upper case words with a dash, or one of the few without, as codes are written: alone in
/// quotes, or at the start of a message.
fn codes(text: &str) -> BTreeSet<String> {
    let text = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    let quoted = text.flat_map(|line| line.split('"').skip(1).step_by(2));
    quoted
        .map(|quote| quote.strip_prefix("divvy: ").unwrap_or(quote))
        .map(|quote| quote.split_once(": ").map_or(quote, |(code, _)| code))
        .filter(|word| is_code(word))
        .map(str::to_owned)
        .collect()
}

fn is_code(word: &str) -> bool {
    const SINGLE: [&str; 14] = [
        "UNRESOLVED",
        "CONFLICT",
        "UNTRUSTED",
        "UNREADABLE",
        "UNWRITABLE",
        "BUNDLE",
        "OVERLAP",
        "HOST",
        "INPUT",
        "REPORT",
        "USAGE",
        "EMPTY",
        "FAILED",
        "UNPREPARE",
    ];
    let dashed = word.contains('-') && word.split('-').all(|part| part.len() > 2);
    SINGLE.contains(&word) || (dashed && word.bytes().all(|b| b.is_ascii_uppercase() || b == b'-'))
}

fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}
