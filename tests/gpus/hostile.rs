//! What NVML, the driver and the machine may do while divvy looks on: hang, be slow, be lost, go and
//! come back.

use std::{fs, path::PathBuf, time::Duration};

use divvy::gpu::{
    FaultKind, GpuError, Gpus, Interval, Roots,
    nvml::{Deadlines, Nvml},
};
use divvy_fake_nvml::Rule;

use super::{
    Outcome, Test, named,
    support::{self, Gpu, NEVER, SOON, eventually, fails, fake, fake_with, place},
};

const GPUS: &[Gpu] = &[("H100-80GB", true), ("A100-40GB", true), ("T4-16GB", false)];

pub(crate) fn tests() -> Vec<Test> {
    named(
        "hostile",
        &[
            ("a GPU that hangs is a fault, and keeps no other", hangs),
            ("what a slow call makes too late is undone", late),
            ("a slow GPU keeps nobody else", slow),
            ("GPUs are changed at the same time", parallel),
            ("who looks at the same time shares a look", looks),
            ("what is done is not done again in another session", done_once),
            ("GPUs that the kernel module does not list are NVML's", unlisted),
            ("what others can write is not run", untrusted),
            ("a lost GPU is a fault until it is back", lost),
            ("a driver that hangs is waited for once", driver_hangs),
            ("another driver is another inventory, without a restart", reload),
            ("GPUs come and go", come_and_go),
            ("a driver that cannot be loaded is said", unloadable),
            ("a driver root is looked into", driver_root),
            ("a node of another driver is refused", nodes),
            ("time slices that cannot be set are refused in nvidia-smi's words", time_slices),
        ],
    )
}

fn rule(call: &str, gpu: &str) -> Rule {
    Rule { call: call.to_owned(), gpu: Some(gpu.to_owned()), ..Rule::default() }
}

fn hangs() -> Outcome {
    let fake = fake_with(GPUS, Deadlines { change: NEVER, ..SOON });
    let (hung, fine) = (fake.uuid(0), fake.uuid(1));
    fake.inventory();
    fake.host.script(&[Rule { hang: true, ..rule("nvmlDeviceGetMigMode", &hung) }]).unwrap();
    let inventory = fake.inventory();
    assert_eq!(inventory.gpus.len(), 2);
    let [fault] = inventory.faults.as_slice() else { panic!("{:?}", inventory.faults) };
    assert_eq!(fault.uuid.as_deref(), Some(hung.as_str()));
    assert_eq!(fault.kind, FaultKind::Silent { call: "nvmlDeviceGetMigMode" });
    // Known to hang by now, it costs nobody any more time, and the others work on.
    fake.nvml.create_partition(&fine, "1g.5gb", place(0, 1)).unwrap();
    assert_eq!(fake.inventory().gpus[0].partitions().len(), 1);
    fails(
        fake.nvml.create_partition(&hung, "1g.10gb", place(0, 1)),
        "GPU-FAULT",
        "does not answer",
    );
    fake.host.script(&[]).unwrap();
    eventually("the GPU", || fake.inventory().faults.is_empty());
    assert_eq!(fake.inventory().gpus.len(), 3);
    // What was given up was not done behind our back.
    assert_eq!(fake.instances(), 1);
    Outcome::Done
}

fn late() -> Outcome {
    let fake = fake(GPUS);
    let gpu = fake.uuid(1);
    fake.inventory();
    let delay_ms = u64::try_from(SOON.change.as_millis()).unwrap() + 500;
    let call = "nvmlGpuInstanceCreateComputeInstance";
    fake.host.script(&[Rule { delay_ms, ..rule(call, &gpu) }]).unwrap();
    fails(fake.nvml.create_partition(&gpu, "1g.5gb", place(0, 1)), "GPU-FAULT", call);
    eventually("an empty GPU", || fake.instances() == 0);
    fake.host.script(&[]).unwrap();
    // The instance is gone a moment before the call that ends it is back.
    eventually("the GPU", || fake.inventory().faults.is_empty());
    fake.nvml.create_partition(&gpu, "1g.5gb", place(0, 1)).unwrap();
    Outcome::Done
}

fn slow() -> Outcome {
    let fake = fake_with(GPUS, Deadlines { change: NEVER, ..SOON });
    let slow = fake.uuid(0);
    fake.inventory();
    let call = "nvmlGpuInstanceDestroy";
    fake.host.script(&[Rule { hang: true, ..rule(call, &slow) }]).unwrap();
    let partition = fake.nvml.create_partition(&slow, "1g.10gb", place(0, 1)).unwrap();
    let made = support::made(&slow, &partition);
    fake.host.watch().unwrap();
    std::thread::scope(|scope| {
        let ending = scope.spawn(|| fake.nvml.destroy_partition(&made));
        eventually(call, || fake.count(call) == 1);
        // It does not come back before this one has.
        fake.nvml.create_partition(&fake.uuid(1), "1g.5gb", place(0, 1)).unwrap();
        fake.host.script(&[]).unwrap();
        ending.join().unwrap().unwrap();
    });
    assert_eq!(fake.instances(), 1);
    Outcome::Done
}

fn parallel() -> Outcome {
    let fake = fake_with(&[("H100-80GB", true); 8], Deadlines { change: NEVER, ..SOON });
    fake.inventory();
    let call = "nvmlDeviceCreateGpuInstanceWithPlacement";
    fake.host.script(&[Rule { call: call.to_owned(), hang: true, ..Rule::default() }]).unwrap();
    fake.host.watch().unwrap();
    let gpus: Vec<String> = (0..8).map(|index| fake.uuid(index)).collect();
    std::thread::scope(|scope| {
        for gpu in &gpus {
            scope.spawn(|| fake.nvml.create_partition(gpu, "7g.80gb", place(0, 8)).unwrap());
        }
        // None comes back before all are under way.
        eventually("eight calls at once", || fake.count(call) == 8);
        fake.host.script(&[]).unwrap();
    });
    assert_eq!(fake.instances(), 8);
    Outcome::Done
}

fn looks() -> Outcome {
    let fake = fake_with(&[("H100-80GB", false); 8], Deadlines { look: NEVER, ..SOON });
    fake.inventory();
    let call = "nvmlDeviceGetMigMode";
    fake.host.script(&[Rule { call: call.to_owned(), hang: true, ..Rule::default() }]).unwrap();
    fake.host.watch().unwrap();
    std::thread::scope(|scope| {
        let look = || assert_eq!(fake.inventory().gpus.len(), 8);
        scope.spawn(look);
        eventually("a look", || fake.count(call) == 8);
        for _ in 0..16 {
            scope.spawn(look);
        }
        // Long enough for all of them to ask.
        std::thread::sleep(Duration::from_secs(1));
        fake.host.script(&[]).unwrap();
    });
    // The look that was under way, and the next, for all who came meanwhile.
    assert_eq!(fake.count(call), 16);
    Outcome::Done
}

/// A change that succeeds while its session is found to be of the past is not made again.
fn done_once() -> Outcome {
    let fake = fake_with(GPUS, Deadlines { change: NEVER, ..SOON });
    let (gpu, other) = (fake.uuid(0), fake.uuid(1));
    fake.inventory();
    let call = "nvmlGpuInstanceCreateComputeInstance";
    let hangs = Rule { hang: true, ..rule(call, &gpu) };
    fake.host.script(std::slice::from_ref(&hangs)).unwrap();
    fake.host.watch().unwrap();
    std::thread::scope(|scope| {
        let making = scope.spawn(|| fake.nvml.create_partition(&gpu, "1g.10gb", place(0, 1)));
        eventually(call, || fake.count(call) == 1);
        // NVML_ERROR_UNINITIALIZED
        let past = Rule { fail: Some(1), times: Some(1), ..rule("nvmlDeviceGetMigMode", &other) };
        fake.host.script(&[hangs.clone(), past]).unwrap();
        assert_eq!(fake.inventory().gpus.len(), 3, "another session");
        fake.host.script(&[]).unwrap();
        making.join().unwrap().unwrap();
    });
    assert_eq!((fake.count(call), fake.instances()), (1, 1));
    Outcome::Done
}

fn unlisted() -> Outcome {
    let fake = fake(GPUS);
    fs::remove_dir_all(fake.host.root().join("proc/driver/nvidia/gpus")).unwrap();
    let inventory = fake.inventory();
    let pci: Vec<String> = inventory.gpus.iter().map(|gpu| gpu.pci.to_string()).collect();
    assert_eq!(pci, ["0000:1b:00.0", "0000:43:00.0", "0000:52:00.0"]);
    Outcome::Done
}

fn untrusted() -> Outcome {
    use std::os::unix::fs::PermissionsExt;
    let fake = fake(GPUS);
    let everybody = |path: &std::path::Path| {
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
    };
    everybody(&fake.host.root().join("usr/bin/nvidia-smi"));
    fails(fake.nvml.time_slice(&fake.uuid(2)), "UNTRUSTED", "usr/bin/nvidia-smi");
    let again = Nvml::open(fake.host.root(), &Roots::default(), SOON).unwrap();
    everybody(&fake.host.root().join("usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.65.06"));
    fails(again.inventory(), "UNTRUSTED", "libnvidia-ml.so.580.65.06");
    Outcome::Done
}

fn lost() -> Outcome {
    let fake = fake(GPUS);
    let gpu = fake.uuid(0);
    let partition = fake.nvml.create_partition(&gpu, "1g.10gb", place(0, 1)).unwrap();
    fake.host.change(|state| state.gpus[0].lost = true).unwrap();
    let inventory = fake.inventory();
    assert_eq!((inventory.gpus.len(), inventory.faults.len()), (2, 1));
    assert_eq!(inventory.faults[0].kind, FaultKind::Lost);
    assert_eq!(inventory.faults[0].uuid.as_deref(), Some(gpu.as_str()));
    // Whether its partition is gone cannot be known.
    fails(fake.nvml.destroy_partition(&support::made(&gpu, &partition)), "GPU-FAULT", "lost");
    fake.host.change(|state| state.gpus[0].lost = false).unwrap();
    assert_eq!(fake.inventory().gpus[0].partitions(), [partition]);
    Outcome::Done
}

fn driver_hangs() -> Outcome {
    let fake = fake(GPUS);
    let call = "nvmlInitWithFlags".to_owned();
    fake.host.script(&[Rule { call, hang: true, ..Rule::default() }]).unwrap();
    fake.host.watch().unwrap();
    for _ in 0..3 {
        fails(fake.nvml.inventory(), "GPU-FAULT", "the driver does not answer nvmlInitWithFlags");
    }
    assert_eq!(fake.host.calls().unwrap().len(), 1, "begun more than once");
    fake.host.script(&[]).unwrap();
    eventually("the driver", || fake.nvml.inventory().is_ok());
    assert_eq!(fake.inventory().gpus.len(), 3);
    Outcome::Done
}

fn reload() -> Outcome {
    let fake = fake(GPUS);
    let gpu = fake.uuid(0);
    fake.nvml.create_partition(&gpu, "1g.10gb", place(0, 1)).unwrap();
    fake.nvml.set_time_slice(&fake.uuid(2), Interval::Long).unwrap();
    fake.host.reload_driver("580.95.05").unwrap();
    let inventory = fake.inventory();
    assert_eq!(inventory.driver.version, "580.95.05");
    assert_eq!((inventory.gpus.len(), inventory.gpus[0].partitions().len()), (3, 0));
    assert_eq!(fake.nvml.time_slice(&fake.uuid(2)).unwrap(), Interval::Default);
    // Taken out and put in again, the same version: nothing shows but in the answers of NVML.
    let reload = || fake.host.change(|state| state.generation += 1).unwrap();
    reload();
    assert_eq!(fake.inventory().gpus.len(), 3);
    reload();
    let partition = fake.nvml.create_partition(&gpu, "1g.10gb", place(0, 1)).unwrap();
    reload();
    fake.nvml.destroy_partition(&support::made(&gpu, &partition)).unwrap();
    fake.host.change(|state| state.loaded = false).unwrap();
    fails(fake.nvml.inventory(), "GPU-FAULT", "Driver Not Loaded");
    fake.host.change(|state| state.loaded = true).unwrap();
    assert_eq!(fake.inventory().gpus.len(), 3);
    Outcome::Done
}

fn come_and_go() -> Outcome {
    let fake = fake(GPUS);
    let gone = fake.uuid(1);
    assert_eq!(fake.inventory().gpus.len(), 3);
    fake.host.change(|state| state.gpus[1].present = false).unwrap();
    let inventory = fake.inventory();
    assert_eq!((inventory.gpus.len(), inventory.faults.len()), (2, 0));
    fails(fake.nvml.time_slice(&gone), "NO-DEVICE", &gone);
    fake.host.change(|state| state.gpus[1].present = true).unwrap();
    assert!(fake.inventory().gpu(&gone).is_some());
    Outcome::Done
}

fn unloadable() -> Outcome {
    let folder = support::folder();
    let open = || Nvml::open(folder.path(), &Roots::default(), Deadlines::default());
    let error = open().unwrap_err();
    assert_eq!(error.code(), "NO-DRIVER");
    for place in ["usr/lib64", "run/nvidia/driver", "home/kubernetes/bin/nvidia", "sim:FILE"] {
        assert!(error.to_string().contains(place), "{error}");
    }
    let library = folder.path().join("usr/lib64/libnvidia-ml.so.1");
    fs::create_dir_all(library.parent().unwrap()).unwrap();
    support::write(&library, "no library");
    let error = open().unwrap().inventory().unwrap_err();
    assert!(matches!(error, GpuError::Library { .. }), "{error}");
    assert_eq!(error.code(), "NO-DRIVER");
    Outcome::Done
}

fn driver_root() -> Outcome {
    let fake = fake(GPUS);
    let root = fake.host.root();
    let moved = root.join("run/nvidia/driver");
    fs::create_dir_all(&moved).unwrap();
    fs::rename(root.join("usr"), moved.join("usr")).unwrap();
    let found = Nvml::open(root, &Roots::default(), SOON).unwrap();
    assert_eq!(found.inventory().unwrap().gpus.len(), 3);
    let below = |driver: PathBuf| Roots { driver: Some(driver), dev: None };
    assert!(Nvml::open(root, &below(root.join("opt")), SOON).is_err());
    let given = Nvml::open(root, &below(moved), SOON).unwrap();
    assert_eq!(given.inventory().unwrap().gpus.len(), 3);
    assert_eq!(given.address(), format!("nvml:{}", root.display()));
    Outcome::Done
}

fn nodes() -> Outcome {
    let fake = fake(GPUS);
    if let Some(why) = support::no_nodes(&fake) {
        return Outcome::Skipped(why);
    }
    let (dev, gpu) = (fake.host.root().join("dev"), fake.uuid(2));
    let make = |name: &str, major: u64, minor: u64| {
        use nix::sys::stat::{Mode, SFlag, makedev, mknod};
        let mode = Mode::from_bits_truncate(0o666);
        mknod(&dev.join(name), SFlag::S_IFCHR, mode, makedev(major, minor)).unwrap();
    };
    fs::remove_file(dev.join("nvidia2")).unwrap();
    fails(support::device_files(&fake.nvml, &gpu, None), "DEVICE-GONE", "dev/nvidia2");
    make("nvidia2", 195, 7);
    fails(
        support::device_files(&fake.nvml, &gpu, None),
        "DEVICE-CHANGED",
        "195:7, and the driver's are 195:2",
    );
    fs::remove_file(dev.join("nvidia-uvm")).unwrap();
    make("nvidia-uvm", 510, 0);
    fails(fake.nvml.driver_files(), "DEVICE-CHANGED", "510:0, and the driver's are 509:0");
    fs::remove_file(dev.join("nvidia-uvm")).unwrap();
    fails(fake.nvml.driver_files(), "DEVICE-GONE", "dev/nvidia-uvm");
    // A capability that leads to somebody else's instance since the driver was loaded again.
    let gpu = fake.uuid(1);
    let partition = fake.nvml.create_partition(&gpu, "1g.5gb", place(0, 1)).unwrap();
    fs::create_dir_all(dev.join("nvidia-caps")).unwrap();
    make("nvidia-caps/nvidia-cap147", 511, 147);
    fails(
        support::device_files(&fake.nvml, &gpu, Some(&partition.uuid)),
        "DEVICE-CHANGED",
        "nvidia-cap147",
    );
    Outcome::Done
}

fn time_slices() -> Outcome {
    let fake = fake(GPUS);
    let gpu = fake.uuid(2);
    fake.host.refuse_time_slices(&gpu).unwrap();
    for refused in
        [fake.nvml.time_slice(&gpu).map(drop), fake.nvml.set_time_slice(&gpu, Interval::Long)]
    {
        fails(refused, "CONFIG-UNSUPPORTED", "Setting time-slice is not supported");
    }
    let smi = fake.host.root().join("usr/bin/nvidia-smi");
    let kept = fs::read_to_string(&smi).unwrap();
    for (says, interval) in [
        ("|  Timeslice   |  LONG  |", Some(Interval::Long)),
        ("Default Short\nTime-slice: Medium", Some(Interval::Medium)),
        ("something else", Some(Interval::Default)),
        ("Timeslice: [N/A]", None),
        ("Not Supported", None),
    ] {
        support::write(&smi, &format!("#!/bin/sh\nprintf '%s\n' '{says}'\n"));
        assert_eq!(fake.nvml.time_slice(&gpu).ok(), interval, "{says}");
    }
    support::write(&smi, &kept);
    let slices = fake.host.root().join(".fake-nvml/timeslice");
    support::write(&slices.join(&gpu), "hang\n");
    fails(fake.nvml.time_slice(&gpu), "GPU-FAULT", "was killed");
    fs::remove_file(&smi).unwrap();
    fails(fake.nvml.time_slice(&gpu), "NO-DRIVER", "usr/bin/nvidia-smi");
    Outcome::Done
}
