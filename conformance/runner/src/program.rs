//! The name by which the user can call this program. Reads `PATH` and this process's own command line.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::LazyLock;

/// The file of the program that runs.
const THIS: &str = "/proc/self/exe";

static NAME: LazyLock<String> = LazyLock::new(|| {
    let called = std::env::args().next().unwrap_or_default();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found =
        std::env::split_paths(&path).map(|directory| directory.join("volproof")).find(|file| file.is_file());
    let is_found = found.is_some_and(|file| is_same(&file, Path::new(THIS)));
    name_of(&called, is_found)
});

/// `volproof`, if a shell finds this program by that name; else the path by which it was called.
pub fn name() -> &'static str {
    &NAME
}

fn name_of(called: &str, is_on_path: bool) -> String {
    // A driver's own test program embeds the suite under another name, and has no other commands.
    let is_ours = Path::new(called).file_name().is_some_and(|name| name == "volproof");
    match is_ours && !is_on_path && called.contains('/') {
        true => quoted(called),
        false => "volproof".to_owned(),
    }
}

fn is_same(one: &Path, other: &Path) -> bool {
    let file = |path: &Path| std::fs::metadata(path).map(|found| (found.dev(), found.ino())).ok();
    file(one).is_some() && file(one) == file(other)
}

/// A word, quoted for a shell.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_is_the_path_unless_a_shell_finds_the_program() {
        assert_eq!(name_of("target/conformance/volproof", false), "target/conformance/volproof");
        assert_eq!(name_of("my builds/volproof", false), "'my builds/volproof'");
        assert_eq!(name_of("/usr/bin/volproof", true), "volproof");
        assert_eq!(name_of("volproof", false), "volproof");
        assert_eq!(name_of("target/debug/deps/driver-1a2b", false), "volproof");
    }

    #[test]
    fn a_word_survives_the_shell() {
        assert_eq!(quoted("--driver=a.toml"), "--driver=a.toml");
        assert_eq!(quoted("./d --endpoint={endpoint}"), "'./d --endpoint={endpoint}'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }
}
