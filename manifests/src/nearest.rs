//! The nearest known name to a misspelled one.

/// Longer names are not compared.
const LONGEST: usize = 64;

/// Returns the candidate that takes the fewest edits to become `name`, if these are few enough for
/// a typo: about a third of the name, and at least one is allowed.
#[must_use]
pub fn nearest<'c>(name: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    let distances = candidates.into_iter().filter_map(|candidate| {
        let edits = distance(name.as_bytes(), candidate.as_bytes())?;
        (edits <= ((name.len() + 1) / 3).max(1)).then_some((edits, candidate))
    });
    distances
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, candidate)| candidate)
}

/// Returns the Levenshtein distance, one row of its table at a time: row i holds the distances of
/// the first i letters of `left`, each the least of three edits (replace, take out, put in).
fn distance(left: &[u8], right: &[u8]) -> Option<usize> {
    let mut row: [usize; LONGEST + 1] = core::array::from_fn(|column| column);
    let row = row.get_mut(..=right.len());
    let row = row.filter(|_| left.len() <= LONGEST)?;
    for (line, a) in left.iter().enumerate() {
        let mut diagonal = line;
        let (first, cells) = row.split_first_mut()?;
        *first = line + 1;
        let mut before = *first;
        for (cell, b) in cells.iter_mut().zip(right) {
            // Names are in lower case, and nobody means two by one in capitals.
            let replaced = diagonal + usize::from(!a.eq_ignore_ascii_case(b));
            diagonal = *cell;
            *cell = replaced.min(diagonal + 1).min(before + 1);
            before = *cell;
        }
    }
    row.last().copied()
}

#[cfg(test)]
mod tests;
