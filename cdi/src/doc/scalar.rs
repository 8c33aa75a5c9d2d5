//! A plain scalar is an unquoted word of YAML; what it means follows from its spelling, by the
//! rules of go-yaml v3, which the Go reference reads specs with.

use std::borrow::Cow;

use super::{Value, tape::Kind};

/// What the unquoted `text` is where nothing says what is wanted.
pub(super) fn kind(text: &str) -> Kind {
    // The first byte alone tells the most of them.
    match text.as_bytes().first() {
        None => Kind::Null,
        Some(b'0'..=b'9' | b'+' | b'-' | b'.') if is_number(text) => Kind::Number,
        Some(b'~' | b'n' | b'N' | b't' | b'T' | b'f' | b'F') if text.len() <= 5 => match text {
            "~" | "null" | "Null" | "NULL" => Kind::Null,
            "true" | "True" | "TRUE" => Kind::True,
            "false" | "False" | "FALSE" => Kind::False,
            _ => Kind::Plain,
        },
        Some(_) => Kind::Plain,
    }
}

/// [`kind`], as a value.
pub(super) fn resolve(text: Cow<'_, str>) -> Value<'_> {
    match kind(&text) {
        Kind::Null => Value::Null,
        kind @ (Kind::True | Kind::False) => {
            let spellings = ["true", "True", "TRUE", "false", "False", "FALSE"];
            let spelling = spellings.into_iter().find(|spelling| *spelling == text);
            Value::Bool(kind == Kind::True, spelling.unwrap_or_default())
        }
        Kind::Number => Value::Number(text),
        Kind::Plain | Kind::Quoted | Kind::Seq | Kind::Map => Value::Str(text),
    }
}

/// The whole number that a [`Value::Number`] spells: decimal, `0x`, `0o` or a leading `0` (octal),
/// `0b`, underscores anywhere, or a float without fraction. `None` for anything else.
pub(super) fn integer(text: &str) -> Option<i128> {
    if is_decimal(text) {
        let number = text.bytes().fold(0, |number, c| number * 10 + u64::from(c - b'0'));
        return Some(i128::from(number));
    }
    let plain = without_underscores(text);
    if let Some(number) = int(&plain) {
        return Some(number);
    }
    let number = float(&plain)?;
    if number.fract() != 0.0 || number.abs() >= 9_007_199_254_740_992.0 {
        return None;
    }
    // Printed without fraction or exponent, and below 2^53 exact.
    format!("{number:.0}").parse().ok()
}

/// A number as nearly all are, and short enough for 64 bits.
fn is_decimal(text: &str) -> bool {
    let has_zero_first = text.len() > 1 && text.starts_with('0');
    (1..19).contains(&text.len()) && !has_zero_first && text.bytes().all(|c| c.is_ascii_digit())
}

/// The number that a [`Value::Number`] spells; infinities and NaN included.
pub(super) fn number(text: &str) -> Option<f64> {
    let plain = without_underscores(text);
    float(&plain)
}

fn is_number(text: &str) -> bool {
    if is_decimal(text) {
        return true;
    }
    if is_infinite(text) {
        return true;
    }
    if text.starts_with('.') {
        return float(text).is_some();
    }
    // The second byte tells options (`--link`) from numbers.
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if !unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.' || c == '_') {
        return false;
    }
    let plain = without_underscores(text);
    int(&plain).is_some() || float(&plain).is_some()
}

fn is_infinite(text: &str) -> bool {
    matches!(text, ".nan" | ".NaN" | ".NAN")
        || matches!(text.strip_prefix(['+', '-']).unwrap_or(text), ".inf" | ".Inf" | ".INF")
}

fn without_underscores(text: &str) -> Cow<'_, str> {
    if text.contains('_') { Cow::Owned(text.replace('_', "")) } else { Cow::Borrowed(text) }
}

/// Go's `ParseInt(text, 0, 64)`, then `ParseUint`.
fn int(text: &str) -> Option<i128> {
    let (negative, unsigned) = match text.as_bytes().first()? {
        b'-' => (true, text.get(1..)?),
        b'+' => (false, text.get(1..)?),
        _ => (false, text),
    };
    let radix = |prefix: [&str; 2]| prefix.iter().find_map(|p| unsigned.strip_prefix(p));
    let (digits, base) = if let Some(digits) = radix(["0x", "0X"]) {
        (digits, 16)
    } else if let Some(digits) = radix(["0o", "0O"]) {
        (digits, 8)
    } else if let Some(digits) = radix(["0b", "0B"]) {
        (digits, 2)
    } else if unsigned.len() > 1 && unsigned.starts_with('0') {
        (unsigned, 8)
    } else {
        (unsigned, 10)
    };
    // from_str_radix takes a second sign.
    if digits.is_empty() || !digits.bytes().all(|c| c.is_ascii_hexdigit()) {
        return None;
    }
    let magnitude = i128::from(u64::from_str_radix(digits, base).ok()?);
    let number = if negative { -magnitude } else { magnitude };
    // With a sign only what fits in 64 bits signed.
    let signed = text.starts_with(['+', '-']);
    (!signed || i64::try_from(number).is_ok()).then_some(number)
}

/// `[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`, not beyond the range of a float.
fn float(text: &str) -> Option<f64> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (unsigned, None),
    };
    let digits = |text: &str| text.bytes().all(|c| c.is_ascii_digit());
    let mantissa_is_good = match mantissa.split_once('.') {
        None => !mantissa.is_empty() && digits(mantissa),
        Some((whole, part)) => digits(whole) && digits(part) && mantissa.len() > 1,
    };
    let exponent_is_good = exponent.is_none_or(|exponent| {
        let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        !exponent.is_empty() && digits(exponent)
    });
    if !mantissa_is_good || !exponent_is_good {
        return None;
    }
    text.parse().ok().filter(|number: &f64| number.is_finite())
}

#[cfg(test)]
mod tests;
