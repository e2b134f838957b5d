//! Lines fitted to the width of a terminal. Asks the terminal for its width and touches nothing else.
//!
//! A line is broken between words only. A path, an id, the text between two backticks or a command stays whole: if it is
//! wider than the terminal it gets a line of its own, to be copied from there.

use std::os::fd::AsFd;

use harness::lines::Change;
use terminal_size::{Width, terminal_size_of};
use textwrap::core::{Word, display_width};
use textwrap::wrap_algorithms::wrap_first_fit;

/// Below this width nothing is wrapped: there is no room for an indent and a word.
const NARROWEST: usize = 20;

/// Lines that fit the width of a terminal; without one they stay as they are.
#[derive(Debug)]
pub struct Fit(Option<usize>);

impl Fit {
    pub fn to(width: Option<usize>) -> Self {
        Self(width.filter(|width| *width >= NARROWEST))
    }
}

impl Change for Fit {
    fn change(&self, line: Vec<u8>) -> Vec<u8> {
        let Some(width) = self.0 else { return line };
        let text = String::from_utf8_lossy(&line);
        let (text, end) = text.strip_suffix('\n').map_or((&*text, ""), |text| (text, "\n"));
        (fitted(text, width) + end).into_bytes()
    }
}

/// The width of the lines of a stream: `COLUMNS` if it is a number, else the width of the terminal, if it is one.
pub fn width_of(stream: impl AsFd) -> Option<usize> {
    let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.trim().parse().ok());
    columns.or_else(|| terminal_size_of(stream).map(|(Width(width), _)| usize::from(width)))
}

/// The text with each of its lines fitted to the width.
pub fn fit(text: &str, width: Option<usize>) -> String {
    match width.filter(|width| *width >= NARROWEST) {
        Some(width) => text.split('\n').map(|line| fitted(line, width)).collect::<Vec<_>>().join("\n"),
        None => text.to_owned(),
    }
}

/// A line, broken into as many as it needs. The lines after the first one begin below its text.
fn fitted(line: &str, width: usize) -> String {
    if display_width(line) <= width {
        return line.to_owned();
    }
    let widest = width * 2 / 5;
    let plain = anstream::adapter::strip_str(line).to_string();
    let leading = plain.len() - plain.trim_start_matches(' ').len();
    let indent = indent(&plain, widest).unwrap_or(leading.min(widest));
    let (head, rest) = line.split_at(at_column(line, indent.max(leading)));
    let (mut head, text) = match leading > indent {
        true => (" ".repeat(indent), rest),
        false => (head.to_owned(), rest),
    };
    let words: Vec<Word<'_>> = tokens(text).into_iter().map(Word::from).collect();
    let room = (width - indent) as f64;
    let mut lines = vec![];
    for words in wrap_first_fit(&words, &[room]) {
        let mut line: String = words.iter().map(|word| [word.word, word.whitespace].concat()).collect();
        line.truncate(line.trim_end_matches(' ').len());
        let begin = std::mem::replace(&mut head, " ".repeat(indent));
        // It is wider than the room below the text. What stands before it has a line of its own as well.
        if display_width(&line) as f64 > room && indent > 2 {
            if !begin.trim().is_empty() {
                lines.push(begin.trim_end().to_owned());
            }
            lines.push(format!("  {line}"));
        } else {
            lines.push(begin + &line);
        }
    }
    lines.join("\n")
}

/// The column at which the text of a line begins, behind its label and other columns, if that is not beyond `widest`.
fn indent(plain: &str, widest: usize) -> Option<usize> {
    let columns = plain.trim_start_matches(' ');
    let leading = plain.len() - columns.len();
    // A label that ends in column 12 or, in the head of a report, in column 10.
    for end in [12, 10] {
        let label = plain.get(..end).map(str::trim_start).unwrap_or_default();
        let is_label = !label.is_empty() && (!label.contains(' ') || label == "DRIVER EXIT");
        let is_next = plain.get(end..).is_some_and(|text| text.starts_with(' ') && !text.starts_with("  "));
        if leading > 0 && is_label && is_next && end < widest {
            return Some(end + 1);
        }
    }
    let begins = |(gap, _): (usize, &str)| {
        let rest = &plain[gap..];
        let text = rest.trim_start_matches(' ');
        (!text.is_empty()).then(|| display_width(&plain[..plain.len() - text.len()]))
    };
    let gaps = plain.match_indices("  ").filter(|(gap, _)| *gap >= leading);
    gaps.filter_map(begins).take_while(|column| *column <= widest).last()
}

/// The place in a line, which can have colours, at which a column begins.
fn at_column(line: &str, column: usize) -> usize {
    let places = line.char_indices().map(|(place, _)| place).filter(|place| *place > 0);
    let is_before = |place: &usize| display_width(&line[..*place]) <= column;
    let is_there = |place: &usize| display_width(&line[..*place]) == column && !in_sequence(&line[..*place]);
    if column == 0 { 0 } else { places.take_while(is_before).find(is_there).unwrap_or(0) }
}

/// Whether a text ends within the sequence that sets a colour.
fn in_sequence(text: &str) -> bool {
    text.rfind('\u{1b}').is_some_and(|begin| !text[begin..].contains('m'))
}

/// The parts of a line that stay whole, each with the spaces behind it.
fn tokens(text: &str) -> Vec<&str> {
    let mut tokens = vec![];
    let mut rest = text;
    while !rest.is_empty() {
        let end = if is_command(rest) { rest.find("  ").unwrap_or(rest.len()) } else { word_end(rest) };
        let spaces = rest[end..].len() - rest[end..].trim_start_matches(' ').len();
        let (token, after) = rest.split_at(end + spaces);
        tokens.push(token);
        rest = after;
    }
    tokens
}

/// The end of the first word. Spaces between two backticks are part of it.
fn word_end(text: &str) -> usize {
    let mut is_quoted = false;
    for (place, letter) in text.char_indices() {
        match letter {
            '`' => is_quoted = !is_quoted && text[place + 1..].contains('`'),
            ' ' if !is_quoted && place > 0 => return place,
            _ => {}
        }
    }
    text.len()
}

/// Whether a text begins with a command to copy, such as `volproof enter NAME`.
fn is_command(text: &str) -> bool {
    const SUBCOMMANDS: [&str; 10] =
        ["run", "enter", "explain", "sim", "sweep", "report", "play", "list", "check", "vm"];
    let plain = match (text.starts_with('\u{1b}'), text.find('m')) {
        (true, Some(end)) => &text[end + 1..],
        _ => text,
    };
    let mut words = plain.split(' ');
    match (words.next(), words.next()) {
        (Some("cargo"), Some("xtask" | "test" | "run")) => true,
        (Some(program), Some(subcommand)) => {
            (program == "volproof" || program.ends_with("/volproof")) && SUBCOMMANDS.contains(&subcommand)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use expect_test::{Expect, expect};
    use harness::lines::Changed;

    use super::*;

    fn check(width: usize, lines: &str, expected: Expect) {
        let mut out = Vec::new();
        let mut wrapped = Changed::new(&mut out, Fit::to(Some(width)));
        wrapped.write_all(lines.as_bytes()).expect("a vector takes everything");
        wrapped.flush().expect("a vector takes everything");
        expected.assert_eq(&format!("$\n{}", String::from_utf8(out).expect("text")));
    }

    const LINES: &str = "
    Driver block.csi.example.com 1.4.0   stage, expand, block, clone, snapshots and much more   (asked)
        PASS [   0.31s] ( 1/62) csi::publish::read_only_claim_cannot_be_written
        csi    Publish data web FAILED_PRECONDITION \"the volume is not staged at the path that was given\"
  after `reader.cannot_write(\"/data/other file\")`  conformance/cases/src/csi/publish.rs:19
  logs   out/cases/csi::publish::read_only/   journal.txt  driver.log  manager.log
  again  cargo xtask conformance --driver driver.toml csi::publish::a
  look   the same with --keep, then: volproof enter csi::publish::a
     Finding NodePublishVolume: a read-only publish is mounted for writing.
             DRV-050 in csi::publish::read_only_claim_cannot_be_written
";

    #[test]
    fn lines_are_broken_between_words_below_their_text() {
        check(
            80,
            LINES,
            expect![[r#"
                $

                    Driver block.csi.example.com 1.4.0   stage, expand, block, clone, snapshots
                           and much more   (asked)
                        PASS [   0.31s] ( 1/62) csi::publish::read_only_claim_cannot_be_written
                        csi    Publish data web FAILED_PRECONDITION "the volume is not staged at
                               the path that was given"
                  after `reader.cannot_write("/data/other file")`
                  conformance/cases/src/csi/publish.rs:19
                  logs   out/cases/csi::publish::read_only/   journal.txt  driver.log
                         manager.log
                  again  cargo xtask conformance --driver driver.toml csi::publish::a
                  look   the same with --keep, then: volproof enter csi::publish::a
                     Finding NodePublishVolume: a read-only publish is mounted for writing.
                             DRV-050 in csi::publish::read_only_claim_cannot_be_written
            "#]],
        );
    }

    #[test]
    fn token_wider_than_the_terminal_has_a_line_of_its_own() {
        check(
            40,
            LINES,
            expect![[r#"
            $

                Driver block.csi.example.com 1.4.0
                       stage, expand, block, clone,
                       snapshots and much more
                       (asked)
                    PASS [   0.31s] ( 1/62)
              csi::publish::read_only_claim_cannot_be_written
                    csi    Publish data web
                           FAILED_PRECONDITION "the
                           volume is not staged at
                           the path that was given"
              after
              `reader.cannot_write("/data/other file")`
              conformance/cases/src/csi/publish.rs:19
              logs
              out/cases/csi::publish::read_only/
                     journal.txt  driver.log
                     manager.log
              again
              cargo xtask conformance --driver driver.toml csi::publish::a
              look   the same with --keep, then:
                     volproof enter csi::publish::a
                 Finding NodePublishVolume: a
                         read-only publish is
                         mounted for writing.
                         DRV-050 in
              csi::publish::read_only_claim_cannot_be_written
        "#]],
        );
    }

    #[test]
    fn every_word_of_a_line_survives_each_width() {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        for width in NARROWEST..130 {
            let text = fit(LINES, Some(width));
            assert_eq!(words(&text), words(LINES), "{width}");
            for line in text.lines().filter(|line| display_width(line) > width) {
                let whole = line.trim_start_matches(' ');
                assert!(tokens(whole).len() == 1 && line.len() - whole.len() <= 2, "{width}: {line}");
            }
        }
        assert_eq!(fit(LINES, None), LINES);
        assert_eq!(fit(LINES, Some(NARROWEST - 1)), LINES);
    }

    #[test]
    fn colours_take_no_room() {
        let line = "\u{1b}[1m     Finding\u{1b}[0m NodePublishVolume: a publish";
        assert_eq!(fit(line, Some(43)), line);
        let broken = "\u{1b}[1m     Finding\u{1b}[0m NodePublishVolume: a\n             publish";
        assert_eq!(fit(line, Some(40)), broken);
    }
}
