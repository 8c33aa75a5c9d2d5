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

/// Letters to insert, delete or replace (Levenshtein); `usize::MAX` for texts too long to mistype.
pub(crate) fn distance(a: &str, b: &str) -> usize {
    if a.len() > 100 || b.len() > 100 {
        return usize::MAX;
    }
    // The distances of a prefix of `a` to every prefix of `b`.
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (cell, y) in row.iter_mut().skip(1).zip(b.bytes()) {
            let replaced = diagonal + usize::from(x != y);
            diagonal = *cell;
            left = replaced.min(diagonal + 1).min(left + 1);
            *cell = left;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests;
