//! A quantity is an amount as Kubernetes writes it: `16Gi`, `500m`, `1e3`. Kept exactly, in
//! billionths, which is as fine as Kubernetes keeps it.

use std::{cmp::Ordering, fmt, str::FromStr};

/// An amount, and whether it was written in powers of 1024: equal amounts are equal however they
/// are written.
#[derive(Debug, Clone, Copy)]
pub struct Quantity {
    nanos: i128,
    binary: bool,
}

/// Why a text is no quantity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is no quantity: a number, and behind it at most one of n u m k M G T P E, Ki Mi Gi Ti Pi Ei, or an exponent"
)]
pub struct QuantityError {
    /// The text, cut where it is long.
    text: String,
}

const NANO: i128 = 1_000_000_000;

/// Larger ones are cut to it, as in Kubernetes.
const MAX: i128 = (i64::MAX as i128) * NANO;

/// No amount needs more, and Kubernetes' own parser takes any length.
const MAX_TEXT: usize = 64;

const SUFFIXES: [(&str, i128, i128); 16] = [
    ("Ki", 1 << 10, 1),
    ("Mi", 1 << 20, 1),
    ("Gi", 1 << 30, 1),
    ("Ti", 1 << 40, 1),
    ("Pi", 1 << 50, 1),
    ("Ei", 1 << 60, 1),
    ("n", 1, 1_000_000_000),
    ("u", 1, 1_000_000),
    ("m", 1, 1_000),
    ("k", 1_000, 1),
    ("M", 1_000_000, 1),
    ("G", 1_000_000_000, 1),
    ("T", 1_000_000_000_000, 1),
    ("P", 1_000_000_000_000_000, 1),
    ("E", 1_000_000_000_000_000_000, 1),
    ("", 1, 1),
];

// === impl Quantity ===

impl Quantity {
    /// Nothing.
    pub const ZERO: Self = Self { nanos: 0, binary: false };

    /// So many pieces.
    pub const fn of(count: u32) -> Self {
        Self { nanos: (count as i128) * NANO, binary: false }
    }

    /// So many bytes, to be written in powers of 1024.
    pub fn bytes(bytes: u64) -> Self {
        Self { nanos: i128::from(bytes).saturating_mul(NANO).min(MAX), binary: true }
    }

    /// The sum, cut to what a quantity can be.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        self.with(self.nanos.saturating_add(other.nanos))
    }

    /// The difference, cut to what a quantity can be.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        self.with(self.nanos.saturating_sub(other.nanos))
    }

    /// The least of `self`, `self + step`, `self + 2 step`, … that is not below `least`. A step that
    /// is not above nothing leads nowhere: then it is `least` itself.
    #[must_use]
    pub fn step_up(self, step: Self, least: Self) -> Self {
        let missing = least.nanos.saturating_sub(self.nanos);
        if missing <= 0 {
            return self;
        }
        if step.nanos <= 0 {
            return least;
        }
        let rest = missing % step.nanos;
        let steps = missing / step.nanos + i128::from(rest != 0);
        self.with(self.nanos.saturating_add(steps.saturating_mul(step.nanos)))
    }

    /// -1, 0 or 1.
    pub fn sign(self) -> i64 {
        match self.nanos.cmp(&0) {
            Ordering::Less => -1,
            Ordering::Equal => 0,
            Ordering::Greater => 1,
        }
    }

    /// The whole number that it is, if it is one.
    pub fn integer(self) -> Option<i64> {
        match self.nanos % NANO {
            0 => i64::try_from(self.nanos / NANO).ok(),
            _ => None,
        }
    }

    /// The nearest number with a floating point.
    #[expect(clippy::cast_precision_loss, reason = "approximate is what it is asked to be")]
    pub fn approximate(self) -> f64 {
        self.nanos as f64 / NANO as f64
    }

    fn with(self, nanos: i128) -> Self {
        Self { nanos: nanos.clamp(-MAX, MAX), ..self }
    }
}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let wrong = || QuantityError { text: text.chars().take(MAX_TEXT).collect() };
        if text.len() > MAX_TEXT {
            return Err(wrong());
        }
        let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
        let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.');
        let (number, suffix) = unsigned.split_at(end.unwrap_or(unsigned.len()));
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if fraction.contains('.') || (whole.is_empty() && fraction.is_empty()) {
            return Err(wrong());
        }
        let (factor, divisor, binary) = scale(suffix).ok_or_else(wrong)?;
        let mut digits = format!("{whole}{fraction}");
        digits.truncate(digits.len().min(30));
        let lost = (whole.len() + fraction.len()).saturating_sub(digits.len());
        let value: i128 = digits.parse().map_err(|_| wrong())?;
        let places = fraction.len().saturating_sub(lost);
        // More digits before the point than 30 are beyond what a quantity can be.
        let value = if lost > fraction.len() { MAX } else { value };
        let ten = 10_i128.checked_pow(u32::try_from(places).unwrap_or(u32::MAX));
        let divisor = ten.and_then(|ten| ten.checked_mul(divisor)).ok_or_else(wrong)?;
        let nanos = scaled(value, factor, divisor).min(MAX);
        Ok(Self { nanos: if text.starts_with('-') { -nanos } else { nanos }, binary })
    }
}

/// What a suffix multiplies and divides by, and whether it is one of 1024.
fn scale(suffix: &str) -> Option<(i128, i128, bool)> {
    if let Some((name, factor, divisor)) = SUFFIXES.iter().find(|(name, ..)| *name == suffix) {
        return Some((*factor, *divisor, name.ends_with('i')));
    }
    let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    let power = 10_i128.checked_pow(exponent.unsigned_abs().min(38))?;
    Some(if exponent < 0 { (1, power, false) } else { (power, 1, false) })
}

/// `value * factor / divisor` in billionths, rounded up; what is beyond all bounds is the largest.
fn scaled(value: i128, factor: i128, divisor: i128) -> i128 {
    let product = value.checked_mul(factor);
    // Exact where it fits, and where it does not the amount is far beyond MAX unless it is divided.
    match product.and_then(|product| product.checked_mul(NANO)) {
        Some(product) => product / divisor + i128::from(product % divisor != 0),
        None => product.map_or(MAX, |p| (p / divisor).saturating_add(1).saturating_mul(NANO)),
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl fmt::Display for Quantity {
    /// The canonical form: the largest suffix with which it is a whole number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let binary = self.binary && self.nanos % (NANO * 1024) == 0;
        let mut best = (self.nanos, "n");
        for (name, factor, divisor) in SUFFIXES {
            let unit = NANO * factor / divisor;
            let known = name.ends_with('i') == binary || name.is_empty();
            if known && self.nanos % unit == 0 && (self.nanos / unit).abs() < best.0.abs() {
                best = (self.nanos / unit, name);
            }
        }
        match self.nanos {
            0 => f.write_str("0"),
            _ => write!(f, "{}{}", best.0, best.1),
        }
    }
}

impl<'de> serde::Deserialize<'de> for Quantity {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text: String = serde::Deserialize::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl serde::Serialize for Quantity {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests;
