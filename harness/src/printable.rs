//! Texts of drivers and manifests, made fit for a terminal and for the log of a CI system. Touches nothing.

use std::borrow::Cow;

use crate::lines::Change;

/// The text with every character that a terminal would act on written out, as `\u{1b}`. Lines and tabs stay.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(is_command) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\r' => safe.push_str("\\r"),
            letter if is_command(letter) => safe.extend(letter.escape_unicode()),
            letter => safe.push(letter),
        }
    }
    Cow::Owned(safe)
}

/// Control characters, C1 among them, and those that change the order in which letters are shown.
fn is_command(letter: char) -> bool {
    match letter {
        '\n' | '\t' => false,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}' | '\u{2029}' => true,
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}' => true,
        letter => letter.is_control(),
    }
}

/// Lines that are no commands of GitHub's runner, which takes those from anything that a step prints.
#[derive(Debug)]
pub struct NoCommands;

impl Change for NoCommands {
    fn change(&self, line: Vec<u8>) -> Vec<u8> {
        without_commands(&line)
    }
}

/// `::error` at the beginning of a line, and `##[error]` anywhere in it, with a space inside.
fn without_commands(line: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(line).replace("##[", "## [");
    match text.trim_start().strip_prefix("::") {
        Some(rest) => format!("{}: :{rest}", &text[..text.len() - text.trim_start().len()]).into_bytes(),
        None => text.into_bytes(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::lines::Changed;

    #[test]
    fn characters_that_a_terminal_acts_on_are_written_out() {
        for (text, safe) in [
            ("\u{1b}[2J\u{1b}]52;c;eA==\u{7}", r"\u{1b}[2J\u{1b}]52;c;eA==\u{7}"),
            ("100%\rdone\0", r"100%\rdone\u{0}"),
            ("\u{9b}31m", r"\u{9b}31m"),
            ("a\u{202e}b\u{2066}c", r"a\u{202e}b\u{2066}c"),
            ("größe\n\tünd", "größe\n\tünd"),
        ] {
            assert_eq!(printable(text), safe);
            assert_eq!(printable(safe), safe);
        }
    }

    #[test]
    fn printed_lines_are_no_commands_of_a_runner() {
        let mut out = Changed::new(Vec::new(), NoCommands);
        // Also where a line comes in parts.
        for part in ["a\n  ::err", "or file=x::y\n:", ":set-output\nx ##[command]\n", "a::b ", ": :\n"] {
            out.write_all(part.as_bytes()).unwrap();
        }
        out.flush().unwrap();
        let printed = String::from_utf8(out.into_inner()).unwrap();
        assert_eq!(printed, "a\n  : :error file=x::y\n: :set-output\nx ## [command]\na::b : :\n");
    }
}
