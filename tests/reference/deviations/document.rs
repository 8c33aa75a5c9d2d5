//! Deviations of documents: what one library takes for a spec and the other one does not.

use serde_json::Value;

use crate::{
    compare::{caught, same},
    divvy,
    go::Go,
    model::Answer,
};

/// A document that both answer differently.
struct Document<'a> {
    bytes: &'a [u8],
    go: &'a Answer,
    ours: &'a Answer,
}

type Predicate = fn(&mut Go, &Document<'_>) -> bool;

/// Id and predicate. The first that holds explains a difference.
const DEVIATIONS: [(&str, Predicate); 9] = [
    ("null", null),
    ("any-json", any_json),
    ("additional-gids", additional_gids),
    ("version-of-all", version_of_all),
    ("fraction", fraction),
    ("device-number", device_number),
    ("tag", tag),
    ("one-document", one_document),
    ("yaml-grammar", yaml_grammar),
];

/// The deviation that explains why a document is answered differently.
pub(crate) fn explain(
    library: &mut Go,
    bytes: &[u8],
    go: &Answer,
    ours: &Answer,
) -> Option<&'static str> {
    let document = Document { bytes, go, ours };
    let mut deviations = DEVIATIONS.iter();
    deviations.find(|(_, holds)| holds(library, &document)).map(|(id, _)| *id)
}

fn null(_: &mut Go, document: &Document<'_>) -> bool {
    let drops_or_dies = !matches!(document.go, Answer::Refuses(_));
    drops_or_dies && document.we_say("null is no element") || document.drops_null_keys()
}

fn any_json(library: &mut Go, document: &Document<'_>) -> bool {
    let bytes = document.bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(document.bytes);
    if document.only_we_take() && serde_json::from_slice::<Value>(bytes).is_ok() {
        return true;
    }
    // The escapes of JSON are YAML 1.2's too.
    let escapes = ["unknown escape character", "Unicode character escape code"];
    document.only_we_take()
        && escapes.iter().any(|words| document.go_says(words))
        && same(&library.parse(&without_escapes(document.bytes)), document.ours)
}

fn additional_gids(library: &mut Go, document: &Document<'_>) -> bool {
    let text = String::from_utf8_lossy(document.bytes).replace("additionalGIDs", "additionalGids");
    document.go_says("field additionalGIDs not found")
        && same(&library.parse(text.as_bytes()), document.ours)
}

fn version_of_all(library: &mut Go, document: &Document<'_>) -> bool {
    document.only_go_takes()
        && document.we_say(": declares 0.")
        && depends_on_order(library, document.bytes)
}

fn fraction(_: &mut Go, document: &Document<'_>) -> bool {
    document.only_go_takes()
        && document.we_say("is no whole number")
        && has_fraction(document.bytes)
}

/// Negative ones Go refuses too.
fn device_number(_: &mut Go, document: &Document<'_>) -> bool {
    document.only_go_takes() && document.we_say(" is no device number")
}

fn tag(library: &mut Go, document: &Document<'_>) -> bool {
    let refused = document.we_say("the tag ") || document.we_say(" is no !!");
    if document.only_go_takes() && refused {
        return document.bytes.contains(&b'!');
    }
    // `! null` is a text, and `!!int 1e3` a number without a fraction.
    let text = String::from_utf8_lossy(document.bytes);
    if document.only_we_take() && document.go_says("cannot decode") {
        let untagged = text.replace("!!int ", "");
        return same(&library.parse(untagged.as_bytes()), document.ours);
    }
    let bare = text.replace(": ! ", ": ");
    bare.as_bytes() != document.bytes
        && same(document.go, &caught(|| divvy::parse(bare.as_bytes())))
}

fn one_document(_: &mut Go, document: &Document<'_>) -> bool {
    let ours = place(document.bytes, document.ours).map(|at| &document.bytes[..at]);
    let mut cuts = first_documents(document.bytes).into_iter().chain(ours);
    document.only_go_takes() && cuts.any(|cut| same(document.go, &caught(|| divvy::parse(cut))))
}

/// Without what the grammars differ on the answers are the same, or another deviation explains
/// what is left.
fn yaml_grammar(library: &mut Go, document: &Document<'_>) -> bool {
    if document.only_go_takes() && document.we_say("neither JSON nor YAML: invalid indentation") {
        let Some(joined) = join_line(document.bytes, document.ours) else { return false };
        let ours = caught(|| divvy::parse(&joined));
        return same(document.go, &ours) || explain(library, &joined, document.go, &ours).is_some();
    }
    without_oddities(document.bytes).into_iter().any(|changed| {
        let (go, ours) = (library.parse(&changed), caught(|| divvy::parse(&changed)));
        same(&go, &ours) || explain(library, &changed, &go, &ours).is_some()
    })
}

// === impl Document ===

impl Document<'_> {
    fn only_go_takes(&self) -> bool {
        matches!((self.go, self.ours), (Answer::Accepts(_), Answer::Refuses(_)))
    }

    fn only_we_take(&self) -> bool {
        matches!((self.go, self.ours), (Answer::Refuses(_), Answer::Accepts(_)))
    }

    fn go_says(&self, words: &str) -> bool {
        matches!(self.go, Answer::Refuses(text) if text.contains(words))
    }

    fn we_say(&self, words: &str) -> bool {
        matches!(self.ours, Answer::Refuses(text) if text.contains(words))
    }

    /// Our answer without annotations whose key spells null, when that is what Go says.
    fn drops_null_keys(&self) -> bool {
        let (Answer::Accepts(go), Answer::Accepts(ours)) = (self.go, self.ours) else {
            return false;
        };
        let mut ours = ours.clone();
        let drop_keys = |of: &mut Value| {
            if let Some(Value::Object(annotations)) = of.get_mut("annotations") {
                annotations
                    .retain(|key, _| !["", "~", "null", "Null", "NULL"].contains(&key.as_str()));
            }
        };
        drop_keys(&mut ours);
        let devices = ours.get_mut("devices").and_then(Value::as_array_mut);
        devices.into_iter().flatten().for_each(drop_keys);
        divvy::plain(go) == divvy::plain(&ours)
    }
}

/// True when Go refuses the document with another device as the last one.
fn depends_on_order(library: &mut Go, bytes: &[u8]) -> bool {
    let Ok(tree) = divvy_cdi::doc::read(bytes) else { return false };
    let tree = tree.to_json();
    let count = tree["devices"].as_array().map_or(0, Vec::len);
    (0..count).any(|index| {
        let mut other = tree.clone();
        other["devices"].as_array_mut().expect("counted").swap(index, count - 1);
        let answer = library.parse(other.to_string().as_bytes());
        matches!(answer, Answer::Refuses(text) if text.contains("must be at least"))
    })
}

/// The text with `\/` and surrogate pairs written out.
fn without_escapes(bytes: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(bytes).replace("\\/", "/");
    let mut out = String::new();
    let mut rest = text.as_str();
    while let Some(at) = rest.find("\\ud") {
        let pair = rest.get(at..at + 12).unwrap_or_default();
        let char = serde_json::from_str::<String>(&format!("\"{pair}\"")).unwrap_or_default();
        let (kept, taken) = if char.is_empty() { (at + 3, 3) } else { (at, 12) };
        out.push_str(&rest[..kept]);
        out.push_str(&char);
        rest = &rest[at + taken..];
    }
    out.push_str(rest);
    out.into_bytes()
}

/// True when a number with a fraction is written somewhere.
fn has_fraction(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let mut words = text.split(|c: char| !(c.is_ascii_alphanumeric() || "+-._".contains(c)));
    words.any(|word| word.parse::<f64>().is_ok_and(|number| number.fract() != 0.0))
}

/// The beginnings of a file that could be its first document.
fn first_documents(bytes: &[u8]) -> Vec<&[u8]> {
    let mut values = serde_json::Deserializer::from_slice(bytes).into_iter::<Value>();
    let mut cuts = Vec::new();
    if values.next().is_some_and(|value| value.is_ok()) {
        cuts.push(&bytes[..values.byte_offset()]);
    }
    for at in 1..bytes.len().saturating_sub(3) {
        if bytes[at - 1] == b'\n' && [&b"---"[..], b"..."].contains(&&bytes[at..at + 3]) {
            cuts.push(&bytes[..at]);
        }
    }
    cuts
}

/// The byte that our error names.
fn place(bytes: &[u8], ours: &Answer) -> Option<usize> {
    let Answer::Refuses(text) = ours else { return None };
    let mut numbers = text.strip_prefix("spec.json:")?.split(':').map(str::parse::<usize>);
    let (line, column) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    let text = std::str::from_utf8(bytes).ok()?;
    let start: usize = text.split_inclusive('\n').take(line - 1).map(str::len).sum();
    let within =
        text[start..].char_indices().nth(column - 1).map_or(text.len() - start, |(at, _)| at);
    Some(start + within)
}

/// The text with the line that our error names put behind the one before: a flow collection may
/// go on anywhere for Go, only indented for us.
fn join_line(bytes: &[u8], ours: &Answer) -> Option<Vec<u8>> {
    let Answer::Refuses(text) = ours else { return None };
    let line: usize = text.strip_prefix("spec.json:")?.split(':').next()?.parse().ok()?;
    let text = std::str::from_utf8(bytes).ok()?;
    let mut lines: Vec<&str> = text.split('\n').collect();
    let moved = lines.get(line - 1)?.trim_start().to_owned();
    let before = format!("{} {moved}", lines.get(line.checked_sub(2)?)?);
    lines.remove(line - 1);
    lines[line - 2] = &before;
    Some(lines.join("\n").into_bytes())
}

/// A part of a line without signs that mean something at some places only.
fn unsigned(part: &str) -> String {
    let part = part.replace(['|', '>', '?', '!', '\\'], "x").replace("::", ": x");
    part.replace(":]", "x]").replace(":,", "x,").replace(":}", "x}")
}

/// The text without what not all YAML readers take alike: odd spaces and line ends, `|`,
/// `>`, `?`, `!`, `\` and a last `:` in a flow collection, a pair without a key, an end without a
/// document.
fn without_oddities(bytes: &[u8]) -> Vec<Vec<u8>> {
    const ODD: [char; 5] = ['\t', '\u{85}', '\u{2028}', '\u{2029}', '\u{feff}'];
    let Ok(text) = std::str::from_utf8(bytes) else { return Vec::new() };
    let body = text.trim_start_matches('\u{feff}');
    let mut variants = Vec::new();
    for plain in [" ", "_", ""] {
        let spaced = body.replace(ODD, plain);
        let mut repaired = String::new();
        for line in spaced.lines() {
            let content = line.trim_start();
            let header = content.trim_end_matches(['+', '-']);
            let is_header = (header.ends_with(" |") || header.ends_with(" >"))
                && !content.contains(['[', '{', ',']);
            let line = if is_header {
                line.to_owned()
            } else {
                // Quoted texts stay: what they say is not a matter of grammar.
                let parts = line.split('"').enumerate();
                let plain = parts
                    .map(|(at, part)| if at % 2 == 0 { unsigned(part) } else { part.to_owned() });
                plain.collect::<Vec<_>>().join("\"")
            };
            if content == "..." {
                continue;
            }
            if content == ":" || content.starts_with(": ") {
                repaired.push_str(&line.replacen(':', "'':", 1));
            } else {
                repaired.push_str(&line);
            }
            repaired.push('\n');
        }
        variants.extend([spaced, repaired]);
    }
    variants.retain(|variant| variant != body);
    variants.into_iter().map(String::into_bytes).collect()
}
