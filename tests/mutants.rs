//! Mutants of the volume manager: broken on purpose, one bug each, and found on the real kernel.
//!
//! A mutant is a patch in `mutants/`. Its first lines say what is wrong with it, which case must find it
//! (`Found-by:`), and what that case must name as broken (`Breaks:`): an invariant, or its own story where no
//! invariant can be judged. Adding a mutant is adding a file. Each is
//! applied to a copy of this working tree and built there; the copy shares every registry crate with this build.
//! What shows that the cases do not just fail always is `the_honest_driver_is_clean` in `sabotage.rs`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serial_test::file_serial;
use tests::{Volproof, cargo, has_root, root, target};

/// A patch, and what it says of itself.
#[derive(Debug)]
struct Mutant {
    name: String,
    patch: PathBuf,
    found_by: String,
    breaks: String,
}

impl Mutant {
    fn read(patch: PathBuf) -> Mutant {
        let text = fs::read_to_string(&patch).expect("a patch can be read");
        let said = |field: &str| {
            let mut lines = text.lines().take_while(|line| !line.starts_with("--- "));
            let value = lines.find_map(|line| line.strip_prefix(field)).map(|value| value.trim().to_owned());
            value.unwrap_or_else(|| panic!("`{}` has no line `{field}`", patch.display()))
        };
        let name = patch.file_stem().expect("a file has a name").to_string_lossy().into_owned();
        Mutant { name, found_by: said("Found-by:"), breaks: said("Breaks:"), patch }
    }

    fn all() -> Vec<Mutant> {
        let listed = fs::read_dir(root().join("tests/mutants")).expect("the mutants");
        let mut patches: Vec<PathBuf> = listed.flatten().map(|entry| entry.path()).collect();
        patches.retain(|path| path.extension().is_some_and(|extension| extension == "patch"));
        patches.sort();
        assert!(!patches.is_empty(), "there are no mutants");
        patches.into_iter().map(Mutant::read).collect()
    }
}

/// A copy of the working tree, always at the same place: cargo knows a crate by its path, so that from one
/// mutant to the next only what was changed is built again.
struct Copy {
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

impl Copy {
    fn of_this() -> Copy {
        let aside = target().join("mutants");
        let copy = Copy { directory: aside.join("tree"), built: aside.join("built") };
        for name in COPIED {
            mirror(&root().join(name), &copy.directory.join(name));
        }
        copy
    }

    /// Applies a mutant, or takes it back.
    fn patch(&self, mutant: &Mutant, arguments: &[&str]) {
        let patch = fs::File::open(&mutant.patch).expect("a patch can be read");
        let output = Command::new("patch")
            .args(["-p1", "--silent", "--no-backup-if-mismatch", "--reject-file=-"])
            .args(arguments)
            .current_dir(&self.directory)
            .stdin(Stdio::from(patch))
            .output()
            .expect("patch can be started");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "`{}` does not fit the sources any more:\n{said}", mutant.name);
    }

    /// Builds it. Final programs go aside; everything in between is shared with the build of this very test.
    fn build(&self) -> Result<PathBuf, String> {
        let output = cargo()
            .current_dir(&self.directory)
            .env("CARGO_TARGET_DIR", &self.built)
            .env("CARGO_BUILD_BUILD_DIR", target())
            .args(["build", "--quiet", "--offline", "--package", "conformance", "--bin", "volproof"])
            .output()
            .expect("cargo can be started");
        match output.status.success() {
            true => Ok(self.built.join("debug/volproof")),
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

#[test]
#[file_serial(root)]
fn each_mutant_is_found_by_the_case_that_claims_it() {
    if !has_root() {
        return;
    }
    let copy = Copy::of_this();
    let mut wrong = Vec::new();
    for mutant in Mutant::all() {
        copy.patch(&mutant, &[]);
        let built = copy.build();
        copy.patch(&mutant, &["--reverse"]);
        match built {
            Ok(program) => wrong.extend(judge(&mutant, &program)),
            Err(error) => wrong.push(format!("{}: does not build\n{error}", mutant.name)),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// Runs the case that claims a mutant; says what is wrong if it did not find it.
fn judge(mutant: &Mutant, program: &Path) -> Option<String> {
    let ended = Volproof::at(program).arg("run").arg(&mutant.found_by).args("--report out").run();
    let bad = ended.results().bad();
    let named = bad.iter().any(|case| {
        case.id == mutant.found_by && case.findings.iter().any(|finding| finding.starts_with(&mutant.breaks))
    });
    let found = ended.code == Some(1) && named;
    (!found).then(|| {
        format!(
            "{}: {} did not find that {} is broken, but {bad:#?}\n{}",
            mutant.name,
            mutant.found_by,
            mutant.breaks,
            ended.told()
        )
    })
}
