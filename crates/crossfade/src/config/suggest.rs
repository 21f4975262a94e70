//! What the user may have meant.

/// The known name nearest to `typed`, if it is near enough to be a slip.
pub(super) fn nearest<'a>(typed: &str, known: &[&'a str]) -> Option<&'a str> {
    let slips = |name: &str| distance(&typed.to_lowercase(), &name.to_lowercase());
    let best = known.iter().copied().min_by_key(|name| slips(name))?;
    (slips(best) <= (typed.chars().count() / 3).clamp(1, 3)).then_some(best)
}

/// Insertions, deletions, replacements and swaps of neighbours that make `b` of `a`.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().take(64).collect(), b.chars().take(64).collect());
    let mut rows = vec![(0..=b.len()).collect::<Vec<usize>>()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replaced.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_recognised_and_other_words_are_not() {
        let known = ["steps", "batch", "accumulate", "flip", "log_every"];
        for (typed, meant) in [("bacth", "batch"), ("step", "steps"), ("Batch", "batch"), ("log-every", "log_every")] {
            assert_eq!(nearest(typed, &known), Some(meant));
        }
        assert_eq!(nearest("epochs", &known), None);
        assert_eq!(nearest("x", &[]), None);
        assert_eq!((distance("ab", "ba"), distance("", "abc"), distance("kitten", "sitting")), (1, 3, 3));
    }
}
