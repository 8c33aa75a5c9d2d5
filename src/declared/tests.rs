//! Files that declare devices: everything that may be in one, and each of it wrong once.

use std::{fs, path::Path};

use divvy_cdi::{host::ThisHost, problem::Problem, spec::ContainerEdits};

use super::{Declaration, DeclaredError, DeviceFile, Looked, check, decode};
use crate::publish::Attribute;

/// All that a file may say.
const WHOLE: &str = "
apiVersion: divvy.dev/v1alpha1
kind: HostDevices
driver: lab.example.com
devices:
- name: card-0
  attributes:
    family: {string: vu9p}
    lanes: {int: 16}
    sealed: {bool: false}
    shell: {version: 1.2.3-rc.1}
    resource.kubernetes.io/pciBusID: {string: '0000:81:00.0'}
  capacity:
    luts: {value: 1182k}
    memory: {value: 64Gi, requestPolicy: {default: 1Gi, validRange: {min: 1Gi, step: 1Gi}}}
    slots: {value: '4', requestPolicy: {default: '1', validValues: ['1', '2', '4']}}
  allowMultipleAllocations: true
  containerEdits:
    deviceNodes: [{path: /dev/fpga0, hostPath: /dev/null, permissions: rw}]
    mounts: [{hostPath: /tmp, containerPath: /firmware, options: [ro, rbind]}]
    env: [LAB=card-0]
    hooks: [{hookName: createRuntime, path: /bin/true}]
    netDevices: [{hostInterfaceName: lab0, name: lab0}]
    additionalGids: [44]
- name: bare
";

fn read(text: &str) -> Result<Declaration, DeclaredError> {
    decode::read(Path::new("d.yaml"), text.as_bytes())
}

fn problems(text: &str) -> Vec<Problem> {
    match read(text) {
        Err(DeclaredError::Invalid { problems }) => problems,
        other => panic!("{other:?}\n{text}"),
    }
}

#[test]
fn all_that_a_file_may_say_is_read() {
    let read = read(WHOLE).unwrap();
    assert_eq!(read.driver, "lab.example.com");
    let [card, bare] = read.devices.as_slice() else { panic!("{read:?}") };
    assert_eq!(card.published.attributes.len(), 5);
    assert_eq!(card.published.attributes["lanes"], Attribute::Int(16));
    assert_eq!(card.published.attributes["shell"].to_string(), "1.2.3-rc.1");
    assert_eq!(card.published.capacity["luts"].value, "1182k".parse().unwrap());
    assert!(card.published.allow_multiple_allocations);
    assert_eq!(card.edits.device_nodes[0].host_path(), "/dev/null");
    assert_eq!((card.edits.mounts.len(), card.edits.hooks.len()), (1, 1));
    assert_eq!((card.edits.net_devices.len(), card.edits.additional_gids.len()), (1, 1));
    assert_eq!(bare.published.name, "bare");
    assert!(bare.edits.is_empty() && !bare.published.allow_multiple_allocations);
}

#[test]
fn json_is_read_as_yaml_is() {
    let json = r#"{"apiVersion": "divvy.dev/v1alpha1", "kind": "HostDevices", "driver": "a.b",
        "devices": [{"name": "x", "containerEdits": {"env": ["A=b"]}}]}"#;
    assert_eq!(read(json).unwrap().device("x").unwrap().edits.env, ["A=b"]);
}

/// What stands there, what is to stand there instead, and what must then be said.
const WRONG: &[(&str, &str, &str)] = &[
    ("divvy.dev/v1alpha1", "divvy.dev/v2", "d.yaml:2:13: apiVersion: must be divvy.dev/v1alpha1"),
    ("HostDevices", "Devices", "kind: must be HostDevices"),
    ("kind: HostDevices\n", "", "kind is missing"),
    ("driver: lab.example.com\n", "", "driver is missing"),
    ("lab.example.com", "Lab", "driver: \"Lab\" has 'L' in it; a DNS name is wanted"),
    ("lab.example.com", "9lab.example.com", "must begin with a letter"),
    ("lab.example.com", "gpu.divvy.dev", "is the driver of GPUs"),
    ("devices:\n", "device:\n", "device: unknown field; did you mean devices?"),
    ("name: card-0", "name: Card", "d.yaml:6:9: devices[0].name: must be a DNS name"),
    ("name: card-0", "name: a.b", "devices[0].name: must be a DNS label"),
    ("name: card-0", "nam: card-0", "devices[0].nam: unknown field; did you mean name?"),
    ("name: bare", "name: card-0", "devices[1]: name \"card-0\" is there twice"),
    ("  attributes:\n", "  attributs:\n", "unknown field; did you mean attributes?"),
    ("{string: vu9p}", "vu9p", "devices[0].attributes.family: must be an object, and is a text"),
    ("{string: vu9p}", "{text: vu9p}", "family.text: unknown field; known are string, int"),
    ("{string: vu9p}", "{string: a, int: 1}", "family: exactly one of string, int"),
    ("{string: vu9p}", "{string: 7}", "family.string: the number 7 must be text"),
    ("{int: 16}", "{int: many}", "lanes.int: must be a whole number of 64 bits, and is a text"),
    ("{int: 16}", "{int: 1.5}", "lanes.int: must be a whole number of 64 bits"),
    ("{int: 16}", "{int: 9223372036854775808}", "lanes.int: must be a whole number of 64 bits"),
    ("{bool: false}", "{bool: nope}", "sealed.bool: must be a truth value, and is a text"),
    ("1.2.3-rc.1", "1.02.0", "shell.version: \"1.02.0\" is no semantic version"),
    ("lanes: {", "'la nes': {", "card-0: attributes[\"la nes\"]"),
    (
        "vu9p",
        "a123456789a123456789a123456789a123456789a123456789a123456789abcde",
        "64 bytes at most",
    ),
    ("{value: 1182k}", "1182k", "capacity.luts: must be an object, and is a text"),
    ("{value: 1182k}", "{value: lots}", "luts.value: \"lots\" is no quantity"),
    ("{value: 1182k}", "{value: -1}", "luts.value: -1 is below nothing"),
    ("{value: 1182k}", "{amount: 1}", "luts.amount: unknown field; known are value, requestPolicy"),
    ("{value: 1182k}", "{}", "capacity.luts: value is missing"),
    ("{default: 1Gi, ", "{", "memory.requestPolicy: default is missing"),
    ("validRange: {min: 1Gi, step: 1Gi}", "step: 1Gi", "requestPolicy.step: unknown field"),
    (", validRange: {min: 1Gi, step: 1Gi}", "", "exactly one of validValues, validRange"),
    ("{min: 1Gi, step: 1Gi}", "{step: 1Gi}", "validRange: min is missing"),
    (
        "{min: 1Gi, step: 1Gi}",
        "{min: 2Gi, step: 1Gi}",
        "card-0: capacity[\"memory\"].requestPolicy",
    ),
    ("['1', '2', '4']", "['2', '1']", "card-0: capacity[\"slots\"].requestPolicy"),
    ("Allocations: true", "Allocations: 1", "allowMultipleAllocations: must be a truth value"),
    ("Allocations: true", "Allocations: false", "requestPolicy: there; Kubernetes takes it with"),
    ("containerEdits", "edits", "devices[0].edits: unknown field"),
    (
        "deviceNodes: [{path",
        "deviceNode: [{path",
        "d.yaml:19:5: device \"card-0\": containerEdits: unknown field \"deviceNode\"",
    ),
    (
        "path: /dev/fpga0, ",
        "",
        "d.yaml:19:19: device \"card-0\": containerEdits.deviceNodes[0].path: is missing",
    ),
    ("path: /dev/fpga0", "path: dev/fpga0", "deviceNodes[0].path: \"dev/fpga0\" is not absolute"),
    ("permissions: rw", "permissions: x", "deviceNodes[0].permissions: \"x\": only r, w and m"),
    ("permissions: rw", "type: z", "deviceNodes[0].type: \"z\" is no device type: b, c, u or p"),
    ("hostPath: /tmp, ", "", "mounts[0].hostPath: is missing"),
    ("options: [ro, rbind]", "options: [ro]", "a mount without type needs the option bind"),
    ("[LAB=card-0]", "[LAB]", "containerEdits.env[0]: \"LAB\" is not KEY=value"),
    ("createRuntime", "prestart", "hooks[0].hookName: prestart is deprecated"),
    ("createRuntime", "soon", "hooks[0].hookName: \"soon\" is no hook"),
    ("additionalGids: [44]", "additionalGids: [wheel]", "containerEdits.additionalGids[0]"),
    ("- name: bare", "- bare", "devices[1]: must be an object, and is a text"),
    ("\ndevices:", "\n---\ndevices:", "d.yaml"),
];

#[test]
fn each_field_that_is_wrong_is_named_with_its_place_and_what_is_allowed() {
    for (there, instead, said) in WRONG {
        let text = WHOLE.replacen(there, instead, 1);
        assert_ne!(text, WHOLE, "{there}");
        let problems = problems(&text);
        let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
        assert!(lines.iter().any(|line| line.contains(said)), "{there} → {instead}\n{lines:#?}");
        assert!(problems.iter().all(|problem| problem.code == "DEVICES-INVALID"), "{lines:#?}");
    }
}

#[test]
fn every_device_that_is_wrong_is_named_at_once() {
    let text = WHOLE.replace("{int: 16}", "{int: x}").replace("name: bare", "name: BARE");
    assert_eq!(problems(&text).len(), 2);
}

#[test]
fn no_bytes_make_it_panic() {
    for end in 0..WHOLE.len() {
        if let Some(text) = WHOLE.get(..end) {
            let _read = read(text);
        }
    }
    for at in 0..WHOLE.len() {
        for byte in [b'{', b'[', b'\n', b':', 0, 0xff] {
            let mut bytes = WHOLE.as_bytes().to_vec();
            bytes[at] = byte;
            let _read = decode::read(Path::new("d.yaml"), &bytes);
        }
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test's own input")]
fn a_file_is_read_again_and_one_that_is_bad_by_then_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("d.yaml");
    fs::write(&path, WHOLE).unwrap();
    let file = DeviceFile::open(&path, "n".to_owned()).unwrap();
    assert!(matches!(file.look(), Looked::Same));
    fs::write(&path, WHOLE.replace("name: bare", "name: new")).unwrap();
    assert!(matches!(file.look(), Looked::Changed(now) if now.device("new").is_some()));
    for (bad, code) in
        [("driver: [", "DEVICES-INVALID"), (&*WHOLE.replace("lab.", "x."), "DEVICES-INVALID")]
    {
        fs::write(&path, bad).unwrap();
        match file.look() {
            Looked::Bad(error) => assert_eq!(error.code(), code),
            other => panic!("{other:?}"),
        }
        assert!(matches!(file.look(), Looked::Same), "it is said once");
        assert!(!file.is_good() && file.now().device("new").is_some());
    }
    fs::remove_file(&path).unwrap();
    assert!(matches!(file.look(), Looked::Bad(error) if error.code() == "UNREADABLE"));
    fs::write(&path, WHOLE).unwrap();
    assert!(matches!(file.look(), Looked::Changed(_)) && file.is_good());
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test's own input")]
fn a_file_that_is_bad_at_a_start_is_what_it_was_before() {
    let dir = tempfile::tempdir().unwrap();
    let (path, state) = (dir.path().join("d.yaml"), dir.path().join("state"));
    let keep = || DeviceFile::keep(&path, "n".to_owned(), &state);
    fs::write(&path, "driver: [").unwrap();
    assert_eq!(keep().unwrap_err().code(), "DEVICES-INVALID", "it was never good");
    fs::write(&path, WHOLE).unwrap();
    let file = keep().unwrap();
    fs::write(&path, WHOLE.replace("name: bare", "name: new")).unwrap();
    assert!(matches!(file.look(), Looked::Changed(_)));
    let broken = || fs::write(&path, "driver: [");
    let removed = || fs::remove_file(&path);
    for make_bad in [&broken as &dyn Fn() -> std::io::Result<()>, &removed] {
        make_bad().unwrap();
        let file = keep().unwrap();
        assert!(file.now().device("new").is_some());
        assert!(matches!(file.look(), Looked::Bad(_)) && !file.is_good());
    }
    // Another file is another's.
    let other = DeviceFile::keep(&dir.path().join("e.yaml"), "n".to_owned(), &state);
    assert_eq!(other.unwrap_err().code(), "UNREADABLE");
    let copy = fs::read_dir(state.join("devices")).unwrap().next().unwrap().unwrap().path();
    fs::write(&copy, "nothing").unwrap();
    assert_eq!(keep().unwrap_err().code(), "UNREADABLE");
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test's own input")]
fn a_file_that_others_can_write_is_not_read() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("d.yaml");
    fs::write(&path, WHOLE).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    let error = DeviceFile::open(&path, "n".to_owned()).unwrap_err();
    assert_eq!(error.code(), "UNTRUSTED");
}

#[test]
fn what_is_not_on_the_host_is_named() {
    let edits = |text: &str| -> ContainerEdits {
        let text = format!(
            "{{apiVersion: divvy.dev/v1alpha1, kind: HostDevices, driver: a.b, devices: [{{name: x, \
             containerEdits: {text}}}]}}"
        );
        read(&text).unwrap().devices.remove(0).edits
    };
    let said = |text| check("x", &edits(text), &ThisHost).map_err(|error| error.to_string());
    assert_eq!(said("{deviceNodes: [{path: /dev/null}]}"), Ok(()));
    assert_eq!(said("{deviceNodes: [{path: /dev/gone, type: c, major: 1, minor: 3}]}"), Ok(()));
    assert_eq!(said("{mounts: [{hostPath: /none, containerPath: /t, type: tmpfs}]}"), Ok(()));
    for (text, error) in [
        (
            "{deviceNodes: [{path: /a, hostPath: /dev/gone}]}",
            "x: device node /dev/gone is not there",
        ),
        ("{deviceNodes: [{path: /proc/version}]}", "x: device node /proc/version is none: a link"),
        (
            "{mounts: [{hostPath: /gone, containerPath: /g, options: [bind]}]}",
            "x: mount source /gone is not there",
        ),
    ] {
        let found = said(text).unwrap_err();
        assert!(found.starts_with(error), "{found}");
    }
}
