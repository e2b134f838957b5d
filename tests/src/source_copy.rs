//! A copy of the sources, to be broken on purpose and built aside.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::volproof::{cargo, root, target};

/// A copy of the working tree, always at the same place: cargo knows a crate by its path, so that from one
/// mutant to the next only what was changed is built again.
#[derive(Debug)]
pub struct SourceCopy {
    directory: PathBuf,
    built: PathBuf,
}

/// What a build needs, from the root of the repository.
const COPIED: &[&str] = &[
    ".cargo",
    "Cargo.toml",
    "Cargo.lock",
    "rust-toolchain.toml",
    "clippy.toml",
    "conformance",
    "fake-csi",
    "harness",
    "tests",
    "vm-images",
    "volume-manager",
    "xtask",
];

impl SourceCopy {
    /// A copy with a name of its own: tests that have the same one take turns.
    pub fn new(name: &str) -> SourceCopy {
        let aside = target().join(name);
        let copy = SourceCopy { directory: aside.join("tree"), built: aside.join("built") };
        for name in COPIED {
            mirror(&root().join(name), &copy.directory.join(name));
        }
        copy
    }

    /// Does something with a patch applied, and takes the patch back.
    pub fn with<T>(&self, patch: &Path, work: impl FnOnce(&Self) -> T) -> T {
        self.patch(patch, &[]);
        let done = work(self);
        self.patch(patch, &["--reverse"]);
        done
    }

    fn patch(&self, path: &Path, arguments: &[&str]) {
        let patch = fs::File::open(path).expect("a patch can be read");
        let output = Command::new("patch")
            .args(["-p1", "--silent", "--no-backup-if-mismatch", "--reject-file=-"])
            .args(arguments)
            .current_dir(&self.directory)
            .stdin(Stdio::from(patch))
            .output()
            .expect("patch can be started");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "`{}` does not fit the sources any more:\n{said}", path.display());
    }

    /// Builds it as cargo is told, and says where the program is or what the compiler says. Nothing is shared
    /// with the build of this very test: cargo takes a crate of the copy for the one it was copied from, and
    /// would find the broken one fresh where the whole one is wanted.
    pub fn build(&self, what: &[&str], program: &str) -> Result<PathBuf, String> {
        let output = cargo()
            .current_dir(&self.directory)
            .env("CARGO_TARGET_DIR", &self.built)
            // Built again for each patch, and read by no debugger.
            .env("CARGO_INCREMENTAL", "1")
            .env("CARGO_PROFILE_DEV_DEBUG", "none")
            .args(["build", "--quiet", "--offline"])
            .args(what)
            .output()
            .expect("cargo can be started");
        match output.status.success() {
            true => Ok(self.built.join(program)),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }
}

/// Makes `to` what `from` is, and touches nothing that is so already: cargo builds what was touched.
fn mirror(from: &Path, to: &Path) {
    if from.is_file() {
        let content = fs::read(from).expect("a source can be read");
        if fs::read(to).ok().as_ref() != Some(&content) {
            fs::create_dir_all(to.parent().expect("a file is in a directory"))
                .expect("a directory for the copy");
            fs::write(to, content).expect("a copy can be written");
        }
        return;
    }
    fs::create_dir_all(to).expect("a directory for the copy");
    let names = |directory: &Path| -> Vec<_> {
        fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.file_name()).collect()
    };
    let wanted = names(from);
    for stale in names(to).into_iter().filter(|name| !wanted.contains(name)) {
        let stale = to.join(stale);
        let removed = if stale.is_dir() { fs::remove_dir_all(&stale) } else { fs::remove_file(&stale) };
        removed.expect("what is no source any more can be removed from the copy");
    }
    for name in wanted {
        mirror(&from.join(&name), &to.join(&name));
    }
}
