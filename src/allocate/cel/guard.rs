//! A guard looks at an expression before anything recursive does: the parser's stack is ours.

/// The most bytes of an expression, as in Kubernetes.
const MAX_LENGTH: usize = 10 << 10;

/// How deep brackets may nest. Kubernetes' parser allows 250; nobody writes 50, and each level costs
/// the parser some hundred KiB of stack.
const MAX_BRACKETS: usize = 50;

/// What keeps an expression from being read, and at which byte.
pub(super) fn check(source: &str) -> Result<(), (usize, String)> {
    if source.len() > MAX_LENGTH {
        let length = source.len();
        return Err((0, format!("{length} bytes long, and may have {MAX_LENGTH}")));
    }
    let mut rest = Rest { source, at: 0 };
    let mut depth = 0_usize;
    while let Some(letter) = rest.next() {
        match letter {
            '(' | '[' | '{' => {
                depth += 1;
                if depth > MAX_BRACKETS {
                    let message = format!("brackets nest deeper than {MAX_BRACKETS}");
                    return Err((rest.at, message));
                }
            }
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            '"' | '\'' => rest.text(letter),
            '/' if rest.after().starts_with('/') => rest.line(),
            '`' => rest.until("`", true),
            _ => {}
        }
    }
    Ok(())
}

/// What is not looked at yet.
struct Rest<'a> {
    source: &'a str,
    at: usize,
}

// === impl Rest ===

impl Rest<'_> {
    fn after(&self) -> &str {
        self.source.get(self.at..).unwrap_or_default()
    }

    fn next(&mut self) -> Option<char> {
        let letter = self.after().chars().next()?;
        self.at += letter.len_utf8();
        Some(letter)
    }

    /// Passes a text over, whose first quote is read. Where it is raw a backslash escapes nothing.
    fn text(&mut self, quote: char) {
        let before = self.source.get(..self.at.saturating_sub(1)).unwrap_or_default();
        let mut prefix = before.chars().rev();
        let first = prefix.next().map(|c| c.to_ascii_lowercase());
        let second = prefix.next().map(|c| c.to_ascii_lowercase());
        let raw = first == Some('r') || (first == Some('b') && second == Some('r'));
        let triple: String = std::iter::repeat_n(quote, 3).collect();
        if self.after().starts_with(triple.get(1..).unwrap_or_default()) {
            self.at += 2;
            self.until(&triple, raw);
        } else {
            self.until(triple.get(..1).unwrap_or_default(), raw);
        }
    }

    fn line(&mut self) {
        self.until("\n", true);
    }

    /// Passes over everything up to `end` and it; all that is left where it does not come.
    fn until(&mut self, end: &str, raw: bool) {
        while !self.after().starts_with(end) {
            match self.next() {
                None => return,
                Some('\\') if !raw => {
                    self.next();
                }
                Some(_) => {}
            }
        }
        self.at += end.len();
    }
}

#[cfg(test)]
mod tests;
