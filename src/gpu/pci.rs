//! A PCI address is where a GPU sits.

use std::{fmt, str::FromStr};

/// `dddd:bb:dd.f`
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PciAddress {
    /// Domain; beyond 16 bits behind some bridges.
    pub domain: u32,
    /// Bus.
    pub bus: u8,
    /// Device, 0 to 31.
    pub device: u8,
    /// Function, 0 to 7.
    pub function: u8,
}

// === impl PciAddress ===

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { domain, bus, device, function } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function}")
    }
}

impl FromStr for PciAddress {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let hex = |part: &str| u32::from_str_radix(part, 16).ok();
        let parse = || {
            let (domain, rest) = text.split_once(':')?;
            let (bus, rest) = rest.split_once(':')?;
            let (device, function) = rest.split_once('.')?;
            let address = Self {
                domain: hex(domain)?,
                bus: u8::try_from(hex(bus)?).ok()?,
                device: u8::try_from(hex(device)?).ok().filter(|&device| device < 32)?,
                function: u8::try_from(hex(function)?).ok().filter(|&function| function < 8)?,
            };
            // One address has one spelling.
            (address.to_string() == text).then_some(address)
        };
        parse().ok_or(())
    }
}
