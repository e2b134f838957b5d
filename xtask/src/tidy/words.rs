//! Words: a function's name says its subject, and a comment says more than the name below it.
//!
//! The words themselves are in `docs/glossary.md`.

use super::source::code;
use super::{Repository, Violation};

/// Words that stand where a noun should: a name that opens with one cannot be searched for.
const NO_SUBJECT: &[&str] =
    &["what", "who", "whose", "which", "where", "whoever", "nobody", "somebody", "one"];

/// Words that add nothing to a name.
const FILLERS: &[&str] = &["a", "an", "the", "its", "their", "this", "of"];

/// A comment of at most this many words has to add something to the name below it.
const SHORT: usize = 3;

pub(crate) fn check(repository: &Repository) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (path, text) in repository.rust() {
        violations.extend(names(text).map(|(line, name)| {
            Violation::new(format!("{path}:{line}"), format!("`fn {name}` does not open with its subject"))
        }));
        violations.extend(echoes(text).map(|(line, name)| {
            Violation::new(
                format!("{path}:{line}"),
                format!("the comment repeats the name `{name}`: say more, or leave it out"),
            )
        }));
    }
    violations
}

/// Functions whose names open with a word that is no subject.
fn names(text: &str) -> impl Iterator<Item = (usize, String)> {
    let code = code(text);
    let found: Vec<(usize, String)> = (code.lines().enumerate())
        .filter_map(|(at, line)| {
            let name = item(line, &["fn"])?;
            let first = name.split('_').next().unwrap_or_default();
            NO_SUBJECT.contains(&first).then(|| (at + 1, name.to_owned()))
        })
        .collect();
    found.into_iter()
}

/// One-line comments whose every word stands in the name of the item below them.
fn echoes(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines: Vec<&str> = text.lines().collect();
    (0..lines.len()).filter_map(move |at| {
        let comment = lines[at].trim_start().strip_prefix("/// ")?;
        let alone = at == 0 || !lines[at - 1].trim_start().starts_with("///");
        let below = lines[at + 1..].iter().find(|line| !line.trim_start().starts_with("#["))?;
        let name = named(below)?;
        (alone && repeats(comment, name)).then_some((at + 1, name))
    })
}

fn repeats(comment: &str, name: &str) -> bool {
    let words: Vec<String> = comment
        .split_whitespace()
        .map(|word| word.trim_matches(['.', '`', ',', ':']).to_lowercase())
        .collect();
    let parts = parts(name);
    words.len() <= SHORT
        && words
            .iter()
            .filter(|word| !FILLERS.contains(&word.as_str()))
            .all(|word| parts.iter().any(|part| part == word))
}

/// The words a name is made of, in lower case.
fn parts(name: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    for c in name.chars() {
        if c == '_' || c.is_uppercase() {
            parts.push(String::new());
        }
        if c != '_' {
            parts.last_mut().expect("it begins with one").extend(c.to_lowercase());
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}

/// The name of what a line declares: an item, a field or a variant.
fn named(line: &str) -> Option<&str> {
    if let Some(name) =
        item(line, &["fn", "struct", "enum", "trait", "type", "const", "static", "mod", "union"])
    {
        return Some(name);
    }
    let declared = after_visibility(line.trim_start());
    let end = declared.find(|c: char| !c.is_alphanumeric() && c != '_')?;
    let (name, rest) = declared.split_at(end);
    (!name.is_empty() && rest.starts_with([':', ',', '(', ' '])).then_some(name)
}

/// The name behind one of these keywords, where the line declares such an item.
fn item<'a>(line: &'a str, keywords: &[&str]) -> Option<&'a str> {
    let mut rest = after_visibility(line.trim_start());
    loop {
        let (word, after) = rest.split_once(' ')?;
        if keywords.contains(&word) && !after.starts_with("fn ") {
            let end = after.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(after.len());
            return (end > 0).then(|| &after[..end]);
        }
        if !["async", "const", "unsafe", "extern"].contains(&word) {
            return None;
        }
        rest = after;
    }
}

fn after_visibility(line: &str) -> &str {
    let Some(rest) = line.strip_prefix("pub") else { return line };
    match rest.strip_prefix('(') {
        Some(rest) => rest.split_once(") ").map_or(line, |(_, rest)| rest),
        None => rest.strip_prefix(' ').unwrap_or(line),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> usize {
        check(&Repository::made_of(&[("xtask/src/tidy/a.rs", text)])).len()
    }

    #[test]
    fn names_without_a_subject_are_found() {
        for bad in [
            "fn what_is_left() {}",
            "    pub(crate) async fn who_is_it() {}",
            "fn one() {}",
            "const fn which() {}",
        ] {
            assert_eq!(found(bad), 1, "{bad}");
        }
        for good in ["fn whatever() {}", "fn oneshot() {}", "fn volume_is_known() {}", "// fn what_is_left()"]
        {
            assert_eq!(found(good), 0, "{good}");
        }
    }

    #[test]
    fn comments_that_repeat_a_name_are_found() {
        for bad in [
            "/// The volume.\nvolume: Volume,",
            "/// Its name.\n    pub(crate) name: String,",
            "/// A loop device.\n#[derive(Debug)]\npub struct LoopDevice;",
            "/// Mounts.\nfn mounts() {}",
            "/// Attach.\nAttach(Volume),",
        ] {
            assert_eq!(found(bad), 1, "{bad}");
        }
        for good in [
            "/// The volume to grow.\nvolume: Volume,",
            "/// Bytes.\nsize: u64,",
            "/// The volume.\n/// It may be gone.\nvolume: Volume,",
            "/// The volume.\n\nlet x = 1;",
        ] {
            assert_eq!(found(good), 0, "{good}");
        }
    }
}
