use std::fmt::Write;

use super::super::Node;

/// The tree of the fast reader.
fn read(bytes: &[u8]) -> Option<Node<'_>> {
    super::read(bytes)?.to_node()
}

/// The tree of the full reader, for one document.
fn full(text: &str) -> Result<Node<'_>, String> {
    let mut documents = crate::doc::yaml::read(text.as_bytes()).map_err(|e| e.message)?;
    assert!(documents.len() <= 1, "{text:?}");
    documents.pop().ok_or_else(|| "none".to_owned())
}

#[track_caller]
fn same(text: &str) {
    let fast = read(text.as_bytes()).unwrap_or_else(|| panic!("not taken: {text:?}"));
    assert_eq!(full(text).as_ref(), Ok(&fast), "{text:?}");
}

#[test]
fn what_is_taken_is_what_the_full_reader_reads() {
    for text in [
        "a: b\n",
        "a: b",
        "---\na: b\n",
        "# c\n\n---\n# c\na: b\n  # c\n\nc: d\n",
        "a:\n  b: c\n  d:\n    e: f\ng: h\n",
        "a:\n- b\n- c: d\n  e: f\n- g\nh: i\n",
        "a:\n  - b\n  -   c: d\n      e: f\nh: i\n",
        "- a\n- b: c\n",
        "a:\nb:\n  c:\nd:",
        "a:   b  \nc: 'd'  \ne: \"f\"\n",
        "a: ''\nb: \"\"\nc: []\nd: {}\n",
        "a: 0\nb: 010\nc: 1.5\nd: true\ne: null\nf: ~\ng: yes\nh: -1\ni: 0x1f\nj: 1_0\n",
        "a: --link\nb: -\u{2d}\nc: -x\nd: a::b\ne: a#b\nf: a'b\"c\ng: a, b [c] {d}\nh: x&y*z\n",
        "a: /dev/null\nb: .x\nc: _x\nd: $x\ne: +x\nf: 1.2.3\ng: 0:3\nh: http://x/y?z=1\n",
        "a.b/c-d_e: 1\n",
        "  a: b\n  c: d\n",
        "a:\n    - b:\n        c\n",
        "{\"a\": [1, 2.5, \"x\", true, false, null, {}, [], {\"b\": -1e3}]}",
        "{\"a\":1,\"b\" : 2 ,\n\"c\"\n:\n3}\n",
        "{\"a\": \"x\\\"y\\\\z\\/\\n\\t\\r\"}",
        "{}",
    ] {
        if text == "a:\n    - b:\n        c\n" {
            assert_eq!(read(text.as_bytes()), None);
        } else {
            same(text);
        }
    }
}

#[rustfmt::skip]
const DOUBTS: &[&str] = &[
    "", "\n", "---\n", "a", "- ", "-", "a: b\n---\nc: d\n", "a: b\n...\n", "a: b # c\n",
    "a: \"b\" # c\n", "a: b\n  c\n", "a: 'b\n  c'\n", "a: \"b\n  c\"\n", "a: |\n  b\n",
    "a: >\n  b\n", "a: &x b\n", "a: *x\n", "a: !t b\n", "a: [b]\n", "a: {b: c}\n", "a: 'b''c'\n",
    "a: \"b\\n\"\n", "a: b: c\n", "a: b:\n", "? a\n: b\n", "\"a\": b\n", "a : b\n", "a:\tb\n",
    "\ta: b\n", "a: b\r\n", "a: b\tc\n", "a: - b\n", "- - a\n", "-\n  a\n", "a: b\na: c\n",
    "<<: {}\n", "a:\n  b: c\n d: e\n", "a:\n- b\n - c\n", "a: @b\n", "a: `b\n", "a: %b\n",
    "a: =\n", "a: ,b\n", "%YAML 1.2\n---\na: b\n", "a: b\n- c\n", "- a\nb: c\n", "a: \u{e9}\n",
    "a: b\0", "--- a\n", "---a: b\n", "a: ? b\n", "{\"a\": 1,}", "{\"a\": [1,]}", "{\"a\": [,]}",
    "{,}", "{\"a\"}", "{\"a\" 1}", "{a: 1}", "{'a': 1}", "{\"a\": x}", "{\"a\": }", "{\"a\": 1} x",
    "{\"a\": 1}}", "{\"a\": \"\\u0041\"}", "{\"a\": \"\\x\"}", "{\"a\": \"b\nc\"}",
    "{\"a\": 1 # c\n}", "{\"a\": 1", "{\"a\": \"", "{\"a\": \"\\", "{", "{\"", "{\"a\":",
    "{\"a\":[", "{\"a\":1,\"a\":2}", "{\"a\":yes}", "[1]", "{\"a\":--1}", "{\"a\": 1 2}",
];

#[test]
fn doubt_is_left_to_the_full_reader() {
    for text in DOUBTS {
        assert_eq!(read(text.as_bytes()), None, "{text:?}");
    }
    let deep: String = (0..65).map(|n| format!("{}a:\n", " ".repeat(n))).collect();
    assert_eq!(read(format!("{deep}{}a: b\n", " ".repeat(65)).as_bytes()), None);
    assert_eq!(read(format!("{}{}", "{\"a\":[".repeat(33), "]}".repeat(33)).as_bytes()), None);
}

#[rustfmt::skip]
const SCALARS: &[&str] = &[
    "b", "/dev/nvidia0", "NVIDIA=void", "0", "0660", "1.0", "-1", "true", "No", "null", "~", "''",
    "\"\"", "'x y'", "\"x: #y\"", "'\"'", "\"'\"", "--link", "a::b", "a#b", "a b  ", "x:y", "[]",
    "{}", "'it''s'", "\"a\\tb\"", "a: b", "a #b", "[a, b]", "{a: b}", "*x", "&x b", "!t b", "|",
    "a\n   b", "- a", "-", "?", ":", "é", "a\tb", "'a", "\"a", "@a", "0x", "1_000", ".inf", "...",
    "---", "2001-01-01", "<<", "=", "%a", "a,", ">", "a'", "a\"b", "#", "a:", "! a", "a\\b",
    "'a\\b'", "1e400", "+", ".", "$x", "(a)", "a]", "}", "'a' b", "\"a\"b",
];

/// Random documents of a small grammar that is a little wider than what is taken.
struct Generator(u64);

impl Generator {
    fn below(&mut self, n: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }

    fn pick<'p>(&mut self, from: &[&'p str]) -> &'p str {
        from[usize::try_from(self.below(from.len() as u64)).unwrap()]
    }

    fn scalar(&mut self) -> &'static str {
        self.pick(SCALARS)
    }

    fn key(&mut self) -> &'static str {
        self.pick(&[
            "a", "b", "path", "hostPath", "c.d/e", "f-g", "true", "null", "a1", "1a", "\"q\"",
            "'q'", "<<", "_x", "k l",
        ])
    }

    fn yaml(&mut self, out: &mut String, indent: usize, depth: u64) {
        let pad = " ".repeat(indent);
        let mapping = self.below(2) == 0;
        for _ in 0..=self.below(3) {
            if self.below(12) == 0 {
                let noise = ["\n", "# c\n", "   # c\n", "  \n", "\t\n", "x\n", "  a: b\n"];
                out.push_str(self.pick(&noise));
            }
            let pad = if self.below(40) == 0 { " ".repeat(indent + 1) } else { pad.clone() };
            let space = self.pick(&[" ", " ", " ", " ", " ", "  ", "\t", ""]);
            let nested = depth > 0 && self.below(3) == 0;
            if mapping {
                write!(out, "{pad}{}:", self.key()).unwrap();
                match (nested, self.below(10)) {
                    (true, _) => {
                        out.push('\n');
                        let more = usize::try_from(self.below(4)).unwrap();
                        self.yaml(out, indent + more, depth - 1);
                    }
                    (false, 0) => out.push('\n'),
                    (false, _) => writeln!(out, "{space}{}", self.scalar()).unwrap(),
                }
            } else if nested {
                // The first line of the element follows its dash.
                let mut inner = String::new();
                self.yaml(&mut inner, indent + 2, depth - 1);
                writeln!(out, "{pad}- {}", inner.trim()).unwrap();
            } else {
                writeln!(out, "{pad}-{space}{}", self.scalar()).unwrap();
            }
        }
    }

    fn json(&mut self, out: &mut String, depth: u64) {
        let space = self.pick(&["", " ", "\n", "  "]);
        match if depth == 0 { 9 } else { self.below(8) } {
            0..=2 => {
                write!(out, "{{{space}").unwrap();
                for n in 0..self.below(4) {
                    let comma = if n > 0 { "," } else { "" };
                    let key = self.pick(&["a", "b", "c", "d", "e", "x y", "\\n"]);
                    write!(out, "{comma}{space}\"{key}\"{space}: ").unwrap();
                    self.json(out, depth - 1);
                }
                out.push('}');
            }
            3 | 4 => {
                out.push('[');
                for n in 0..self.below(4) {
                    out.push_str(if n > 0 { "," } else { "" });
                    self.json(out, depth - 1);
                }
                write!(out, "{space}]").unwrap();
            }
            _ => out.push_str(self.pick(&[
                "1",
                "-0.5e-3",
                "\"\"",
                "\"a\"",
                "\"a\\\\b\\\"\"",
                "true",
                "null",
                "\"\\u00e9\"",
                "\"é\"",
                "01",
                "x",
                "\"a: b\"",
                "\"#\"",
                "'a'",
                "1.",
                "\"\\/\"",
                "[]",
                "{}",
                "\"\\b\"",
                "-",
                "nul",
                ".inf",
                "0x1",
            ])),
        }
    }
}

#[test]
fn generated_documents_are_read_the_same() {
    let mut generator = Generator(1);
    let (mut taken, mut all) = (0, 0);
    for round in 0..10_000 {
        let mut text = String::new();
        if round % 3 == 0 {
            text.push('{');
            write!(text, "\"k\":").unwrap();
            generator.json(&mut text, 4);
            text.push('}');
        } else {
            text.push_str(generator.pick(&["", "", "---\n", "# x\n", "--- \n"]));
            generator.yaml(&mut text, 0, 3);
        }
        all += 1;
        let documents = crate::doc::yaml::read(text.as_bytes());
        if let Some(fast) = read(text.as_bytes()) {
            taken += 1;
            let documents = documents.unwrap_or_else(|error| panic!("{text}\n{error}"));
            assert_eq!(documents, [fast], "{text}");
        }
    }
    // The grammar is wide, but not so wide that nothing is compared.
    assert!(taken > all / 10, "{taken} of {all}");
}
