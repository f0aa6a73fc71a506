//! "Did you mean": the known name that is closest to an unknown one.

/// More changes than this make another word of it.
const MOST_CHANGES: usize = 3;

/// The candidate that fewest changes of one character turn `name` into, if those are few. Upper and
/// lower case are the same.
pub(super) fn closest<'a>(
    name: &str,
    candidates: impl Iterator<Item = &'a str>,
) -> Option<&'a str> {
    let name = name.to_lowercase();
    candidates
        .map(|candidate| (changes(&name, &candidate.to_lowercase()), candidate))
        .filter(|&(changes, _)| changes <= MOST_CHANGES)
        .min_by_key(|&(changes, _)| changes)
        .map(|(_, candidate)| candidate)
}

/// Levenshtein's distance, row by row; a length that alone is too far off is not looked at.
fn changes(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let length = from.chars().count();
    if length.abs_diff(to.len()) > MOST_CHANGES {
        return usize::MAX;
    }
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.chars().enumerate() {
        let mut diagonal = i;
        row[0] = i + 1;
        for (j, &b) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fewest_changes_win() {
        let words = ["shuffled.listen", "shuffled.admin.listen", "shuffled.local.dirs"];
        let closest = |name| closest(name, words.into_iter());
        assert_eq!(closest("shuffled.listne"), Some("shuffled.listen"));
        assert_eq!(closest("shuffled.localdirs"), Some("shuffled.local.dirs"));
        assert_eq!(closest("Shuffled.Local.Dir"), Some("shuffled.local.dirs"));
        assert_eq!(closest("shuffled.something.else"), None);
        assert_eq!(closest(""), None);
    }

    #[test]
    fn changes_are_counted() {
        for (from, to, count) in
            [("", "", 0), ("a", "", 1), ("abc", "abd", 1), ("abc", "bc", 1), ("ab", "ba", 2)]
        {
            assert_eq!(changes(from, to), count, "{from} {to}");
        }
    }
}
