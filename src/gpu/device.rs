//! A device is what a claim can be given: a GPU, or a partition of one at one place. Its name is
//! made of the PCI address, so it stays when minors and indices change between boots.

use std::{fmt, str::FromStr};

use super::{Gpu, PciAddress, Placement, Profile};

/// A device that the node has or could make.
#[derive(Debug, Clone, Copy)]
pub enum Device<'a> {
    /// A whole GPU.
    Gpu(&'a Gpu),
    /// A MIG partition, there or not yet.
    Partition {
        /// The GPU.
        gpu: &'a Gpu,
        /// The profile.
        profile: &'a Profile,
        /// Where.
        placement: Placement,
    },
}

/// The name of a device in a pool: `gpu-0000-1b-00` is the GPU at 0000:1b:00.0, and
/// `gpu-0000-1b-00-1g10gb-4` its 1g.10gb partition that starts at memory slice 4.
///
/// A DNS label, as Kubernetes asks: the profile loses its dot, and `+` becomes `-`. And short: with
/// a claim's UID before it, it is still a CDI device name of at most 63 characters. So function 0,
/// which is every GPU's, is left out; another stands behind the device: `gpu-0000-1b-00-1`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeviceName {
    /// A whole GPU.
    Gpu {
        /// Where it sits.
        pci: PciAddress,
    },
    /// A MIG partition.
    Partition {
        /// Where its GPU sits.
        pci: PciAddress,
        /// The profile as [`DeviceName::label`] writes it.
        profile: String,
        /// First memory slice.
        start: u8,
    },
}

// === impl Device ===

impl<'a> Device<'a> {
    /// The GPU that it is, or is a part of.
    pub fn gpu(&self) -> &'a Gpu {
        match self {
            Self::Gpu(gpu) | Self::Partition { gpu, .. } => gpu,
        }
    }

    /// Its name.
    pub fn name(&self) -> DeviceName {
        let pci = self.gpu().pci;
        match self {
            Self::Gpu(_) => DeviceName::Gpu { pci },
            Self::Partition { profile, placement, .. } => DeviceName::Partition {
                pci,
                profile: DeviceName::label(&profile.name),
                start: placement.start,
            },
        }
    }
}

// === impl DeviceName ===

impl DeviceName {
    /// Where the GPU sits.
    pub fn pci(&self) -> PciAddress {
        match self {
            Self::Gpu { pci } | Self::Partition { pci, .. } => *pci,
        }
    }

    /// A profile's name as a part of a DNS label: `1g.10gb+me` → `1g10gb-me`.
    pub fn label(profile: &str) -> String {
        profile.replace('.', "").replace('+', "-")
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PciAddress { domain, bus, device, function } = self.pci();
        write!(f, "gpu-{domain:04x}-{bus:02x}-{device:02x}")?;
        if function != 0 {
            write!(f, "-{function}")?;
        }
        match self {
            Self::Gpu { .. } => Ok(()),
            Self::Partition { profile, start, .. } => write!(f, "-{profile}-{start}"),
        }
    }
}

impl FromStr for DeviceName {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let rest = text.strip_prefix("gpu-").ok_or(())?;
        let mut parts = rest.splitn(4, '-');
        let mut next = || parts.next().ok_or(());
        let (domain, bus, device) = (next()?, next()?, next()?);
        // What follows is a function of one digit, a partition, or both.
        let (function, partition) = match next().ok() {
            None => ("0", None),
            Some(function) if function.len() == 1 => (function, None),
            Some(rest) => match rest.split_once('-') {
                Some((function, rest)) if function.len() == 1 => (function, Some(rest)),
                _ => ("0", Some(rest)),
            },
        };
        let pci = format!("{domain}:{bus}:{device}.{function}").parse()?;
        let name = match partition {
            None => Self::Gpu { pci },
            Some(partition) => {
                let (profile, start) = partition.rsplit_once('-').ok_or(())?;
                let start = start.parse().map_err(|_| ())?;
                Self::Partition { pci, profile: profile.to_owned(), start }
            }
        };
        // A device has one name: `+3` and `03` parse as numbers too.
        if name.to_string() == text { Ok(name) } else { Err(()) }
    }
}

#[cfg(test)]
mod tests;
