//! Mutants of the volume manager that a case finds on the real kernel: broken on purpose, one bug each.
//!
//! A mutant is a patch in `mutants/`. Its first lines say what is wrong with it, which case must find it
//! (`Found-by:`), and what that case must name as broken (`Breaks:`): an invariant, or its own story where no
//! invariant can be judged. Adding a mutant is adding a file.

mod simulated;

use std::collections::BTreeSet;

use tests::{Mutant, Planted, SWITCH, Volproof, has_root, in_parallel, is_thorough};

/// Whether cases run on the copy. Building all of volproof once more takes minutes; that each patch fits the sources is
/// shown by the build of the simulation, which holds all of them.
fn runs_cases() -> bool {
    let is_written = std::env::var_os("MUTANT").is_some();
    let instead = "no case looks for a mutant of the manager on the kernel, only the simulation does";
    has_root() && (is_written || is_thorough(instead))
}

#[test]
fn each_mutant_is_found_by_the_case_that_claims_it() {
    if runs_cases() {
        let wrong: Vec<String> =
            in_parallel(Mutant::all("mutants"), |mutant| judge(&mutant)).into_iter().flatten().collect();
        assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    }
}

/// Runs the case that claims a mutant. Returns an error text if the case does not find it.
fn judge(mutant: &Mutant) -> Option<String> {
    let (found_by, breaks) = (mutant.field("Found-by"), mutant.field("Breaks"));
    let volproof = Volproof::at(Planted::volproof()).env(SWITCH, &mutant.name);
    let ended = volproof.arg("run").arg(found_by).args("--report out").run();
    let bad = ended.results().bad();
    let named = bad
        .iter()
        .any(|case| case.id == found_by && case.findings.iter().any(|finding| finding.starts_with(breaks)));
    // No driver fails a case in which a controller broke a rule: that is an error.
    let found = matches!(ended.code, Some(1 | 4)) && named;
    (!found).then(|| {
        format!(
            "{}: {found_by} did not find that {breaks} is broken, but {bad:#?}\n{}",
            mutant.name,
            ended.told()
        )
    })
}

/// The control: without its mutants the copy passes the same cases.
#[test]
fn the_copy_without_a_mutant_is_clean() {
    if !runs_cases() {
        return;
    }
    let mutants = Mutant::all("mutants");
    let cases: BTreeSet<&str> = mutants.iter().map(|mutant| mutant.field("Found-by")).collect();
    let mut volproof = Volproof::at(Planted::volproof()).args("run --report out");
    for case in &cases {
        volproof = volproof.arg(case);
    }
    let ended = volproof.run();
    assert_eq!(ended.code, Some(0), "{}", ended.told());
    let results = ended.results();
    let passed = results.cases().iter().filter(|case| case.status == "passed").count();
    assert_eq!(passed, cases.len(), "{}", ended.told());
}
