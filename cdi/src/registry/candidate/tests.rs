use super::{Verdict, Wanted, declared_kind};
use crate::name::QualifiedName;

fn judge(names: &[&str], text: &str) -> Verdict {
    let names: Vec<_> = names.iter().map(|name| QualifiedName::parse(name).unwrap()).collect();
    Wanted::new(&names).judge(text.as_bytes(), true)
}

#[test]
fn a_kind_in_its_usual_place_is_known() {
    for (text, kind) in [
        ("{\"cdiVersion\":\"0.5.0\",\"kind\":\"v.com/c\",", Some("v.com/c")),
        (" {\n\t\"kind\" : \"v.com/c\"\n}", Some("v.com/c")),
        ("cdiVersion: 0.5.0\nkind: v.com/c\n", Some("v.com/c")),
        ("---\n# x\n\ncdiVersion: \"0.5.0\"\r\nkind: 'v.com/c' # y\r\n", Some("v.com/c")),
        ("kind: v.com/c  \ncdi", Some("v.com/c")),
        // Cut off, or followed by what we do not know.
        ("{\"cdiVersion\":\"0.5.0\",\"kind\":\"v.com/c\"", None),
        ("{\"cdiVersion\":\"0.5.0\",\"kind\":\"v.com", None),
        ("cdiVersion: 0.5.0\nkind: v.com/c", None),
        ("{\"kind\":\"v.com\\/c\",", None),
        ("{\"devices\":[],\"kind\":\"v.com/c\"}", None),
        ("{kind: v.com/c}\n", None),
        ("kind: v.com/c#x\n", None),
        ("kind: &a v.com/c\n", None),
        ("kind: !!str v.com/c\n", None),
        ("kind: >-\n  v.com/c\n", None),
        ("kind:\n  v.com/c\n", None),
        (" kind: v.com/c\n", None),
        ("\"kind\": v.com/c\n", None),
        ("devices:\n- name: x\nkind: v.com/c\n", None),
        ("cdiVersion: |\n  x\nkind: v.com/c\n", None),
        ("%YAML 1.2\n---\nkind: v.com/c\n", None),
        ("\u{feff}kind: v.com/c\n", None),
    ] {
        assert_eq!(declared_kind(text.as_bytes()), kind.map(str::as_bytes), "{text:?}");
    }
}

#[test]
fn a_file_is_a_candidate_at_any_doubt() {
    let wanted = ["v.com/c=gpu0", "v.com/c=x", "w.com/c=y"];
    let foreign = [
        "kind: z.com/c\ndevices:\n- name: gpu0\n",
        "kind: v.com/c\ndevices:\n- name: gpu1\n",
        "kind: v.com/c\ndevices:\n- name: gpu00\n",
        "kind: v.com/c\ndevices:\n- name: y\n",
        "kind: v.com/c\ndevices: [{\"name\":\"gpu1\"}, {'name' : 'gpu1'}]\n",
        "devices:\n- name: gpu1\nkind: v.com/c\n",
        "kind: v.com/c\nannotations: {a: gpu0, names: gpu0}\n",
        "",
        "kind: v.com/c\n",
    ];
    for text in foreign {
        assert_eq!(judge(&wanted, text), Verdict::Foreign, "{text:?}");
    }
    let candidates = [
        "kind: v.com/c\ndevices:\n- name: gpu0\n",
        "kind: v.com/c\ndevices:\n- name:\n    gpu0\n",
        "kind: v.com/c\ndevices:\n- name: # why\n    gpu0\n",
        "kind: v.com/c\ndevices:\n- name: |-\n    gpu0\n",
        "kind: v.com/c\ndevices:\n- name: &a gpu0\n",
        "kind: v.com/c\ndevices:\n- name: \"gpu\\x30\"\n",
        "kind: v.com/c\ndevices:\n- \"n\\x61me\": gpu0\n",
        "kind: v.com/c\nannotations: {a: &a gpu0}\ndevices:\n- name: *a\n",
        "kind: v.com/c\nannotations: {&a name: x}\ndevices:\n- *a : gpu0\n",
        "kind: v.com/c\ndevices:\n- name: !!str gpu0\n",
        "kind: v.com/c\ndevices:\n- ? name\n  : gpu0\n",
        "kind: v.com/c\ndevices: [{name\n: gpu0}]\n",
        "kind: v.com/c\ndevices: [{name #\n: gpu0}]\n",
        "kind: v.com/c\ndevices:\n- 'name': 'gpu0'\n",
        "devices:\n- name: y\nkind: v.com/c\n",
        "{\"kind\":\"v.com/c\",\"devices\":[{\"name\"\n:\n\"gpu0\"}]}",
    ];
    for text in candidates {
        assert_eq!(judge(&wanted, text), Verdict::Candidate, "{text:?}");
    }
}

#[test]
fn the_beginning_of_a_file_tells_only_its_kind() {
    let name = [QualifiedName::parse("v.com/c=gpu0").unwrap()];
    let wanted = Wanted::new(&name);
    assert_eq!(wanted.judge(b"kind: w.com/c\n", false), Verdict::Foreign);
    assert_eq!(wanted.judge(b"kind: v.com/c\n", false), Verdict::ReadOn);
    assert_eq!(wanted.judge(b"kind: w.com", false), Verdict::ReadOn);
}
