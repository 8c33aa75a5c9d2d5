use super::DeviceName;
use crate::gpu::PciAddress;

#[test]
fn a_name_reads_back_as_itself() {
    for name in [
        "gpu-0000-1b-00",
        "gpu-0000-df-1f-7",
        "gpu-10000-01-00",
        "gpu-0000-43-00-1g10gb-6",
        "gpu-0000-43-00-1g10gb-me-0",
        "gpu-0000-43-00-1-1g10gb-me-0",
    ] {
        assert_eq!(name.parse::<DeviceName>().unwrap().to_string(), name);
    }
}

#[test]
fn what_is_no_name_is_refused() {
    for text in [
        "",
        "gpu",
        "gpu-0",
        "gpu-0000-1b",
        "gpu-0000-1b-00-0",
        "gpu-0000-1B-00",
        "gpu-000-1b-00",
        "gpu-0000-1b-20",
        "gpu-0000-1b-00-8",
        "gpu-0000-1b-00-",
        "gpu-0000-1b-00-1g10gb",
        "gpu-0000-1b-00-1g10gb-+3",
        "gpu-0000-1b-00-1g10gb-03",
        "gpu-0000-1b-00-1g10gb-256",
        "gpu-0000-1b-00\0",
    ] {
        assert_eq!(text.parse::<DeviceName>(), Err(()), "{text:?}");
    }
}

#[test]
fn every_name_is_a_dns_label_and_fits_behind_a_uid() {
    let uid = "11111111-2222-3333-4444-555555555555";
    for model in &crate::gpu::model::MODELS {
        for profile in model.profiles {
            let pci = PciAddress { domain: 0xffff, bus: 0xff, device: 0x1f, function: 0 };
            let profile = DeviceName::label(&profile.name);
            let name = DeviceName::Partition { pci, profile, start: 7 }.to_string();
            assert!(format!("{uid}-{name}").len() <= 63, "{name}");
            assert!(
                name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'),
                "{name}"
            );
        }
    }
}
