use super::*;

#[test]
fn numbers_by_their_spelling() {
    for (text, number) in [
        ("0", 0),
        ("-0", 0),
        ("+12", 12),
        ("0660", 432),
        ("0o660", 432),
        ("0O17", 15),
        ("0x1F", 31),
        ("-0x10", -16),
        ("0b101", 5),
        ("1_000", 1000),
        ("1e2", 100),
        ("1.0", 1),
        ("08", 8),
        ("18446744073709551615", i128::from(u64::MAX)),
        ("-9223372036854775808", i128::from(i64::MIN)),
    ] {
        assert_eq!(resolve(text.into()), Value::Number(text.into()));
        assert_eq!(integer(text), Some(number), "{text}");
    }
    for text in ["1.5", ".5", "-1.25e-3", ".inf", "-.INF", ".nan", "1e30", "+.5"] {
        assert_eq!(resolve(text.into()), Value::Number(text.into()), "{text}");
        assert_eq!(integer(text), None, "{text}");
    }
}

#[test]
fn words_that_are_no_numbers() {
    for text in [
        "-",
        "+",
        ".",
        "..",
        "--link",
        "-1-",
        "0x",
        "0xg",
        "0b2",
        "0o8",
        "1e",
        "1e400",
        "1.2.3",
        "0:3",
        "1,5",
        "--1",
        "+-1",
        "0x-1",
        "2001-01-01",
        "yes",
        "No",
        "on",
        "nul",
        "tRUE",
        "_",
        "/dev/null",
        "1 2",
        "e5",
        ".e5",
        "0000:3b:00.0",
    ] {
        assert_eq!(resolve(text.into()), Value::Str(text.into()), "{text}");
    }
}

#[test]
fn nothing_and_truth() {
    for text in ["", "~", "null", "Null", "NULL"] {
        assert_eq!(resolve(text.into()), Value::Null);
    }
    for (text, value) in [("true", true), ("TRUE", true), ("False", false)] {
        assert_eq!(resolve(text.into()), Value::Bool(value, text));
    }
}
