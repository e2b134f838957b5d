//! The nearest known word to a misspelled one.

/// The known word nearest to `word`, if it is near enough for a misspelling.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let scored = known.into_iter().map(|candidate| (strsim::damerau_levenshtein(word, candidate), candidate));
    let (distance, candidate) = scored.min_by_key(|(distance, _)| *distance)?;
    // At most 40 % of the letters may differ.
    (distance * 10 <= word.chars().count().max(4) * 4).then_some(candidate)
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn misspelled_word_is_recognised_and_another_word_is_not() {
        assert_eq!(nearest("comand", ["command", "socket"]), Some("command"));
        assert_eq!(nearest("scoket", ["command", "socket"]), Some("socket"));
        assert_eq!(nearest("volumes", ["volume", "guest"]), Some("volume"));
        assert_eq!(nearest("frequency", ["command", "socket"]), None);
        assert_eq!(nearest("x", []), None);
    }
}
