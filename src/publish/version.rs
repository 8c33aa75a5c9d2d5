//! A version as Kubernetes takes one: strictly semantic. Drivers number theirs more freely.

use semver::{BuildMetadata, Version};

/// A version with what a driver's lacks or has too much: `580.65.06` → `580.65.6`, `13.0` →
/// `13.0.0`, `v1.2` → `1.2.0`. A fourth number, which a semantic version has no place for, becomes
/// build metadata. None for what is no version at all.
pub fn normalized(text: &str) -> Option<Version> {
    let text = text.strip_prefix(['v', 'V']).unwrap_or(text);
    if let Ok(version) = Version::parse(text) {
        return Some(version);
    }
    let end = text.find(['-', '+']).unwrap_or(text.len());
    let (numbers, rest) = text.split_at(end);
    let mut parts = numbers.split('.');
    let mut number = || -> Option<u64> {
        let Some(part) = parts.next() else { return Some(0) };
        let digits = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        if digits { part.parse().ok() } else { None }
    };
    let (major, minor, patch) = (number()?, number()?, number()?);
    let more: Vec<&str> = parts.collect();
    let mut version = Version::parse(&format!("{major}.{minor}.{patch}{rest}")).ok()?;
    if !more.is_empty() && version.build.is_empty() {
        version.build = BuildMetadata::new(&more.join(".")).ok()?;
    }
    Some(version)
}
