use divvy_cdi::file::FileError;

use super::*;
use crate::journal::JournalError;

fn shown(kind: io::ErrorKind) -> String {
    let file = FileError::Io { path: "/x".into(), doing: "write", source: kind.into() };
    Failure::of("UNWRITABLE", &JournalError::File(file)).to_string()
}

#[test]
fn help_is_for_what_the_system_answered() {
    for (kind, says) in [
        (io::ErrorKind::PermissionDenied, "run it as root"),
        (io::ErrorKind::StorageFull, "free space"),
        (io::ErrorKind::ReadOnlyFilesystem, "read-only"),
    ] {
        let text = shown(kind);
        let help = text.lines().nth(1).unwrap_or_default();
        assert!(help.starts_with("  help: ") && help.contains(says), "{text}");
    }
    assert_eq!(shown(io::ErrorKind::IsADirectory).lines().count(), 1);
    assert_eq!(Failure::new("UNWRITABLE", "standard output: full").to_string().lines().count(), 1);
}

#[test]
fn a_reason_is_one_line() {
    let text = Failure::new("FAILED", "a\nb\u{1b}").to_string();
    assert_eq!(text, "error[FAILED]: a\\nb\\u{1b}\n");
}
