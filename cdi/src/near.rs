//! Near is a name that somebody may have meant.

/// The one of `candidates` that is the fewest typing mistakes away from `text`, if at most a third
/// of its letters are wrong; the first of equals.
pub fn nearest<'a>(text: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let allowed = |candidate: &str| candidate.len().max(3) / 3;
    candidates
        .map(|candidate| (distance(text, candidate), candidate))
        .filter(|(distance, candidate)| *distance <= allowed(candidate))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Letters to insert, delete, replace, or exchange with their neighbour (optimal string alignment);
/// `usize::MAX` for texts too long to mistype.
pub(crate) fn distance(a: &str, b: &str) -> usize {
    if a.len() > 100 || b.len() > 100 {
        return usize::MAX;
    }
    // The distances of a prefix of `a` to every prefix of `b`: of this one, of the one a letter
    // shorter, and of the one two letters shorter.
    let width = b.len() + 1;
    let (mut row, mut above) = (Vec::with_capacity(width), (0..width).collect::<Vec<_>>());
    let mut before: Vec<usize> = Vec::with_capacity(width);
    let mut x_before = None;
    for (i, x) in a.bytes().enumerate() {
        let mut left = i + 1;
        row.clear();
        row.push(left);
        let (mut y_before, mut exchanged) = (None, before.iter());
        for (pair, y) in above.windows(2).zip(b.bytes()) {
            let &[diagonal, up] = pair else { break };
            left = (diagonal + usize::from(x != y)).min(up.min(left) + 1);
            if y_before.is_some()
                && let Some(exchanged) = exchanged.next()
                && (x_before, y_before) == (Some(y), Some(x))
            {
                left = left.min(exchanged + 1);
            }
            row.push(left);
            y_before = Some(y);
        }
        x_before = Some(x);
        (before, above, row) = (above, row, before);
    }
    above.last().copied().unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests;
