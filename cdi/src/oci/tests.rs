use super::{Config, ConfigError};

fn parse(text: &str) -> Result<Config<'_>, ConfigError> {
    Config::parse(text.as_bytes())
}

fn refusal(text: &str) -> String {
    parse(text).expect_err(text).to_string()
}

#[test]
fn the_parts_that_edits_look_at_are_found() {
    let text = r#" {"ociVersion":"1.0.2", "annotations":{"a":"1","b\u002fc":"\"x\""},
        "process":{"env":["A=1","B=\u003c"],"user":{"uid":5,"gid":6,"x":null}},
        "linux":{"namespaces":[{"type":"mount"},{"type":"user"}]}} "#;
    let config = parse(text).unwrap();
    let annotations: Vec<_> = config.annotations().collect();
    assert_eq!(annotations, [("a".into(), "1".into()), ("b/c".into(), "\"x\"".into())]);
    assert_eq!(config.annotation("b/c").as_deref(), Some("\"x\""));
    assert_eq!(config.annotation("c"), None);
    assert_eq!(config.env().collect::<Vec<_>>(), ["A=1", "B=<"]);
    assert!(config.has_user_namespace());
    let user = config.layout().process.there().unwrap().user.there().unwrap();
    assert_eq!((user.uid, user.gid), (5, 6));
}

#[test]
fn null_is_not_there_and_nothing_is_needed() {
    for text in ["{}", r#"{"process":null,"linux":null,"annotations":null,"mounts":null}"#] {
        let config = parse(text).unwrap();
        assert_eq!(config.annotations().count() + config.env().count(), 0);
        assert!(!config.has_user_namespace());
    }
}

#[test]
fn only_json_is_a_config() {
    let bad = [
        "",
        " ",
        "[]",
        "null",
        "\u{feff}{}",
        "{",
        "{}x",
        "{} {}",
        "{,}",
        "{\"a\":1,}",
        "{\"a\"}",
        "{a:1}",
        "{'a':1}",
        "{\"a\":01}",
        "{\"a\":1.}",
        "{\"a\":.5}",
        "{\"a\":+1}",
        "{\"a\":1e}",
        "{\"a\":-}",
        "{\"a\":NaN}",
        "{\"a\":tru}",
        "{\"a\":\"\\x\"}",
        "{\"a\":\"\\u12g4\"}",
        "{\"a\":\"\t\"}",
        "{\"a\":\"",
        "{\"a\":[1,]}",
        "{\"a\":[1 2]}",
        "{\"a\":1 /* */}",
        "{\"a\":\u{a0}1}",
    ];
    for text in bad {
        parse(text).expect_err(text);
        // The oracle agrees.
        let also: Result<serde_json::Map<String, serde_json::Value>, _> =
            serde_json::from_str(text);
        also.expect_err(text);
    }
    let good = [
        "{}",
        "\t{\r\n}\n",
        r#"{"a":[],"b":{},"c":-0.5e+10,"d":1E2,"e":"\ud800\/\u00e9ü"}"#,
        r#"{"a":[[[{"b":[true,false,null]}]]]}"#,
    ];
    for text in good {
        parse(text).expect(text);
    }
    Config::parse(b"{\"a\":\"\xff\"}").expect_err("not UTF-8");
}

#[test]
fn an_error_names_its_place_and_what_is_wrong_there() {
    assert_eq!(
        refusal("{\n \"ü\": x}"),
        "line 2, column 7: expected a value, found something else"
    );
    assert_eq!(refusal("{}\n]"), "line 2, column 1: a closing bracket after the end of the config");
    assert_eq!(
        refusal(r#"{"process":{"env":"A=1"}}"#),
        "line 1, column 19: process.env must be a list, found a string"
    );
    assert_eq!(
        refusal(r#"{"process":{"env":["A=1",null]}}"#),
        "line 1, column 26: expected a string, found null"
    );
    assert_eq!(
        refusal(r#"{"mounts":{}}"#),
        "line 1, column 11: mounts must be a list, found an object"
    );
    assert_eq!(
        refusal(r#"{"process":{"user":{"uid":-1}}}"#),
        "line 1, column 27: process.user.uid must be a whole number from 0 to 4294967295"
    );
    assert_eq!(
        Config::parse(b"{\"\xc3\xa9\":\xff}").unwrap_err().to_string(),
        "line 1, column 6: not UTF-8"
    );
}

#[test]
fn wrong_types_are_refused_where_edits_would_stumble() {
    for text in [
        r#"{"annotations":{"a":1}}"#,
        r#"{"annotations":[]}"#,
        r#"{"process":[]}"#,
        r#"{"process":{"user":"root"}}"#,
        r#"{"process":{"user":{"uid":"0"}}}"#,
        r#"{"process":{"user":{"gid":1.5}}}"#,
        r#"{"process":{"user":{"additionalGids":[1,"2"]}}}"#,
        r#"{"process":{"user":{"uid":4294967296}}}"#,
        r#"{"mounts":[1]}"#,
        r#"{"mounts":[null]}"#,
        r#"{"mounts":[{"destination":1}]}"#,
        r#"{"hooks":[]}"#,
        r#"{"hooks":{"prestart":{}}}"#,
        r#"{"hooks":{"poststop":["x"]}}"#,
        r#"{"linux":"x"}"#,
        r#"{"linux":{"devices":{}}}"#,
        r#"{"linux":{"devices":[{"path":[]}]}}"#,
        r#"{"linux":{"resources":[]}}"#,
        r#"{"linux":{"resources":{"devices":{}}}}"#,
        r#"{"linux":{"namespaces":{"type":"user"}}}"#,
        r#"{"linux":{"netDevices":[]}}"#,
        r#"{"linux":{"intelRdt":[]}}"#,
    ] {
        parse(text).expect_err(text);
    }
}

#[test]
fn a_member_that_matters_must_be_there_once() {
    for text in [
        r#"{"process":{},"process":{}}"#,
        r#"{"process":{},"\u0070rocess":{}}"#,
        r#"{"mounts":null,"mounts":[]}"#,
        r#"{"annotations":{"a":"1","b":"2","a":"3"}}"#,
        r#"{"linux":{"resources":{"devices":[],"devices":[]}}}"#,
        r#"{"hooks":{"prestart":[],"prestart":[]}}"#,
        r#"{"mounts":[{"destination":"/a","destination":"/b"}]}"#,
        r#"{"linux":{"netDevices":{"a":{},"a":{}}}}"#,
    ] {
        let error = refusal(text);
        assert!(error.contains("twice"), "{error}");
    }
    parse(r#"{"root":{},"root":{}}"#).expect("not ours to judge");
}

#[test]
fn deep_and_large_is_an_error_and_no_crash() {
    let nested = |open: &str, close: &str, depth: usize| {
        format!("{{\"a\":{}1{}}}", open.repeat(depth), close.repeat(depth))
    };
    parse(&nested("[", "]", 127)).unwrap();
    for text in [
        nested("[", "]", 128),
        nested("{\"a\":", "}", 128),
        nested("[", "", 1_000_000),
        nested("{\"a\":", "", 1_000_000),
    ] {
        assert!(refusal(&text).contains("nested deeper than 128"));
    }
    let mut huge = b"{}".to_vec();
    huge.resize(super::MAX_CONFIG_BYTES + 1, b' ');
    assert!(Config::parse(&huge).unwrap_err().to_string().contains("larger than the limit"));
    let members: String = (0..300_000).map(|n| format!("\"k{n}\":\"\",")).collect();
    parse(&format!("{{\"annotations\":{{{members}\"last\":\"\"}}}}")).unwrap();
}

#[test]
fn strings_are_decoded_as_json_means_them() {
    for literal in [
        r#""""#,
        r#""plain text that is longer than a word""#,
        r#""a\"b""#,
        r#""\\\/\b\f\n\r\t""#,
        r#""\u00e9\uD83D\uDE00x""#,
        r#""1234567\"8""#,
        r#""12345678\\""#,
        r#""é\u0000ü""#,
    ] {
        let oracle: String = serde_json::from_str(literal).unwrap();
        assert_eq!(super::decode(literal), oracle, "{literal}");
        let mut written = String::new();
        super::push_string(&mut written, &oracle);
        assert_eq!(serde_json::from_str::<String>(&written).unwrap(), oracle, "{written}");
    }
    for lone in [r#""\ud800""#, r#""\ud800\u0041""#, r#""\udc00""#] {
        assert!(super::decode(lone).starts_with('\u{fffd}'), "{lone}");
    }
}

#[test]
fn control_characters_are_found_at_every_place_of_a_word() {
    for place in 0..20 {
        for bad in ['\u{0}', '\u{1f}', '\n'] {
            let mut inside = "x".repeat(20);
            inside.replace_range(place..=place, &bad.to_string());
            assert!(refusal(&format!("{{\"a\":\"{inside}\"}}")).contains("control character"));
        }
        let mut inside = "ü".repeat(20);
        inside.insert_str(place * 2, "\\\"");
        parse(&format!("{{\"a\":\"{inside}\u{7f}\u{ff}\"}}")).unwrap();
    }
}
