//! Words: a function's name says its subject, and a comment says more than the name below it.
//!
//! The words themselves are in `docs/glossary.md`.

use super::source::code;
use super::{Repository, Violation};

/// Words that stand where a noun should: a name that opens with one cannot be searched for.
const NO_SUBJECT: &[&str] =
    &["what", "who", "whose", "which", "where", "whoever", "nobody", "somebody", "one"];

/// Words that add nothing to a name.
const FILLERS: &[&str] =
    &["a", "an", "the", "its", "their", "this", "of", "for", "in", "by", "with", "to", "own", "itself"];

/// Words that say no more than a name that is the same everywhere.
const SYNONYMS: &[(&str, &[&str])] = &[
    ("path", &["file", "directory", "socket"]),
    ("source", &["answer", "cause", "error", "kernel", "why", "what", "was", "is", "wrong"]),
    ("pid", &["number"]),
    ("id", &["number", "identity"]),
    ("uid", &["identity"]),
];

/// A comment of at most this many words has to add something to the line below it.
const SHORT: usize = 6;

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

/// One-line comments whose every word stands in the declaration below them: its name, types and values.
fn echoes(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines: Vec<&str> = text.lines().collect();
    (0..lines.len()).filter_map(move |at| {
        let comment = lines[at].trim_start().strip_prefix("/// ")?;
        let alone = at == 0 || !lines[at - 1].trim_start().starts_with("///");
        let below = lines[at + 1..].iter().find(|line| !line.trim_start().starts_with("#["))?;
        let name = named(below)?;
        (alone && repeats(comment, name, below)).then_some((at + 1, name))
    })
}

fn repeats(comment: &str, name: &str, declaration: &str) -> bool {
    let words: Vec<String> = comment.split_whitespace().map(stem).collect();
    let declared: Vec<String> =
        declaration.split(|c: char| !c.is_alphanumeric() && c != '_').flat_map(parts).collect();
    let synonyms = SYNONYMS.iter().find(|(common, _)| *common == name).map_or(&[][..], |(_, words)| words);
    let says = |word: &String| {
        !FILLERS.contains(&word.as_str()) && !synonyms.contains(&word.as_str()) && !declared.contains(word)
    };
    is_id(comment) || words.len() <= SHORT && !words.iter().any(says)
}

/// Whether a comment is the id of a promise or an invariant, which the rule below it states itself.
fn is_id(comment: &str) -> bool {
    let id = ["DRV-", "INV-"].iter().find_map(|prefix| comment.strip_prefix(prefix));
    id.is_some_and(|number| number.trim_end_matches('.').chars().all(|c| c.is_ascii_digit()))
}

/// A word in lower case without its genitive and its plural, so that "the driver's mounts" is found in `DriverMount`.
fn stem(word: &str) -> String {
    let word = word.trim_matches(['.', '`', ',', ':']).to_lowercase();
    let word = word.strip_suffix("'s").unwrap_or(&word);
    let singular = word.strip_suffix('s').filter(|rest| rest.len() > 2);
    singular.unwrap_or(word).to_owned()
}

/// The words a name is made of, in lower case and in the singular.
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
    parts.iter().map(|part| stem(part)).collect()
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
            "/// The names of the volumes.\npub fn names(volumes: &[Volume]) {",
            "/// The driver's process.\npub fn driver(&self) -> Process {",
            "/// The kernel's answer.\n#[source]\nsource: io::Error,",
            "/// The file.\npath: PathBuf,",
            "/// DRV-010.\npub(super) static CREATED: Rule = Rule {",
        ] {
            assert_eq!(found(bad), 1, "{bad}");
        }
        for good in [
            "/// The volume to grow.\nvolume: Volume,",
            "/// Bytes.\nsize: u64,",
            "/// Absolute.\npath: PathBuf,",
            "/// The answer, masked.\nanswer: String,",
            "/// DRV-010, and only where the name is kept.\nstatic CREATED: Rule = Rule {",
            "/// The volume.\n/// It may be gone.\nvolume: Volume,",
            "/// The volume.\n\nlet x = 1;",
        ] {
            assert_eq!(found(good), 0, "{good}");
        }
    }
}
