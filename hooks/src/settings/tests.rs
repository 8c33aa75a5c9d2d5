use super::*;

fn parse(text: &str) -> Result<Settings, String> {
    Settings::parse(Path::new("/c.toml"), text.as_bytes()).map_err(|error| error.to_string())
}

#[test]
fn an_empty_file_says_nothing() {
    assert_eq!(parse("").unwrap(), Settings::default());
    let absent = Settings::read(Path::new("/nonexistent/config.toml")).unwrap();
    assert_eq!(absent, Settings::default());
}

#[test]
fn the_documented_example_is_valid_and_has_every_key() {
    let example = include_str!("../../config/config.toml");
    let settings = parse(example).unwrap();
    assert!(settings.handlers.contains_key("divvy-runtime"));
    // Each key is shown, set or as a comment.
    for key in
        ["runtimes", "spec_dirs", "run_dir", "log", "engine", "require_record", "annotations"]
    {
        assert!(example.contains(&format!("{key} = ")), "{key}");
    }
    // And every line that is a comment of a key is valid as a line.
    let set: String = example
        .lines()
        .map(|line| match line.strip_prefix("#") {
            Some(key) if !key.starts_with(' ') => format!("{key}\n"),
            _ => format!("{line}\n"),
        })
        .collect();
    let settings = parse(&set).unwrap();
    assert_eq!(settings.handlers.len(), 6, "{set}");
}

#[test]
fn what_pods_bring_is_on_and_what_a_person_brings_is_off() {
    let text = "handlers.a.engine = 'cri'\nhandlers.b.engine = 'podman'";
    let handlers = parse(text).unwrap().handlers;
    assert!(handlers["a"].require_record && handlers["a"].annotations);
    assert!(!handlers["b"].require_record && !handlers["b"].annotations);
}

#[test]
fn an_error_names_the_key_and_the_line() {
    for (text, says) in [
        ("run_dir = '/x'\nrun_dri = '/y'", "/c.toml:2: run_dri: unknown key"),
        (
            "[handlers.x]\nengine = 'cri'\nrequired = 1",
            "/c.toml:3: handlers.x.required: unknown key",
        ),
        (
            "[handlers.x]\nengine = 'kata'",
            "/c.toml:2: handlers.x.engine: \"kata\" is none of cri, crio",
        ),
        ("[handlers.x]\nannotations = true", "/c.toml:2: handlers.x.engine: missing"),
        ("\nruntimes = '/usr/bin/runc'", "/c.toml:2: runtimes: expected a list"),
        ("a = ", "/c.toml:1: "),
        ("run_dir = '/x'\nrun_dir = '/y'", "/c.toml:2: duplicate key run_dir"),
        ("run_dir = 'x'", "/c.toml:1: run_dir: \"x\" is no absolute path"),
        ("runtimes = []", "/c.toml:1: runtimes: empty"),
        ("[handlers.x]\nengine = 'ctr'\nruntime = 'runc'", "/c.toml:3: handlers.x.runtime: "),
        (
            "[handlers.x]\nengine = 'ctr'\nrequire_record = true",
            "/c.toml:3: handlers.x.require_record: ",
        ),
        (
            "[handlers.x]\nengine = 'cri'\nenvironment = ['A']",
            "/c.toml:3: handlers.x.environment: ",
        ),
        ("[handlers.x]\nengine = 'docker'\nenvironment = ['A=']", "handlers.x.environment: "),
        ("[handlers.'a/b']\nengine = 'cri'", "no path"),
    ] {
        let error = parse(text).unwrap_err();
        assert!(error.contains(says), "{text:?}: {error}");
        assert!(!error.contains('\n'), "{error}");
    }
    let error = Settings::parse(Path::new("/c.toml"), b"\n\xff").unwrap_err();
    assert_eq!(error.to_string(), "configuration /c.toml:2: not UTF-8");
}
