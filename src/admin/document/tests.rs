use divvy_cdi::doc::{Node, Value, read_all};

use super::{json, yaml};

/// The tree without places and spellings.
fn bare(node: &Node<'_>) -> serde_json::Value {
    json(std::slice::from_ref(node))
}

#[test]
fn what_is_printed_reads_back_as_what_it_was() {
    for text in [
        "a: 1\nb: [x, {c: d, e: [f, [g, h], []]}, {}]\nc: {d: {}}",
        "a: '1'\nb: 'true'\nc: ''\nd: ' x'\ne: 'x: y'\nf: '#x'\ng: x #y\nh: '- x'\ni: \"a\\tb\"",
        "a: |-\n  device.x == 'y' &&\n  device.z == \"w\"\nb: |\n  x\n  y\nc: \"\\n x\"\nd: \"x\\n\\n\"",
        "- |-\n  x\n  y\n- a: |\n    x\n    y\n  b: c\n- null\n- 1.5\n- [[a]]",
        "'a: b': {'true': x, '': y}\n\"a\\nb\": c",
        "x: device.driver == \"a\" && device.attributes[\"b\"].c == 'd'",
        "é: ö\nx: \"\\u0000\\u2028\"\ny: no\nz: 0x10\nw: 1e3\nv: '1e3'\nu: '*x'\nt: '&x'",
    ] {
        let documents = read_all(text.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error}"));
        let printed = yaml(&documents);
        let again = read_all(printed.as_bytes())
            .unwrap_or_else(|error| panic!("{text}\nis printed as\n{printed}\n{error}"));
        let (one, other): (Vec<_>, Vec<_>) =
            (documents.iter().map(bare).collect(), again.iter().map(bare).collect());
        assert_eq!(one, other, "{text}\nis printed as\n{printed}");
    }
}

#[test]
fn random_trees_read_back() {
    const TEXTS: [&str; 16] = [
        "", "a", "a b", "1", "true", "a: b", "a #b", "x\ny", "x\n", " x", "x ", "\tx", "-", "{a}",
        "é", "a\n\nb",
    ];
    let mut random = fastrand::Rng::with_seed(5);
    for _ in 0..500 {
        let node = tree(&mut random, 4, &TEXTS);
        let node = Node { at: 0, value: Value::Map(vec![pair("top", node)]) };
        let printed = yaml(std::slice::from_ref(&node));
        let again =
            read_all(printed.as_bytes()).unwrap_or_else(|error| panic!("{printed}\n{error}"));
        assert_eq!(bare(&again[0]), bare(&node), "{printed}");
    }
}

fn pair<'a>(key: &'a str, node: Node<'a>) -> divvy_cdi::doc::Entry<'a> {
    divvy_cdi::doc::Entry { at: 0, key: key.into(), node }
}

fn tree<'a>(random: &mut fastrand::Rng, depth: usize, texts: &[&'a str]) -> Node<'a> {
    let count = random.usize(0..4);
    let value = match random.usize(0..if depth == 0 { 2 } else { 4 }) {
        0 => Value::Str(texts[random.usize(0..texts.len())].into()),
        1 => Value::Number("12".into()),
        2 => Value::Seq((0..count).map(|_| tree(random, depth - 1, texts)).collect()),
        _ => {
            let keys = texts.iter().take(count).copied().collect::<Vec<_>>();
            Value::Map(
                keys.into_iter().map(|key| pair(key, tree(random, depth - 1, texts))).collect(),
            )
        }
    };
    Node { at: 0, value }
}
