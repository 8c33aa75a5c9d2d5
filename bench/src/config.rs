//! The config is a container's OCI spec as containerd's CRI plugin writes it: compact, 27 KB, the environment
//! of a namespace with 147 services, 29 mounts, the default seccomp profile.

use crate::tree::{Tree, list, text};

/// The system calls that the default seccomp profile allows.
const SYSCALLS: &str = include_str!("../data/syscalls.txt");

/// The config with these annotations added.
pub(crate) fn config(annotations: &[(&str, &str)]) -> String {
    let mut all = vec![
        ("io.kubernetes.cri.container-name", "main"),
        ("io.kubernetes.cri.container-type", "container"),
        ("io.kubernetes.cri.image-name", "registry.example.com/team/train:2.4"),
        (
            "io.kubernetes.cri.sandbox-id",
            "6b1f0c5e9d3a4f7c8b2e1d0f9a8c7b6e5d4c3b2a1f0e9d8c7b6a5f4e3d2c1b0a",
        ),
        ("io.kubernetes.cri.sandbox-name", "train-0"),
        ("io.kubernetes.cri.sandbox-namespace", "team"),
        ("io.kubernetes.cri.sandbox-uid", crate::workload::POD),
    ];
    all.extend_from_slice(annotations);
    let annotations = all.iter().map(|(key, value)| {
        let key = serde_json::Value::from(*key);
        format!("{key}:{}", serde_json::Value::from(*value))
    });
    let annotations: Vec<String> = annotations.collect();
    format!(
        r#"{{"ociVersion":"1.1.0","process":{process},"root":{{"path":"rootfs"}},"mounts":{mounts},"annotations":{{{annotations}}},"linux":{linux}}}"#,
        process = process(),
        mounts = mounts().to_json(),
        annotations = annotations.join(","),
        linux = linux(),
    )
}

fn process() -> String {
    let mut env: Vec<String> = [
        "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOSTNAME=train-0",
        "NVIDIA_VISIBLE_DEVICES=all",
        "NVIDIA_DRIVER_CAPABILITIES=compute,utility",
        "CUDA_VERSION=12.4.1",
        "LANG=C.UTF-8",
        "HOME=/root",
        "PYTHONUNBUFFERED=1",
    ]
    .map(String::from)
    .to_vec();
    for service in 0..147 {
        env.push(format!(
            "TEAM_PIPELINE_STAGE_{service:03}_SERVICE_HOST=10.96.{}.{}",
            service / 4,
            service % 250
        ));
        env.push(format!("TEAM_PIPELINE_STAGE_{service:03}_SERVICE_PORT={}", 30000 + service));
    }
    let capabilities = list([
        "CAP_CHOWN",
        "CAP_DAC_OVERRIDE",
        "CAP_FSETID",
        "CAP_FOWNER",
        "CAP_MKNOD",
        "CAP_NET_RAW",
        "CAP_SETGID",
        "CAP_SETUID",
        "CAP_SETFCAP",
        "CAP_SETPCAP",
        "CAP_NET_BIND_SERVICE",
        "CAP_SYS_CHROOT",
        "CAP_KILL",
        "CAP_AUDIT_WRITE",
    ])
    .to_json();
    format!(
        r#"{{"user":{{"uid":0,"gid":0,"additionalGids":[0,1,2,3,4,6,10,11,20,26,27]}},"args":["python3","train.py","--epochs","20"],"env":{env},"cwd":"/work","capabilities":{{"bounding":{capabilities},"effective":{capabilities},"permitted":{capabilities}}},"oomScoreAdj":1000}}"#,
        env = list(env).to_json(),
    )
}

fn mount(destination: &str, kind: &str, source: &str, options: &[&str]) -> Tree {
    Tree::Map(vec![
        ("destination", text(destination)),
        ("type", text(kind)),
        ("source", text(source)),
        ("options", list(options.iter().copied())),
    ])
}

fn mounts() -> Tree {
    let quiet = ["nosuid", "noexec", "nodev"];
    let mut mounts = vec![
        mount("/proc", "proc", "proc", &quiet),
        mount("/dev", "tmpfs", "tmpfs", &["nosuid", "strictatime", "mode=755", "size=65536k"]),
        mount(
            "/dev/pts",
            "devpts",
            "devpts",
            &["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"],
        ),
        mount("/dev/mqueue", "mqueue", "mqueue", &quiet),
        mount("/sys", "sysfs", "sysfs", &["nosuid", "noexec", "nodev", "ro"]),
        mount(
            "/sys/fs/cgroup",
            "cgroup",
            "cgroup",
            &["nosuid", "noexec", "nodev", "relatime", "ro"],
        ),
    ];
    for i in 0..23 {
        let source = format!(
            "/var/lib/kubelet/pods/{}/volumes/kubernetes.io~empty-dir/data-{i}",
            crate::workload::POD
        );
        mounts.push(mount(
            &format!("/data/volumes/data-{i:02}"),
            "bind",
            &source,
            &["rbind", "rprivate", "rw"],
        ));
    }
    Tree::List(mounts)
}

fn linux() -> String {
    let namespaces = ["pid", "ipc", "uts", "mount", "network", "cgroup"]
        .map(|kind| format!(r#"{{"type":"{kind}"}}"#))
        .join(",");
    let masked = list([
        "/proc/acpi",
        "/proc/asound",
        "/proc/kcore",
        "/proc/keys",
        "/proc/latency_stats",
        "/proc/timer_list",
        "/proc/timer_stats",
        "/proc/sched_debug",
        "/sys/firmware",
        "/proc/scsi",
    ])
    .to_json();
    let read_only =
        list(["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"]).to_json();
    let calls = list(SYSCALLS.split_whitespace()).to_json();
    format!(
        r#"{{"resources":{{"devices":[{{"allow":false,"access":"rwm"}}],"memory":{{"limit":8589934592}},"cpu":{{"shares":2048,"quota":200000,"period":100000}}}},"cgroupsPath":"kubepods-burstable-pod{pod}.slice:cri-containerd:main","namespaces":[{namespaces}],"seccomp":{{"defaultAction":"SCMP_ACT_ERRNO","architectures":["SCMP_ARCH_X86_64","SCMP_ARCH_X86","SCMP_ARCH_X32"],"syscalls":[{{"names":{calls},"action":"SCMP_ACT_ALLOW"}},{{"names":["socket"],"action":"SCMP_ACT_ALLOW","args":[{{"index":0,"value":40,"op":"SCMP_CMP_NE"}}]}},{{"names":["personality"],"action":"SCMP_ACT_ALLOW","args":[{{"index":0,"value":0,"op":"SCMP_CMP_EQ"}}]}}]}},"maskedPaths":{masked},"readonlyPaths":{read_only}}}"#,
        pod = crate::workload::POD,
    )
}
