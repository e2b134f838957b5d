//! Rust text without its comments and strings, so that a rule finds code and not what is said about it.

/// The code of a file: comments, strings and characters become blanks, lines stay where they are.
///
/// A small lexer, not a parser: it knows line and nested block comments, strings with escapes, raw strings
/// with any number of `#`, and distinguishes a character from a lifetime.
pub(crate) fn code(text: &str) -> String {
    let mut rest = text;
    let mut code = String::with_capacity(text.len());
    let mut before = ' ';
    while let Some(first) = rest.chars().next() {
        let silent = silent_length(rest, before);
        if silent > 0 {
            code.extend(rest[..silent].chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
            rest = &rest[silent..];
            before = ' ';
        } else {
            code.push(first);
            before = first;
            rest = &rest[first.len_utf8()..];
        }
    }
    code
}

/// The lines of the code that hold `pattern`, counted from 1.
pub(crate) fn lines_with<'a>(code: &'a str, pattern: &'a str) -> impl Iterator<Item = usize> + 'a {
    code.lines().enumerate().filter(move |(_, line)| line.contains(pattern)).map(|(at, _)| at + 1)
}

/// The length in bytes of the comment, string or character that begins here; 0 for code.
fn silent_length(rest: &str, before: char) -> usize {
    if rest.starts_with("//") {
        return rest.find('\n').unwrap_or(rest.len());
    }
    if rest.starts_with("/*") {
        return block_comment(rest);
    }
    if rest.starts_with('"') {
        return quoted(rest, '"');
    }
    if rest.starts_with('\'') && is_character(rest) {
        return quoted(rest, '\'');
    }
    // `r` opens a raw string only where it does not end a name.
    if !before.is_alphanumeric() && before != '_' {
        for prefix in ["r", "br", "cr"] {
            if let Some(length) = rest.strip_prefix(prefix).and_then(raw) {
                return prefix.len() + length;
            }
        }
    }
    0
}

fn block_comment(rest: &str) -> usize {
    let bytes = rest.as_bytes();
    let (mut depth, mut at) = (0usize, 0);
    while at + 1 < bytes.len() {
        match &bytes[at..at + 2] {
            b"/*" => (depth, at) = (depth + 1, at + 2),
            b"*/" => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    rest.len()
}

fn quoted(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return at + c.len_utf8(),
            _ => {}
        }
    }
    rest.len()
}

fn is_character(rest: &str) -> bool {
    let mut chars = rest.chars().skip(1);
    match (chars.next(), chars.next()) {
        (Some('\\'), _) => true,
        (Some(_), second) => second == Some('\''),
        (None, _) => false,
    }
}

fn raw(rest: &str) -> Option<usize> {
    let hashes = rest.len() - rest.trim_start_matches('#').len();
    if !rest[hashes..].starts_with('"') {
        return None;
    }
    let closing = format!("\"{}", "#".repeat(hashes));
    let body = hashes + 1;
    Some(rest[body..].find(&closing).map_or(rest.len(), |at| body + at + closing.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_strings_are_blanked() {
        for silent in [
            "// sleep()",
            "/* sleep() /* sleep() */ sleep() */",
            "\"sleep() \\\" sleep()\"",
            "r#\"sleep() \" sleep()\"#",
            "br\"sleep()\"",
        ] {
            assert!(!code(silent).contains("sleep"), "{silent}: {}", code(silent));
        }
    }

    #[test]
    fn code_beside_it_stays() {
        assert_eq!(
            code("a(\"x\"); b('\\''); c(b'\"'); d<'a>() // e"),
            "a(   ); b(    ); c(b   ); d<'a>()     "
        );
        assert_eq!(code("for r in x {}"), "for r in x {}");
    }

    #[test]
    fn lines_are_counted_as_in_the_file() {
        let code = code("one\n\"two\nsleep()\"\nsleep()\n");
        assert_eq!(lines_with(&code, "sleep()").collect::<Vec<_>>(), [4]);
    }
}
