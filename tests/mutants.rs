//! Mutants of the volume manager: broken on purpose, one bug each, and found on the real kernel.
//!
//! A mutant is a patch in `mutants/`. Its first lines say what is wrong with it, which case must find it
//! (`Found-by:`), and what that case must name as broken (`Breaks:`): an invariant, or its own story where no
//! invariant can be judged. Adding a mutant is adding a file. Each is
//! applied to a copy of this working tree and built there; the copy shares no crate with the build of this test.
//! What shows that the cases do not just fail always is `the_honest_driver_is_clean` in `sabotage.rs`.

use std::fs;
use std::path::{Path, PathBuf};

use serial_test::file_serial;
use tests::{SourceCopy, Volproof, has_root, root};

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

#[test]
#[file_serial(root)]
fn each_mutant_is_found_by_the_case_that_claims_it() {
    if !has_root() {
        return;
    }
    let copy = SourceCopy::new("mutants");
    let mut wrong = Vec::new();
    for mutant in Mutant::all() {
        let built = copy.with(&mutant.patch, |copy| {
            copy.build(&["--package", "conformance", "--bin", "volproof"], "debug/volproof")
        });
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
