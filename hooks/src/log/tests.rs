use std::time::Duration;

use super::*;

#[test]
fn a_line_is_one_line_without_podmans_phrases() {
    assert_eq!(one_line("a\nb\tc\u{1b}[1m"), "a b c\u{fffd}[1m");
    let found = one_line("x: No such file or directory (os error 2); PERMISSION DENIED");
    assert_eq!(found, "x: nothing is there (os error 2); access refused");
    assert_eq!(one_line("ä Operation not permitted ö"), "ä not allowed ö");
    assert!(one_line(&"ä".repeat(10_000)).len() <= MAX_LINE + 3);
    assert_eq!(
        one_line("executable file no such file or directory"),
        "executable file nothing is there"
    );
}

#[test]
fn a_line_of_an_image_costs_no_more_than_its_beginning() {
    // Nine megabytes, of which a search for each phrase from each place would never end.
    let line = one_line(&"Permission denied ".repeat(1 << 19));
    assert!(line.starts_with("access refused access refused ") && line.len() <= MAX_LINE + 3);
}

#[test]
fn the_systems_answer_is_said_in_our_words() {
    let source = std::io::Error::from_raw_os_error(13);
    let error = file::FileError::Io { path: "/x".into(), doing: "read", source };
    assert_eq!(chain(&error), "/x: cannot read: access refused");
}

#[test]
fn the_time_is_that_of_the_calendar() {
    for (seconds, text) in [
        (0, "1970-01-01T00:00:00Z"),
        (951_782_399, "2000-02-28T23:59:59Z"),
        (951_782_400, "2000-02-29T00:00:00Z"),
        (1_709_251_200, "2024-03-01T00:00:00Z"),
        (4_107_542_400, "2100-03-01T00:00:00Z"),
    ] {
        assert_eq!(rfc3339(UNIX_EPOCH + Duration::from_secs(seconds)), text);
    }
}

#[test]
fn the_entry_is_runcs() {
    let entry: serde_json::Value = serde_json::from_str(&json_entry("a \"b\" ä")).unwrap();
    assert_eq!(entry["level"], "error");
    assert_eq!(entry["msg"], "a \"b\" ä");
    assert!(text_entry("a \"b\"").ends_with(" level=error msg=\"a \\\"b\\\"\"\n"));
}

#[test]
fn our_own_log_starts_anew() {
    let temp = tempfile::tempdir().unwrap();
    let run = temp.path().join("divvy");
    note(None, &run, "first");
    let log = run.join("hook.log");
    assert!(std::fs::read_to_string(&log).unwrap().ends_with("Z first\n"));
    std::fs::OpenOptions::new().write(true).open(&log).unwrap().set_len(MAX_LOG + 1).unwrap();
    note(None, &run, "second");
    assert!(std::fs::read_to_string(&log).unwrap().ends_with("Z second\n"));
    assert!(run.join("hook.log.1").exists());
}
