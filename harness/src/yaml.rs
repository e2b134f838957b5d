//! Checks of a text before a YAML parser reads it. Touches nothing.

/// The deepest nesting of lists and maps. The parser's time grows with the square of the depth, and the parser checks its
/// own limit too late.
const DEPTH: usize = 64;

/// A text that is nested too deep for the parser.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("lists and maps lie more than {DEPTH} deep in each other")]
pub struct TooDeep {
    /// The first line that is too deep, from 1.
    pub line: usize,
}

/// The text without the byte order mark that some editors write.
pub fn without_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

/// Refuses a text whose brackets, or dashes at the start of a line, are nested too deep. Takes linear time.
///
/// # Errors
/// At the first line that is too deep.
pub fn check_depth(text: &str) -> Result<(), TooDeep> {
    let (mut depth, mut quote) = (0usize, None);
    for (index, line) in text.lines().enumerate() {
        let too_deep = Err(TooDeep { line: index + 1 });
        if line == "---" || line.starts_with("--- ") || line == "..." {
            (depth, quote) = (0, None);
        }
        if depth == 0 && line.split_whitespace().take_while(|word| matches!(*word, "-" | "?")).count() > DEPTH
        {
            return too_deep;
        }
        let mut before = ' ';
        let mut letters = line.chars();
        while let Some(letter) = letters.next() {
            // A quote opens a quoted text only after one of these; elsewhere it is part of a word.
            let begins = matches!(before, ' ' | '\t' | '[' | '{' | ',' | ':');
            match (quote, letter) {
                (Some('"'), '\\') => drop(letters.next()),
                (Some(open), close) if open == close => quote = None,
                (Some(_), _) => {}
                (None, '"' | '\'') if begins => quote = Some(letter),
                (None, '#') if matches!(before, ' ' | '\t') => break,
                (None, '[' | '{') => depth += 1,
                (None, ']' | '}') => depth = depth.saturating_sub(1),
                (None, _) => {}
            }
            if depth > DEPTH {
                return too_deep;
            }
            before = letter;
        }
        // Outside of brackets a quoted text rarely continues on the next line, and a lone quote must not hide the lines
        // after it from this check.
        if depth == 0 {
            quote = None;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_is_counted_outside_of_texts() {
        let nested = |depth: usize| format!("a: 1\nb: {}1{}\n", "{a: ".repeat(depth), "}".repeat(depth));
        assert_eq!(check_depth(&nested(DEPTH)), Ok(()));
        assert_eq!(check_depth(&nested(DEPTH + 1)), Err(TooDeep { line: 2 }));
        assert_eq!(check_depth(&"- ".repeat(DEPTH + 1)), Err(TooDeep { line: 1 }));
        let text = format!("a: \"{}\"\nb: '{}' # {}\n", "[".repeat(99), "{".repeat(99), "[".repeat(99));
        assert_eq!(check_depth(&text), Ok(()));
        assert_eq!(check_depth(&"a: [1, 2]\n---\nb: don't [\n--- \n".repeat(99)), Ok(()));
    }

    #[test]
    fn deep_text_is_refused_at_its_first_deep_line() {
        let text = "[\n".repeat(1 << 20);
        assert_eq!(check_depth(&text), Err(TooDeep { line: DEPTH + 1 }));
    }
}
