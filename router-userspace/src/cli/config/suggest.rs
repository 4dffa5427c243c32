//! "Did you mean": the nearest known word to a misspelt one.

/// The word of `known` nearest to `written`, if it is near enough to be a slip of the keyboard.
pub(super) fn nearest<'k>(written: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    // A third of the word wrong is a slip; more is another word.
    let far = (written.len() / 3).max(1);
    known
        .into_iter()
        .map(|word| (distance(written, word), word))
        .filter(|(distance, _)| *distance <= far)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, word)| word)
}

/// Levenshtein's distance over bytes, with `-` and `_` equal and case ignored.
fn distance(a: &str, b: &str) -> usize {
    let plain = |word: &str| -> Vec<u8> {
        let dashes = word.bytes().map(|b| if b == b'-' { b'_' } else { b });
        dashes.map(|b| b.to_ascii_lowercase()).collect()
    };
    let (a, b) = (plain(a), plain(b));
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(from != to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn a_slip_finds_its_word_and_another_word_finds_none() {
        let known = ["connect", "head", "body_idle", "keep_alive"];
        assert_eq!(nearest("conect", known), Some("connect"));
        assert_eq!(nearest("keep-alive", known), Some("keep_alive"));
        assert_eq!(nearest("Body_Idel", known), Some("body_idle"));
        assert_eq!(nearest("drain", known), None);
        assert_eq!(nearest("", known), None);
    }
}
