use super::*;

#[test]
fn what_is_certain_is_kept() {
    let optional = "[handlers.x]\nengine = 'cri'\nrequire_record = false";
    for (broken, dir) in [
        ("bogus = 1", None),
        ("bogus = 1\nrun_dir  = \"/x/y\" # moved", Some("/x/y")),
        ("bogus = 1\n\"run_dir\" = '''/x/y'''", Some("/x/y")),
        ("runtimes = []\nrun_dir = \"/x/\\u0079\"", Some("/x/y")),
        ("log = 'relative'\nspec_dirs = 'x'\nhandlers.y.engine = 'crii'", None),
        ("handlers.y = { anotations = true }", None),
    ] {
        let salvage = Salvage::of(&format!("{broken}\n{optional}"));
        assert!(salvage.is_optional("x") && !salvage.is_optional("y"), "{broken}");
        assert_eq!(salvage.run_dir, dir.map(PathBuf::from), "{broken}");
    }
}

#[test]
fn in_any_doubt_records_are_required() {
    let optional = "[handlers.x]\nengine = 'cri'\nrequire_record = false";
    for broken in [
        "= [",
        "run_dir = '/x",
        "run_dir = /x",
        "run_dir : '/x'",
        "run_dir = 7",
        "run_dir = 'x'",
        "run_dir = ['/x']",
        "run_dir = '/x'\nrun_dir = '/y'",
        "run-dir = '/x'",
        "Run_dir = '/x'",
        "rundir = ['/x']",
        "[other]\nrun_dir = '/x'",
        "[handlers.y]\nrun_dir = '/x'",
        "[handlers.y]\nengine = 'cri'\nrequire_record = 'false'",
    ] {
        assert!(!Salvage::of(&format!("{broken}\n{optional}")).is_optional("x"), "{broken}");
    }
    // Below its table, where it is most easily added.
    assert!(!Salvage::of(&format!("{optional}\nrun_dir = '/x'")).is_optional("x"));
}

#[test]
fn a_handler_requires_records_unless_it_says_otherwise() {
    for text in [
        "",
        "bogus = 1",
        "[handlers.x]\nengine = 'cri'\nbogus = 1",
        "[handlers.x]\nengine = 'podman'\nbogus = 1",
        "[handlers.x]\nengine = 'cri'\nrequire-record = false",
        "[handlers.x]\nengine = 'cri'\nrequire_record = 0",
        "[handlers.x]\nengine = 'cri'\nrequire_record = true\nbogus = 1",
        "[handlers.y]\nengine = 'cri'\nrequire_record = false\nbogus = 1",
        "#[handlers.x]\n#require_record = false",
        "[Handlers.x]\nrequire_record = false",
    ] {
        assert!(!Salvage::of(text).is_optional("x"), "{text}");
    }
}
