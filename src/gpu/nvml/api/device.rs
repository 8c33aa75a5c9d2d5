//! The calls about a GPU, but for MIG.

use nvml_wrapper_sys::bindings as sys;

use super::{Caller, Device, Failed, text, version};
use crate::gpu::{
    Addressing, ComputeMode, Fabric, NvLink, NvLinkPeer, PciAddress, model, nvml::read::unsupported,
};

// === impl Caller ===

impl Caller {
    /// `GPU-…`, and of a MIG device `MIG-…`.
    pub(in crate::gpu::nvml) fn uuid(&self, device: Device) -> Result<String, Failed> {
        self.text("nvmlDeviceGetUUID", |buffer, length| {
            let call = self.api.lib.nvmlDeviceGetUUID.as_ref();
            // SAFETY: a buffer of `length` bytes.
            call.map(|call| unsafe { call(device.0, buffer, length) })
        })
    }

    pub(in crate::gpu::nvml) fn product(&self, device: Device) -> Result<String, Failed> {
        self.text("nvmlDeviceGetName", |buffer, length| {
            let call = self.api.lib.nvmlDeviceGetName.as_ref();
            // SAFETY: a buffer of `length` bytes.
            call.map(|call| unsafe { call(device.0, buffer, length) })
        })
    }

    /// Changes with the MIG mode, says nvml.h of nvmlDeviceSetMigMode, so it is always asked anew.
    pub(in crate::gpu::nvml) fn minor(&self, device: Device) -> Result<u32, Failed> {
        self.value("nvmlDeviceGetMinorNumber", |place| {
            let call = self.api.lib.nvmlDeviceGetMinorNumber.as_ref();
            // SAFETY: an int to write.
            call.map(|call| unsafe { call(device.0, place) })
        })
    }

    /// As the resource attribute spells it, after go-nvlib.
    pub(in crate::gpu::nvml) fn brand(&self, device: Device) -> Result<&'static str, Failed> {
        let brand: u32 = self.value("nvmlDeviceGetBrand", |place| {
            let call = self.api.lib.nvmlDeviceGetBrand.as_ref();
            // SAFETY: an enum to write.
            call.map(|call| unsafe { call(device.0, place) })
        })?;
        Ok(match brand {
            sys::nvmlBrandType_enum_NVML_BRAND_QUADRO => "Quadro",
            sys::nvmlBrandType_enum_NVML_BRAND_TESLA => "Tesla",
            sys::nvmlBrandType_enum_NVML_BRAND_NVS => "NVS",
            sys::nvmlBrandType_enum_NVML_BRAND_GRID => "Grid",
            sys::nvmlBrandType_enum_NVML_BRAND_GEFORCE => "GeForce",
            sys::nvmlBrandType_enum_NVML_BRAND_TITAN => "Titan",
            sys::nvmlBrandType_enum_NVML_BRAND_NVIDIA_VAPPS => "NvidiaVApps",
            sys::nvmlBrandType_enum_NVML_BRAND_NVIDIA_VPC => "NvidiaVPC",
            sys::nvmlBrandType_enum_NVML_BRAND_NVIDIA_VCS => "NvidiaVCS",
            sys::nvmlBrandType_enum_NVML_BRAND_NVIDIA_VWS => "NvidiaVWS",
            sys::nvmlBrandType_enum_NVML_BRAND_NVIDIA_CLOUD_GAMING => "NvidiaCloudGaming",
            sys::nvmlBrandType_enum_NVML_BRAND_QUADRO_RTX => "QuadroRTX",
            sys::nvmlBrandType_enum_NVML_BRAND_NVIDIA_RTX => "NvidiaRTX",
            sys::nvmlBrandType_enum_NVML_BRAND_NVIDIA => "Nvidia",
            sys::nvmlBrandType_enum_NVML_BRAND_GEFORCE_RTX => "GeForceRTX",
            sys::nvmlBrandType_enum_NVML_BRAND_TITAN_RTX => "TitanRTX",
            _ => "Unknown",
        })
    }

    /// As the resource attribute spells it, after go-nvlib.
    pub(in crate::gpu::nvml) fn architecture(
        &self,
        device: Device,
    ) -> Result<&'static str, Failed> {
        let architecture: u32 = self.value("nvmlDeviceGetArchitecture", |place| {
            let call = self.api.lib.nvmlDeviceGetArchitecture.as_ref();
            // SAFETY: an int to write.
            call.map(|call| unsafe { call(device.0, place) })
        })?;
        Ok(match architecture {
            sys::NVML_DEVICE_ARCH_KEPLER => "Kepler",
            sys::NVML_DEVICE_ARCH_MAXWELL => "Maxwell",
            sys::NVML_DEVICE_ARCH_PASCAL => "Pascal",
            sys::NVML_DEVICE_ARCH_VOLTA => "Volta",
            sys::NVML_DEVICE_ARCH_TURING => "Turing",
            sys::NVML_DEVICE_ARCH_AMPERE => "Ampere",
            sys::NVML_DEVICE_ARCH_ADA => "Ada Lovelace",
            sys::NVML_DEVICE_ARCH_HOPPER => "Hopper",
            sys::NVML_DEVICE_ARCH_BLACKWELL => "Blackwell",
            _ => "Unknown",
        })
    }

    /// CUDA compute capability.
    pub(in crate::gpu::nvml) fn compute(&self, device: Device) -> Result<(u32, u32), Failed> {
        let (mut major, mut minor) = (0, 0);
        self.call("nvmlDeviceGetCudaComputeCapability", || {
            let call = self.api.lib.nvmlDeviceGetCudaComputeCapability.as_ref();
            // SAFETY: two ints to write.
            call.map(|call| unsafe { call(device.0, &raw mut major, &raw mut minor) })
        })?;
        Ok((u32::try_from(major).unwrap_or(0), u32::try_from(minor).unwrap_or(0)))
    }

    /// Bytes in all.
    pub(in crate::gpu::nvml) fn memory(&self, device: Device) -> Result<u64, Failed> {
        let mut memory = sys::nvmlMemory_t { total: 0, free: 0, used: 0 };
        self.call("nvmlDeviceGetMemoryInfo", || {
            let call = self.api.lib.nvmlDeviceGetMemoryInfo.as_ref();
            // SAFETY: a struct to write.
            call.map(|call| unsafe { call(device.0, &raw mut memory) })
        })?;
        Ok(memory.total)
    }

    pub(in crate::gpu::nvml) fn pci(&self, device: Device) -> Result<PciAddress, Failed> {
        self.pci_of("nvmlDeviceGetPciInfo_v3", |place| {
            let call = self.api.lib.nvmlDeviceGetPciInfo_v3.as_ref();
            // SAFETY: a struct to write.
            call.map(|call| unsafe { call(device.0, place) })
        })
    }

    /// `None` where the driver, or the GPU, does not say.
    pub(in crate::gpu::nvml) fn addressing(&self, device: Device) -> Option<Addressing> {
        type Mode = sys::nvmlDeviceAddressingMode_t;
        let mut mode = Mode { version: version::<Mode>(1), value: 0 };
        let asked = self.call("nvmlDeviceGetAddressingMode", || {
            let call = self.api.lib.nvmlDeviceGetAddressingMode.as_ref();
            // SAFETY: a struct to write, that says which one it is.
            call.map(|call| unsafe { call(device.0, &raw mut mode) })
        });
        asked.ok()?;
        Some(match mode.value {
            sys::nvmlDeviceAddressingModeType_t_NVML_DEVICE_ADDRESSING_MODE_HMM => Addressing::Hmm,
            sys::nvmlDeviceAddressingModeType_t_NVML_DEVICE_ADDRESSING_MODE_ATS => Addressing::Ats,
            _ => Addressing::None,
        })
    }

    /// The NVLinks that are up.
    pub(in crate::gpu::nvml) fn nvlinks(&self, device: Device) -> Vec<NvLink> {
        let links = 0..sys::NVML_NVLINK_MAX_LINKS;
        // Beyond the last link of the product, NVML answers NOT_SUPPORTED.
        let there = links.map_while(|link| Some((link, self.link_is_up(device, link).ok()?)));
        // Of those that are down another may be up.
        there.filter_map(|(link, up)| up.then(|| self.nvlink(device, link))?).collect()
    }

    /// How many NVLinks are up.
    pub(in crate::gpu::nvml) fn links_up(&self, device: Device) -> Result<u32, Failed> {
        let mut up = 0;
        for link in 0..sys::NVML_NVLINK_MAX_LINKS {
            match self.link_is_up(device, link) {
                Ok(is_up) => up += u32::from(is_up),
                Err(failed) if unsupported(&failed) => break,
                Err(failed) => return Err(failed),
            }
        }
        Ok(up)
    }

    fn link_is_up(&self, device: Device, link: u32) -> Result<bool, Failed> {
        let up: u32 = self.value("nvmlDeviceGetNvLinkState", |place| {
            let call = self.api.lib.nvmlDeviceGetNvLinkState.as_ref();
            // SAFETY: an enum to write.
            call.map(|call| unsafe { call(device.0, link, place) })
        })?;
        Ok(up == sys::nvmlEnableState_enum_NVML_FEATURE_ENABLED)
    }

    /// The most that the memory gives, in GB/s: what the width of its bus, and the highest of its clocks make of
    /// it, twice in each.
    pub(in crate::gpu::nvml) fn bandwidth(&self, device: Device) -> Result<u32, Failed> {
        let bits: u32 = self.value("nvmlDeviceGetMemoryBusWidth", |place| {
            let call = self.api.lib.nvmlDeviceGetMemoryBusWidth.as_ref();
            // SAFETY: an int to write.
            call.map(|call| unsafe { call(device.0, place) })
        })?;
        let clock = sys::nvmlClockType_enum_NVML_CLOCK_MEM;
        let megahertz: u32 = self.value("nvmlDeviceGetMaxClockInfo", |place| {
            let call = self.api.lib.nvmlDeviceGetMaxClockInfo.as_ref();
            // SAFETY: an int to write.
            call.map(|call| unsafe { call(device.0, clock, place) })
        })?;
        Ok(model::bandwidth(bits, megahertz))
    }

    fn nvlink(&self, device: Device, link: u32) -> Option<NvLink> {
        let kind: u32 = self
            .value("nvmlDeviceGetNvLinkRemoteDeviceType", |place| {
                let call = self.api.lib.nvmlDeviceGetNvLinkRemoteDeviceType.as_ref();
                // SAFETY: an enum to write.
                call.map(|call| unsafe { call(device.0, link, place) })
            })
            .ok()?;
        let pci = self.pci_of("nvmlDeviceGetNvLinkRemotePciInfo_v2", |place| {
            let call = self.api.lib.nvmlDeviceGetNvLinkRemotePciInfo_v2.as_ref();
            // SAFETY: a struct to write.
            call.map(|call| unsafe { call(device.0, link, place) })
        });
        let pci = pci.ok()?;
        let peer = match kind {
            sys::nvmlIntNvLinkDeviceType_enum_NVML_NVLINK_DEVICE_TYPE_GPU => NvLinkPeer::Gpu(pci),
            sys::nvmlIntNvLinkDeviceType_enum_NVML_NVLINK_DEVICE_TYPE_SWITCH => {
                NvLinkPeer::Switch(pci)
            }
            _ => NvLinkPeer::Other(pci),
        };
        Some(NvLink { link, peer })
    }

    pub(in crate::gpu::nvml) fn fabric(&self, device: Device) -> Fabric {
        type Info = sys::nvmlGpuFabricInfo_v3_t;
        // The third version, and where the driver is older the second: the first fields are the same.
        let asked = [3, 2].into_iter().find_map(|number| {
            let length = if number == 3 { version::<Info>(3) } else { SECOND_FABRIC_INFO };
            let mut info = Info {
                version: length,
                clusterUuid: [0; 16],
                status: 0,
                cliqueId: 0,
                state: 0,
                healthMask: 0,
                healthSummary: 0,
            };
            let call = self.call("nvmlDeviceGetGpuFabricInfoV", || {
                let call = self.api.lib.nvmlDeviceGetGpuFabricInfoV.as_ref();
                // SAFETY: a struct to write, that says which one it is, and is as long as the longest.
                call.map(|call| unsafe { call(device.0, &raw mut info) })
            });
            call.is_ok().then_some(info)
        });
        let Some(info) = asked else { return Fabric::None };
        match u32::from(info.state) {
            sys::NVML_GPU_FABRIC_STATE_NOT_STARTED => Fabric::NotStarted,
            sys::NVML_GPU_FABRIC_STATE_IN_PROGRESS => Fabric::InProgress,
            sys::NVML_GPU_FABRIC_STATE_COMPLETED if info.status == 0 => Fabric::Registered {
                cluster: uuid::Uuid::from_bytes(info.clusterUuid).to_string(),
                clique: info.cliqueId,
            },
            sys::NVML_GPU_FABRIC_STATE_COMPLETED => {
                Fabric::Failed { why: format!("NVML status {}", info.status) }
            }
            _ => Fabric::None,
        }
    }

    pub(in crate::gpu::nvml) fn compute_mode(&self, device: Device) -> Result<ComputeMode, Failed> {
        let mode: u32 = self.value("nvmlDeviceGetComputeMode", |place| {
            let call = self.api.lib.nvmlDeviceGetComputeMode.as_ref();
            // SAFETY: an enum to write.
            call.map(|call| unsafe { call(device.0, place) })
        })?;
        Ok(match mode {
            // EXCLUSIVE_THREAD is gone, and is EXCLUSIVE_PROCESS where it is still said.
            1 | sys::nvmlComputeMode_enum_NVML_COMPUTEMODE_EXCLUSIVE_PROCESS => {
                ComputeMode::ExclusiveProcess
            }
            sys::nvmlComputeMode_enum_NVML_COMPUTEMODE_PROHIBITED => ComputeMode::Prohibited,
            _ => ComputeMode::Default,
        })
    }

    /// Root's alone; lost when the driver is loaded again.
    pub(in crate::gpu::nvml) fn set_compute_mode(
        &self,
        device: Device,
        mode: ComputeMode,
    ) -> Result<(), Failed> {
        let mode = match mode {
            ComputeMode::Default => sys::nvmlComputeMode_enum_NVML_COMPUTEMODE_DEFAULT,
            ComputeMode::ExclusiveProcess => {
                sys::nvmlComputeMode_enum_NVML_COMPUTEMODE_EXCLUSIVE_PROCESS
            }
            ComputeMode::Prohibited => sys::nvmlComputeMode_enum_NVML_COMPUTEMODE_PROHIBITED,
        };
        self.call("nvmlDeviceSetComputeMode", || {
            let call = self.api.lib.nvmlDeviceSetComputeMode.as_ref();
            // SAFETY: takes a handle and a number.
            call.map(|call| unsafe { call(device.0, mode) })
        })
    }

    fn pci_of<E>(
        &self,
        name: &'static str,
        call: impl FnOnce(*mut sys::nvmlPciInfo_t) -> Result<sys::nvmlReturn_t, E>,
    ) -> Result<PciAddress, Failed> {
        let mut pci = sys::nvmlPciInfo_t {
            busIdLegacy: [0; 16],
            domain: 0,
            bus: 0,
            device: 0,
            pciDeviceId: 0,
            pciSubSystemId: 0,
            busId: [0; 32],
        };
        self.call(name, || call(&raw mut pci))?;
        // NVML's own text always ends in function 0, which is every GPU's.
        let byte = |number: u32| u8::try_from(number).unwrap_or(u8::MAX);
        let (bus, device) = (byte(pci.bus), byte(pci.device));
        let said = text(&pci.busId);
        let function = said.rsplit_once('.').and_then(|(_, last)| last.parse().ok()).unwrap_or(0);
        Ok(PciAddress { domain: pci.domain, bus, device, function })
    }
}

/// `nvmlGpuFabricInfo_v2`, which lacks the third's last field.
const SECOND_FABRIC_INFO: u32 = 36 | 2 << 24;
