//! Mutants: bugs that are planted in a copy of the sources, all of them in one build.
//!
//! A mutant is a patch against the sources as they are, in `tests/mutants/` or `tests/simulated/`; it changes the
//! bodies of functions. In the copy each of these functions asks at run time which mutant was asked for (the variable
//! [`SWITCH`]), so that one build serves all of them. The sources of the product hold no switch.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use crate::SourceCopy;
use crate::volproof::root;

mod body;

/// The variable that names the mutant that a program of the copy is to be. It is inherited by all processes of a run.
pub const SWITCH: &str = "VOLPROOF_PLANTED";

/// The directories of mutants.
const LISTS: &[&str] = &["mutants", "simulated"];

/// Generated into each crate of the copy that a mutant changes.
const PLANTED: &str = r#"
pub(crate) fn planted(mutant: &str) -> bool {
    static ASKED: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    ASKED.get_or_init(|| std::env::var("VOLPROOF_PLANTED").ok()).as_deref() == Some(mutant)
}
"#;

/// A patch, and what its first lines say.
#[derive(Debug, Clone)]
pub struct Mutant {
    /// The name of the patch, which is its switch.
    pub name: String,
    patch: PathBuf,
    head: String,
}

impl Mutant {
    /// All mutants of a list, or the one that the variable `MUTANT` names while it is being written.
    pub fn all(list: &str) -> Vec<Mutant> {
        let mut mutants = Mutant::read(list);
        assert!(!mutants.is_empty(), "there are no mutants in `tests/{list}`");
        if let Ok(only) = std::env::var("MUTANT") {
            mutants.retain(|mutant| mutant.name == only);
        }
        mutants
    }

    fn read(list: &str) -> Vec<Mutant> {
        let listed = fs::read_dir(root().join("tests").join(list)).expect("the mutants");
        let mut patches: Vec<PathBuf> = listed.flatten().map(|entry| entry.path()).collect();
        patches.retain(|path| path.extension().is_some_and(|extension| extension == "patch"));
        patches.sort();
        let mutant = |patch: PathBuf| {
            let text = fs::read_to_string(&patch).expect("a patch can be read");
            let head = text.split("\n--- ").next().unwrap_or_default().to_owned();
            let name = patch.file_stem().expect("a file has a name").to_string_lossy().into_owned();
            Mutant { name, patch, head }
        };
        patches.into_iter().map(mutant).collect()
    }

    /// The value of a field, as `Breaks: INV-009`.
    pub fn field(&self, field: &str) -> &str {
        self.optional(field).unwrap_or_else(|| panic!("`{}` has no line `{field}:`", self.patch.display()))
    }

    /// The value of a field that a mutant may lack.
    pub fn optional(&self, field: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')).map(str::trim)
    }

    /// What it stands for: the invariants of `Finds:`, or else the first of `Breaks:`.
    pub fn stands_for(&self) -> Vec<String> {
        let all = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        match self.optional("Finds") {
            Some(found) => all(found),
            None => all(self.field("Breaks")).into_iter().take(1).collect(),
        }
    }

    /// Writes a field into the patch, after the others.
    pub fn write(&self, field: &str, value: &str) {
        let text = fs::read_to_string(&self.patch).expect("a patch can be read");
        let kept = self.head.lines().filter(|line| !line.starts_with(&format!("{field}:")));
        let head: String = kept.map(|line| format!("{line}\n")).collect();
        let text = format!("{}\n{field}: {value}\n{}", head.trim_end(), &text[self.head.len()..]);
        fs::write(&self.patch, text).expect("a patch can be written");
    }

    /// The files that the mutant changes, with their new text.
    fn apply(&self) -> BTreeMap<PathBuf, String> {
        let text = fs::read_to_string(&self.patch).expect("a patch can be read");
        let files = text.lines().filter_map(|line| line.strip_prefix("+++ b/")).map(PathBuf::from);
        let files: BTreeSet<PathBuf> = files.collect();
        let aside = tempfile::tempdir().expect("a temporary directory");
        for file in &files {
            let to = aside.path().join(file);
            fs::create_dir_all(to.parent().expect("a file is in a directory")).expect("a directory");
            fs::copy(root().join(file), to)
                .unwrap_or_else(|error| panic!("`{}`: {}: {error}", self.patch.display(), file.display()));
        }
        let output = Command::new("patch")
            .args(["-p1", "--silent", "--no-backup-if-mismatch", "--reject-file=-"])
            .current_dir(aside.path())
            .stdin(Stdio::from(fs::File::open(&self.patch).expect("a patch can be read")))
            .output()
            .expect("`patch` can be started");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "`{}` does not fit the sources:\n{said}", self.patch.display());
        let read = |file: PathBuf| {
            let text = fs::read_to_string(aside.path().join(&file)).expect("a patched source");
            (file, text)
        };
        files.into_iter().map(read).collect()
    }
}

/// The programs of the copy. Without [`SWITCH`] they do what the product does.
#[derive(Debug)]
pub struct Planted;

impl Planted {
    pub fn volproof() -> &'static Path {
        static BUILT: OnceLock<PathBuf> = OnceLock::new();
        BUILT.get_or_init(|| build(&["--bin", "volproof"]).join("volproof"))
    }

    /// The simulation alone, which takes far less time to build.
    pub fn seeds() -> &'static Path {
        static BUILT: OnceLock<PathBuf> = OnceLock::new();
        BUILT.get_or_init(|| build(&["--example", "seeds"]).join("examples/seeds"))
    }
}

/// Builds a program of the copy, which holds the mutants of all lists.
fn build(program: &[&str]) -> PathBuf {
    let copy = SourceCopy::new("planted", &sources().unwrap_or_else(|error| panic!("{error}")));
    copy.build(program).unwrap_or_else(|error| panic!("the copy with all mutants does not build:\n{error}"))
}

/// The sources that differ in the copy.
fn sources() -> Result<BTreeMap<PathBuf, String>, String> {
    let mut changed: BTreeMap<PathBuf, BTreeMap<String, String>> = BTreeMap::new();
    for mutant in LISTS.iter().flat_map(|list| Mutant::read(list)) {
        for (file, text) in mutant.apply() {
            let twice = changed.entry(file).or_default().insert(mutant.name.clone(), text);
            assert!(twice.is_none(), "two mutants are called `{}`", mutant.name);
        }
    }
    let whole = |file: &Path| fs::read_to_string(root().join(file)).expect("a source can be read");
    let mut sources = BTreeMap::new();
    for (file, mutants) in &changed {
        let merged = body::merge(&whole(file), mutants);
        sources.insert(file.clone(), merged.map_err(|error| format!("`{}`: {error}", file.display()))?);
    }
    let roots: BTreeSet<PathBuf> = changed.keys().map(|file| crate_root(file)).collect();
    for file in roots {
        sources.entry(file.clone()).or_insert_with(|| whole(&file)).push_str(PLANTED);
    }
    Ok(sources)
}

/// The first file of the crate that a file belongs to.
fn crate_root(file: &Path) -> PathBuf {
    let package = file.ancestors().skip(1).find(|dir| root().join(dir).join("Cargo.toml").is_file());
    package.expect("a source belongs to a package").join("src/lib.rs")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mutant_fits_the_sources_and_changes_bodies_only() {
        let sources = sources().unwrap_or_else(|error| panic!("{error}"));
        let switches: usize = sources.values().map(|text| text.matches("crate::planted(").count()).sum();
        let mutants: usize = LISTS.iter().map(|list| Mutant::read(list).len()).sum();
        assert!(switches >= mutants, "{switches} switches for {mutants} mutants");
    }
}
