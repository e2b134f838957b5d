//! A copy of the sources, to be changed and built aside.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::volproof::{cargo, root, target};

/// A copy of the working tree, always at the same place, so that only what has changed since the last time is built
/// again.
#[derive(Debug)]
pub(crate) struct SourceCopy {
    directory: PathBuf,
    built: PathBuf,
    /// Held until the copy is built: another test process would change it meanwhile.
    _lock: fs::File,
}

/// Entries in the root of the repository that a copy does not need.
const NOT_COPIED: &[&str] = &[".git", "docs", "out"];

impl SourceCopy {
    /// A copy with a name of its own, in which some files have another text.
    pub(crate) fn new(name: &str, changed: &BTreeMap<PathBuf, String>) -> SourceCopy {
        let aside = target().join(name);
        fs::create_dir_all(&aside).expect("a directory for the copy");
        let lock = fs::File::create(aside.join("lock")).expect("a lock for the copy");
        lock.lock().expect("the copy can be locked");
        let mut changed = changed.clone();
        changed.insert("Cargo.toml".into(), another_version());
        let copy = SourceCopy { directory: aside.join("tree"), built: aside.join("built"), _lock: lock };
        let sources = names(&root()).into_iter().map(PathBuf::from);
        // Never the copy itself, which lies in there, even where the mark of a target directory was lost.
        let is_built = |name: &Path| {
            let path = root().join(name);
            path == target() || path.join("CACHEDIR.TAG").exists()
        };
        for source in
            sources.filter(|name| !is_built(name) && !NOT_COPIED.iter().any(|other| name == Path::new(other)))
        {
            copy.mirror(&source, &changed);
        }
        copy
    }

    /// Builds programs of the copy with the profile of the calling test. Returns their directory, or the compiler's errors.
    ///
    /// All other output goes beside the build of the repository, so that the registry's crates are built already. They have the
    /// same features only if cargo builds the whole workspace, and a target with the dependencies of tests.
    pub(crate) fn build(&self, programs: &[&str]) -> Result<PathBuf, String> {
        let output = cargo()
            .current_dir(&self.directory)
            .env("CARGO_TARGET_DIR", &self.built)
            .env("CARGO_BUILD_BUILD_DIR", target())
            .args(["build", "--quiet", "--offline", "--workspace"])
            .args(programs)
            .output()
            .expect("cargo can be started");
        match output.status.success() {
            true => Ok(self.built.join("debug")),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }

    /// Makes a file or directory of the copy equal to the repository's. Does not touch equal files, because cargo rebuilds
    /// touched ones.
    fn mirror(&self, path: &Path, changed: &BTreeMap<PathBuf, String>) {
        let (from, to) = (root().join(path), self.directory.join(path));
        if from.is_file() {
            let content = match changed.get(path) {
                Some(text) => text.clone().into_bytes(),
                None => fs::read(from).expect("a source can be read"),
            };
            if fs::read(&to).ok().as_ref() != Some(&content) {
                fs::create_dir_all(to.parent().expect("a file is in a directory"))
                    .expect("a directory for the copy");
                fs::write(to, content).expect("a copy can be written");
            }
            return;
        }
        fs::create_dir_all(&to).expect("a directory for the copy");
        let wanted = names(&from);
        for stale in names(&to).into_iter().filter(|name| !wanted.contains(name)) {
            let stale = to.join(stale);
            let removed = if stale.is_dir() { fs::remove_dir_all(&stale) } else { fs::remove_file(&stale) };
            removed.expect("a file that is no source any more can be removed from the copy");
        }
        for name in wanted {
            self.mirror(&path.join(name), changed);
        }
    }
}

/// The version of the copy's workspace. Cargo identifies crates by name, version and path in the workspace: with the same
/// version it would take the copy's crates for the repository's, and overwrite them.
fn another_version() -> String {
    let text = fs::read_to_string(root().join("Cargo.toml")).expect("the workspace can be read");
    let (before, package) = text.split_once("[workspace.package]\n").expect("the workspace has a version");
    assert!(package.starts_with("version = \""), "the version comes first");
    format!("{before}[workspace.package]\n{}", package.replacen("\"\n", "-copy\"\n", 1))
}

fn names(directory: &Path) -> Vec<std::ffi::OsString> {
    fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.file_name()).collect()
}
