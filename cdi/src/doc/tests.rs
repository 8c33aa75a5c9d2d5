use super::*;

fn json(text: &str) -> serde_json::Value {
    read(text.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error}")).to_json()
}

#[track_caller]
fn bad(bytes: &[u8], words: &str) {
    let error = read(bytes).expect_err(words);
    assert!(error.message.contains(words), "wanted {words:?}: {error:?}");
}

#[test]
fn scalars_become_json() {
    assert_eq!(
        json(
            "{a: 1, b: 1.5, c: 0x10, d: text, e: '1', f: yes, g: null, h: true, i: .inf, j: 2001-01-01}"
        ),
        serde_json::json!({
            "a": 1, "b": 1.5, "c": 16, "d": "text", "e": "1", "f": "yes", "g": null, "h": true,
            "i": ".inf", "j": "2001-01-01"
        })
    );
}

#[test]
fn block_scalars_tags_and_comments() {
    assert_eq!(
        json(
            "a: |\n  x\n  y\nb: >-\n  x\n  y # no comment\nc: !!str 010 # comment\nd: ! 010\ne: !!int 5\n"
        ),
        serde_json::json!({"a": "x\ny\n", "b": "x y # no comment", "c": "010", "d": "010", "e": 5})
    );
    bad(b"a: !!binary aGk=", "the tag \"tag:yaml.org,2002:!binary\" is not supported");
    bad(b"a: !x {}", "is not supported");
    bad(b"a: !!int x", "\"x\" is no !!int");
}

#[test]
fn merge_keys_give_way_to_what_is_written() {
    let text =
        "base: &a {x: 1, y: 2}\nmore: &b {y: 3, z: 4}\nc: {<<: [*a, *b], x: 0}\nd: {\"<<\": 1}\n";
    let merged = json(text);
    assert_eq!(merged["c"], serde_json::json!({"x": 0, "y": 2, "z": 4}));
    assert_eq!(merged["d"], serde_json::json!({"<<": 1}));
    bad(b"a: {<<: 1}", "<< takes an object");
    bad(b"a: {<<: {}, <<: {}}", "twice");
}

#[test]
fn several_documents() {
    let docs = read_all(b"---\na: 1\n---\n# nothing\n---\nb: 2\n...\n").unwrap();
    let docs: Vec<_> = docs.iter().map(Node::to_json).collect();
    assert_eq!(docs, [serde_json::json!({"a": 1}), serde_json::json!({"b": 2})]);
    assert!(read_all(b"").unwrap().is_empty());
    bad(b"a: 1\n---\nb: 1\n", "a second document");
    bad(b"a: &x 1\n---\nb: *x\n", "anchor");
}

#[test]
fn positions_count_characters() {
    let bytes = "é: [\"ö\", {ü: *none}]".as_bytes();
    let error = read(bytes).unwrap_err();
    assert_eq!(error.at, Some(Position { line: 1, column: 14 }), "{error:?}");
    let bytes = "\u{feff}a: é\né:\n- ü: [1, {x: 1, x: 2}]\n".as_bytes();
    assert_eq!(read(bytes).unwrap_err().at, Some(Position { line: 3, column: 17 }));
    let error = read(b"a: 1\nb: [\n").unwrap_err();
    assert!(
        error.at.is_some() && error.message.starts_with("neither JSON nor YAML: "),
        "{error:?}"
    );
}

#[test]
fn bytes_that_are_no_text() {
    bad(b"a: \xff", "not UTF-8");
    bad(b"\xff\xfea\0:\0 \x001\0", "not UTF-8");
    for bytes in
        [&b"a: 1\0b: 2"[..], b"{\"a\":1}\0", b"a: \x07", b"a: \x7f", "a: \u{9f}".as_bytes()]
    {
        bad(bytes, "control character");
    }
    assert_eq!(json("{\"a\": \"\\u0000\"}"), serde_json::json!({"a": "\0"}));
}

#[test]
fn depth_is_limited() {
    let nested =
        |open: &str, close: &str, n: usize| format!("{}1{}", open.repeat(n), close.repeat(n));
    assert!(read(nested("[", "]", MAX_DEPTH).as_bytes()).is_ok());
    bad(nested("[", "]", MAX_DEPTH + 1).as_bytes(), "nested deeper");
    for bomb in [
        "[".repeat(1 << 20),
        "{a: ".repeat(1 << 18),
        "- ".repeat(1 << 20),
        "{\"a\":".repeat(1 << 18),
        "? ".repeat(1 << 20),
        (0..2000).map(|n| format!("{}a:\n", " ".repeat(n))).collect(),
        nested("{\"a\":[", "]}", 100_000),
        nested("[", "]", 100_000),
    ] {
        assert!(read(bomb.as_bytes()).is_err());
    }
    let chain: String = (1..100).map(|n| format!("a{n}: &a{n} [*a{}]\n", n - 1)).collect();
    bad(format!("a0: &a0 []\n{chain}").as_bytes(), "nested deeper");
}

#[test]
fn no_billion_laughs() {
    let laugh: String = (1..10)
        .map(|n| format!("a{n}: &a{n} [{}]\n", vec![format!("*a{}", n - 1); 10].join(",")))
        .collect();
    bad(format!("a0: &a0 ha\n{laugh}").as_bytes(), "expand to more than 16 MiB");
    let text = format!("a: &a \"{}\"\nb: [{}]\n", "x".repeat(1 << 20), "*a,".repeat(100));
    bad(text.as_bytes(), "expand to more than 16 MiB");
    bad(b"a: &a [*a]", "not complete here");
    // Anchors around one another each hold their content.
    let deep: String = (0..60).map(|n| format!("&a{n} [")).collect();
    let text = format!("{deep}{}{}", "1,".repeat(20_000), "]".repeat(60));
    bad(text.as_bytes(), "expand to more than 16 MiB");
}

#[test]
fn a_large_file_is_refused() {
    bad(&vec![b' '; MAX_SPEC_BYTES + 1], "larger than the limit");
}

#[test]
fn hostile_files_end_soon() {
    // Quadratic time would show: 10^10 steps.
    let fill = |unit: &str| unit.repeat(100_000 / unit.len());
    let start = std::time::Instant::now();
    for bytes in [
        fill(" "),
        fill("\n"),
        fill("a"),
        fill("a "),
        fill("a: "),
        fill("\"a\" "),
        fill("a: 1\n"),
        fill("-\n"),
        fill("&a "),
        fill("*a "),
        fill("!a "),
        fill("#"),
        fill("# \n"),
        fill("---\n"),
        fill("%A b\n"),
        fill("\t"),
        fill("'"),
        fill("\""),
        fill("\"\\"),
        fill("|\n"),
        fill("? a\n"),
        fill(": "),
        fill("é"),
        fill("[],"),
        fill("{},"),
        format!("[{}]", fill("[],").trim_end_matches(',')),
        format!("[{}", fill("é,")),
        format!("{{{}", fill("é: 1, ")),
        fill("a: &a b\n"),
        format!("a: {}", fill("b\n  ")),
        format!("a: \"{}", fill("b\n  ")),
    ] {
        let _any = read(bytes.as_bytes());
    }
    assert!(start.elapsed().as_secs() < 30, "{:?}", start.elapsed());
}
