//! The lookup finds what a full scan finds, whatever the directories hold.

use std::{fs, os::unix::fs::symlink, path::Path};

use super::super::{quick, resolve};
use crate::{file::Trust, name::QualifiedName, registry::Registry};

const KINDS: [&str; 3] = ["v.com/a", "v.com/b", "w.com/a"];
const NAMES: [&str; 9] = ["x", "y", "gpu0", "gpu00", "8", "10", "true", "1e3", "name"];

/// Numbers that are the same in each run (xorshift).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap() % bound
    }

    fn one_of<'a>(&mut self, list: &[&'a str]) -> &'a str {
        list[self.below(list.len())]
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}

/// A device's name as a document may write it.
fn spelled(n: &mut Numbers, name: &str) -> String {
    let hex: String = name.bytes().map(|byte| format!("\\x{byte:02x}")).collect();
    let other = match name {
        "8" => "010",
        "10" => "0xa",
        "true" => "yes",
        "1e3" => "'1e3'",
        _ => name,
    };
    match n.below(14) {
        0 => format!("'{name}'"),
        1 => format!("\"{hex}\""),
        2 => format!("!!str {name}"),
        3 => format!("&z{} {name}", n.below(1000)),
        4 => format!("# {name}\n      {name}"),
        5 => format!("\n      {name}"),
        6 => format!("|-\n      {name}"),
        7 => other.to_owned(),
        8 => format!("{name} # x"),
        9 => format!("{name}\r"),
        _ => format!("\"{name}\""),
    }
}

/// A document of lines, most of them valid.
fn block(n: &mut Numbers) -> String {
    let mut text = n
        .one_of(&["", "", "---\n", "# name: x\n", "\u{feff}", " \n", "%YAML 1.2\n---\n"])
        .to_owned();
    let kind = n.one_of(&KINDS);
    let kind = match n.below(8) {
        0 => format!("'kind': {kind}\n"),
        1 => format!("kind: \"{kind}\"  # w.com/a\n"),
        2 => format!("kind: !!str {kind}\n"),
        3 => format!("kind:\n  {kind}\n"),
        _ => format!("kind: {kind}\n"),
    };
    let kind_last = n.chance(20);
    text.push_str("cdiVersion: 0.6.0\n");
    if !kind_last {
        text.push_str(&kind);
    }
    if n.chance(20) {
        let (name, value) = (n.one_of(&NAMES), n.one_of(&NAMES));
        text.push_str(&format!("annotations: {{name: &a{name} \"{value}\", k: \"name: x\"}}\n"));
    }
    text.push_str("devices:\n");
    let mut used = Vec::new();
    for _ in 0..1 + n.below(6) {
        let name = n.one_of(&NAMES);
        if used.contains(&name) && n.chance(90) {
            continue;
        }
        used.push(name);
        let spelled = spelled(n, name);
        let line = match n.below(10) {
            0 => format!("- ? name\n  : {spelled}\n"),
            1 => format!("- \"n\\x61me\": {spelled}\n"),
            2 => format!("- 'name'  :   {spelled}\n"),
            _ => format!("- name: {spelled}\n"),
        };
        text.push_str(&line);
        text.push_str(&format!("  containerEdits: {{env: [E={}]}}\n", n.below(1000)));
    }
    if kind_last {
        text.push_str(&kind);
    }
    text
}

fn flow(n: &mut Numbers) -> String {
    let blank = n.one_of(&["", "", " ", "\n", "\n  ", "\t"]);
    let kind = n.one_of(&KINDS).replace('/', n.one_of(&["/", "/", "\\/", "\\u002f"]));
    let mut devices = Vec::new();
    for _ in 0..1 + n.below(6) {
        let name = n.one_of(&NAMES);
        let name = match n.below(6) {
            0 => format!("\"\\u{:04x}{}\"", u32::from(name.as_bytes()[0]), &name[1..]),
            1 => name.to_owned(),
            _ => format!("\"{name}\""),
        };
        let key = n.one_of(&["\"name\"", "\"name\"", "\"name\"", "name", "\"n\\u0061me\""]);
        let env = n.below(1000);
        devices.push(format!(
            "{{{key}{blank}:{blank}{name},\"containerEdits\":{{\"env\":[\"E={env}\"]}}}}"
        ));
    }
    let mut members = vec![
        format!("\"cdiVersion\"{blank}:{blank}\"0.6.0\""),
        format!("\"kind\"{blank}:{blank}\"{kind}\""),
        format!("\"devices\":[{}]", devices.join(",")),
    ];
    if n.chance(20) {
        let first = n.below(members.len());
        members.swap(0, first);
    }
    if n.chance(5) {
        members.push(format!("\"kind\":\"{}\"", n.one_of(&KINDS)));
    }
    format!("{blank}{{{blank}{}}}", members.join(&format!(",{blank}")))
}

fn document(n: &mut Numbers) -> Vec<u8> {
    let mut text = if n.chance(50) { block(n) } else { flow(n) };
    if n.chance(4) {
        // More than the first look shows.
        let padding = format!("{}\n", "# name: y".repeat(1000 + n.below(1000)));
        text = if n.chance(50) { format!("{padding}{text}") } else { format!("{text}\n{padding}") };
    }
    let mut bytes = text.into_bytes();
    if n.chance(4) {
        let end = n.below(bytes.len());
        bytes.truncate(end);
    }
    if n.chance(6) && !bytes.is_empty() {
        let at = n.below(bytes.len());
        bytes[at] = n.one_of(&["&", "*", "\"", "\n", ":", "x", "\0", "\\"]).as_bytes()[0];
    }
    bytes
}

fn fill(n: &mut Numbers, dir: &Path) {
    fs::create_dir(dir).unwrap();
    for index in 0..n.below(6) {
        let extension = n.one_of(&["json", "yaml", "yaml", "yml"]);
        let path = dir.join(format!("{index}.{extension}"));
        match n.below(20) {
            0 => fs::create_dir(path).unwrap(),
            1 => symlink(n.one_of(&["0.yaml", "nowhere", "."]), path).unwrap(),
            _ => {
                #[allow(clippy::disallowed_methods, reason = "a fresh folder of this test")]
                fs::write(path, document(n)).unwrap();
            }
        }
    }
}

#[test]
fn lookup_equals_a_full_scan() {
    let mut n = Numbers(0x9E37_79B9_7F4A_7C15);
    let (mut found, mut missing) = (0, 0);
    for _ in 0..120 {
        let folder = tempfile::tempdir().unwrap();
        let dirs = ["a", "b", "c"].map(|name| folder.path().join(name));
        for dir in &dirs {
            if n.chance(90) {
                fill(&mut n, dir);
            }
        }
        let registry = Registry::scan(&dirs, &Trust::Any);
        for _ in 0..12 {
            let mut name = || {
                let name = format!("{}={}", n.one_of(&KINDS), n.one_of(&NAMES));
                QualifiedName::parse(&name).unwrap()
            };
            let (first, second) = (name(), name());
            for names in [vec![first.clone()], vec![first.clone(), second, first]] {
                let full = resolve(&registry, &names).ok();
                let count = if full.is_some() { &mut found } else { &mut missing };
                *count += 1;
                let quick = quick(&dirs, &names, &Trust::Any);
                if quick != full {
                    let kept = folder.keep();
                    panic!("{names:?} in {}: {quick:?}, not {full:?}", kept.display());
                }
            }
        }
    }
    // Both are worth something only if both happen.
    assert!(found > 400 && missing > 400, "{found} found, {missing} missing");
}
