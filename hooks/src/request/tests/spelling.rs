//! A config can be spelled in many ways, and means the same.

use serde_json::json;

use super::*;

/// A generator of numbers, the same each time (xorshift64).
struct Dice {
    state: u64,
    /// Whether characters are escaped that need not be.
    escapes: bool,
}

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state % sides
    }
}

/// The same JSON, spelled otherwise: any character may be escaped, any gap may have blanks.
fn respell(value: &serde_json::Value, dice: &mut Dice) -> String {
    use serde_json::Value;
    let blank =
        |dice: &mut Dice| [" ", "\n", "\t ", "", "", ""][usize::try_from(dice.roll(6)).unwrap()];
    let text = |text: &str, dice: &mut Dice| {
        let mut out = String::from("\"");
        for c in text.chars() {
            match (c, if dice.escapes { dice.roll(12) } else { 12 }) {
                (_, 0) => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        out.push_str(&format!("\\u{unit:04X}"));
                    }
                }
                ('/', 1..4) => out.push_str("\\/"),
                ('"' | '\\', _) => out.extend(['\\', c]),
                _ => out.push(c),
            }
        }
        out + "\""
    };
    match value {
        Value::String(value) => text(value, dice),
        Value::Array(list) => {
            let items: Vec<String> =
                list.iter().map(|item| format!("{}{}", blank(dice), respell(item, dice))).collect();
            format!("[{}{}]", items.join(","), blank(dice))
        }
        Value::Object(map) => {
            let members: Vec<String> = map
                .iter()
                .map(|(key, value)| {
                    let key = text(key, dice);
                    let (before, after) = (blank(dice), blank(dice));
                    format!("{before}{key}{after}:{}{}", blank(dice), respell(value, dice))
                })
                .collect();
            format!("{{{}{}}}", members.join(","), blank(dice))
        }
        other => other.to_string(),
    }
}

/// However a config is spelled, the request is the same, and the quick look misses none.
#[test]
fn no_spelling_of_a_config_hides_its_request() {
    let host = Host::with_pod(&boot_id().unwrap());
    host.claim(Origin::Local, "u-1", "mine");
    let env = json!({"process": {"env": ["A=\"b\"", "DIVVY_DEVICES=v.com/c=a"]}});
    let mut spoofed = crio("p-2", "main", &json!({"cdi.k8s.io/x": "v.com/c=a"}));
    spoofed["annotations"]["io.kubernetes.cri.sandbox-uid"] = "p-1".into();
    let cases = [
        ("cri", cri("p-1", "main")),
        ("cri-all", cri("p-1", "main")),
        ("not declared", cri("p-1", "main")),
        ("crio", crio("p-1", "main", &json!({"cdi.k8s.io/x": "v.com/c=a"}))),
        ("crio-all", crio("p-1", "main", &json!(null))),
        ("crio-all", spoofed),
        ("not declared", crio("p-1", "main", &json!({}))),
        ("ctr", annotated(&json!({"divvy.dev/claim": "mine", "cdi.k8s.io/x": "v.com/c=a"}))),
        ("podman", env),
        ("podman-off", annotated(&json!({"cdi.k8s.io/x": "v.com/c=a"}))),
    ];
    let mut dice = Dice { state: 0x9E37_79B9_7F4A_7C15, escapes: false };
    for (handler, config) in &cases {
        let wanted = host.request(handler, config);
        assert_ne!(wanted, Ok(Request::default()));
        for round in 0..200 {
            dice.escapes = round % 2 == 0;
            let text = respell(config, &mut dice);
            assert_eq!(host.request_of(handler, text.as_bytes()), wanted, "{handler}: {text}");
        }
    }
}
