//! The driver's command line: splits a text into words, and finds placeholders in them.

use std::path::Path;

use super::nearest;

/// Names that a word of the command may have in braces.
pub(super) const PLACEHOLDERS: [&str; 6] = ["socket", "endpoint", "node", "state", "kubeconfig", "root"];

/// The first `{name}` that is no placeholder, with the nearest known one.
///
/// Only lower-case words in single braces count: `${HOME}`, JSON and awk programs pass unchanged.
pub(super) fn unknown_placeholder<'a>(
    words: impl IntoIterator<Item = &'a str>,
) -> Option<(&'a str, Option<&'static str>)> {
    let unknown = words.into_iter().flat_map(names_in_braces).find(|name| !PLACEHOLDERS.contains(name))?;
    Some((unknown, nearest(unknown, PLACEHOLDERS)))
}

/// The placeholders in some words.
pub(super) fn names<'a>(words: impl IntoIterator<Item = &'a str>) -> impl Iterator<Item = &'a str> {
    words.into_iter().flat_map(names_in_braces).filter(|name| PLACEHOLDERS.contains(name))
}

/// Makes the program's path absolute. One without a slash is looked for on PATH, as a shell does.
pub(super) fn resolve(command: &mut [String], directory: &Path) {
    let is_path = |program: &&mut String| program.contains('/') && !program.starts_with("{root}");
    if let Some(program) = command.first_mut().filter(is_path) {
        let path = directory.join(&*program);
        *program = std::path::absolute(&path).unwrap_or(path).to_string_lossy().into_owned();
    }
}

fn names_in_braces(word: &str) -> impl Iterator<Item = &str> {
    word.match_indices('{').filter_map(move |(at, _)| {
        let before = word[..at].chars().next_back();
        let (name, _) = word[at + 1..].split_once('}')?;
        let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        (is_name && !matches!(before, Some('$' | '{'))).then_some(name)
    })
}

/// Splits a command line as a shell does, without expansions. `None`: a quotation mark is not closed.
pub(super) fn split(command: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = command.chars();
    while let Some(c) = chars.next() {
        match c {
            '\'' | '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match chars.next()? {
                        end if end == c => break,
                        '\\' if c == '"' => word.push(chars.next()?),
                        other => word.push(other),
                    }
                }
            }
            '\\' => word.get_or_insert_default().extend(chars.next()),
            space if space.is_whitespace() => words.extend(word.take()),
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    Some(words)
}
