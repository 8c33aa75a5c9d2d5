//! Whatever a config's bytes are: an error, or a valid config that a second edit leaves alone.

use serde_json::Value;

use super::{UNCHECKED, apply, host, resolution};
use crate::oci::Config;

const CONFIG: &str = r#"{"ociVersion":"1.2.0","process":{"terminal":false,"user":{"uid":1,"gid":2,
"additionalGids":[5]},"args":["sh","-c","x\"\\\u00e9"],"env":["PATH=/bin","A=1"],"cwd":"/"},
"annotations":{"a":"b","run.oci.keep_original_groups":"1"},"hooks":{"prestart":[{"path":"/bin/a"}],
"poststop":null},"mounts":[{"destination":"/proc","type":"proc","source":"proc"},{"destination":
"/dev/a","options":["ro"]}],"linux":{"devices":[{"path":"/dev/x","type":"c","major":1,"minor":5}],
"resources":{"devices":[{"allow":false,"access":"rwm"},{"allow":true,"type":"c","major":1,"minor":3,
"access":"r"}],"pids":{"limit":-1.5e3}},"namespaces":[{"type":"mount"},{"type":"user"}],
"netDevices":{"eth1":{"name":"e1"}},"intelRdt":{"closID":"q"},"uidMappings":[{"containerID":0,
"hostID":0,"size":1}],"gidMappings":null}}"#;

const EDITS: &str = "{env: [A=2, B=3], additionalGids: [7], deviceNodes: [{path: /dev/x}], \
                     mounts: [{hostPath: /h, containerPath: /c/d, type: bind}], \
                     intelRdt: {closID: r}, hooks: [{hookName: poststop, path: /bin/h}], \
                     netDevices: [{hostInterfaceName: eth2, name: e2}]}";

#[test]
fn any_bytes_are_a_config_or_an_error() {
    let resolution = resolution(EDITS, "{mounts: [{hostPath: /g, containerPath: /g}]}");
    let host = host(&[]);
    let mut state = 0x2545_F491_4F6C_DD1D_u64;
    let mut below = |bound: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state >> 33).unwrap() % bound
    };
    let pieces = [
        "\"", "\\", "{", "}", "[", "]", ",", ":", "null", "0", "-", "\n", "\u{e9}", " ", "\"env\":",
    ];
    let (mut edited, mut refused) = (0, 0);
    for _ in 0..20_000 {
        let mut bytes = CONFIG.as_bytes().to_vec();
        for _ in 0..1 + below(3) {
            let start = below(bytes.len());
            match below(5) {
                0 => bytes[start] = u8::try_from(below(256)).unwrap(),
                1 => bytes.truncate(start.max(1)),
                2 => drop(bytes.drain(start..(start + below(40)).min(bytes.len()))),
                3 => {
                    let piece = bytes[start..(start + below(60)).min(bytes.len())].to_vec();
                    let at = below(bytes.len());
                    bytes.splice(at..at, piece);
                }
                _ => drop(bytes.splice(start..start, pieces[below(pieces.len())].bytes())),
            }
            if bytes.is_empty() {
                bytes.push(b' ');
            }
        }
        let oracle = serde_json::from_slice::<Value>(&bytes);
        let config = match Config::parse(&bytes) {
            Ok(config) => config,
            Err(error) => {
                let of_ours = ["twice", "must be", "expected a string"];
                let text = error.to_string();
                assert!(
                    oracle.is_err() || of_ours.iter().any(|part| text.contains(part)),
                    "{text}"
                );
                refused += 1;
                continue;
            }
        };
        assert!(oracle.is_ok(), "{:?}", String::from_utf8_lossy(&bytes));
        if let Ok(result) = apply(&config, &resolution, &host, UNCHECKED) {
            serde_json::from_slice::<Value>(&result.bytes).unwrap();
            let again = Config::parse(&result.bytes).unwrap();
            let twice = apply(&again, &resolution, &host, UNCHECKED).unwrap();
            assert!(twice.changes.is_empty(), "{:?}", String::from_utf8_lossy(&bytes));
            edited += 1;
        }
    }
    assert!(edited > 1000 && refused > 1000, "{edited} edited, {refused} refused");
}
