use super::*;

fn text(value: &str) -> Value {
    Value::Text(value.to_owned())
}

#[test]
fn every_form_of_a_key_has_its_path_and_line() {
    let entries = read(
        "a = 'x'\n\
         b.c = [ \"y\\u00e4\", # comment\n  '''z''', ]\n\
         [t.\"q r\"]\n\
         d = true\n\
         e = { f = 1, g.h = false }\n\
         i = 2026-01-02\n",
    );
    let found: Vec<_> = entries
        .unwrap()
        .into_iter()
        .map(|Entry { line, path, value }| (line, path.join("/"), value))
        .collect();
    let wanted = [
        (1, "a", text("x")),
        (3, "b/c", Value::List(vec![text("yä"), text("z")])),
        (4, "t/q r", Value::Table),
        (5, "t/q r/d", Value::Bool(true)),
        (6, "t/q r/e", Value::Table),
        (6, "t/q r/e/f", Value::Other),
        (6, "t/q r/e/g/h", Value::Bool(false)),
        (7, "t/q r/i", Value::Other),
    ];
    assert_eq!(found, wanted.map(|(line, path, value)| (line, path.to_owned(), value)));
}

#[test]
fn what_is_no_toml_is_an_error_with_its_line() {
    for (text, line) in [
        ("\na", 2),
        ("a =", 1),
        ("\n\na = 'x", 3),
        ("a = 'x'\na = 'y'", 2),
        ("[a]\n[a]", 2),
        ("a = { b = 1 }\n[a]", 2),
        ("[a\nb = 1", 1),
        ("a = \"\\q\"", 1),
        ("a = [[1]]", 1),
        ("a = [{}]", 1),
        ("[[a]]", 1),
        ("\u{0}", 1),
        ("a = nonsense", 1),
    ] {
        let (found, why) = read(text).unwrap_err();
        assert_eq!(found, Some(line), "{text:?}: {why}");
        assert!(!why.is_empty());
    }
    for deep in ["[", "{a="] {
        let text = format!("a = {}", deep.repeat(100_000));
        assert!(read(&text).is_err());
    }
}

fn flatten(path: &[String], value: &::toml::Value, found: &mut Vec<(Vec<String>, Value)>) {
    let simple = |value: &::toml::Value| match value {
        ::toml::Value::String(value) => text(value),
        ::toml::Value::Boolean(value) => Value::Bool(*value),
        _ => Value::Other,
    };
    match value {
        ::toml::Value::Table(table) => {
            for (key, value) in table {
                flatten(&[path, std::slice::from_ref(key)].concat(), value, found);
            }
        }
        ::toml::Value::Array(list) => {
            found.push((path.to_vec(), Value::List(list.iter().map(simple).collect())));
        }
        value => found.push((path.to_vec(), simple(value))),
    }
}

/// Whatever the crate `toml` takes has the same keys and values here.
#[test]
fn it_agrees_with_the_crate_toml() {
    let pieces = [
        "a = 1",
        "a.b = 'x'",
        "[a]",
        "[a.b]",
        "b = [1, 2,]",
        "c = {}",
        "c = { d = 1, e = ['x'] }",
        "# x",
        "\"\" = 0",
        "'a' = 1",
        "a = ",
        "= 1",
        "]",
        "a = 1 b = 2",
        "d = \"\"\"\nx\"\"\"",
        "e = [\n1\n]",
        "f = true # t",
        "g = TRUE",
        "h = 1_0",
        "\t",
        "i = \"\\u12\"",
        "j = 1.5e3",
        "k = 07:32:00",
        "l.m.n = \"\\t\\U0001F600\"",
    ];
    let mut agreed = 0;
    for first in pieces {
        for second in pieces {
            for third in ["", "b = 1", "[c]", "a.c = 1", "[l.m]\no = 'p'"] {
                let text = format!("{first}\n{second}\n{third}\n");
                let Ok(table) = ::toml::from_str::<::toml::Table>(&text) else { continue };
                let mut wanted = Vec::new();
                flatten(&[], &::toml::Value::Table(table), &mut wanted);
                let mut found: Vec<_> = read(&text)
                    .unwrap_or_else(|error| panic!("{text:?}: {error:?}"))
                    .into_iter()
                    .filter(|entry| entry.value != Value::Table)
                    .map(|entry| (entry.path, entry.value))
                    .collect();
                found.sort_by(|a, b| a.0.cmp(&b.0));
                wanted.sort_by(|a, b| a.0.cmp(&b.0));
                assert_eq!(found, wanted, "{text:?}");
                agreed += 1;
            }
        }
    }
    assert!(agreed > 500, "{agreed}");
}
