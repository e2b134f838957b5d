//! Each sabotage of fake-csi is found, by the case that claims it, as exactly one finding; the honest driver
//! gives none. The honest run is the control of the sabotaged ones, and they are its control.

use serial_test::file_serial;
use tests::{Ended, Volproof, built, has_root};

/// What each sabotage breaks, and the case that shows it best.
const SABOTAGES: &[(&str, &str, &str)] = &[
    ("unpublish-leaves-mount", "DRV-060", "csi::lifecycle::file_system_in_and_out"),
    ("unstage-succeeds-but-mounted", "DRV-070", "csi::lifecycle::file_system_in_and_out"),
    ("publish-ignores-read-only", "DRV-050", "csi::publish::read_only"),
    ("publish-wrong-volume", "DRV-051", "csi::lifecycle::file_system_in_and_out"),
    ("block-target-is-regular-file", "DRV-052", "csi::block::is_unmapped_in_reverse_order"),
];

/// Runs all cases against fake-csi as it is with these arguments.
fn run_against(arguments: &[&str]) -> Ended {
    let mut command = vec![
        built().display().to_string(),
        "__fake-csi".into(),
        "--endpoint={endpoint}".into(),
        "--node={node}".into(),
        "--state-dir={state}".into(),
    ];
    command.extend(arguments.iter().map(|argument| (*argument).to_owned()));
    let quoted: Vec<String> = command.iter().map(|word| format!("{word:?}")).collect();
    let manifest = format!("name = \"fake.csi.volproof.dev\"\ncommand = [{}]\n", quoted.join(", "));
    Volproof::new().file("driver.toml", &manifest).args("run --driver driver.toml --report out").run()
}

#[test]
#[file_serial(root)]
fn the_honest_driver_is_clean() {
    if has_root() {
        let ended = run_against(&[]);
        assert_eq!(ended.code, Some(0), "{}", ended.told());
        assert_eq!(ended.results().findings(), [], "{}", ended.told());
        assert!(!ended.results().cases().is_empty());
    }
}

#[test]
#[file_serial(root)]
fn each_sabotage_is_one_finding_of_the_case_that_claims_it() {
    if !has_root() {
        return;
    }
    let mut wrong = Vec::new();
    for (sabotage, contract, case) in SABOTAGES {
        let ended = run_against(&["--sabotage", sabotage]);
        let findings = ended.results().findings();
        let found = findings.iter().map(|finding| finding.contract.as_str()).collect::<Vec<_>>();
        let claimed = findings.iter().any(|finding| finding.cases.iter().any(|found| found == case));
        if ended.code != Some(1) || found != [*contract] || !claimed {
            wrong.push(format!(
                "{sabotage}: expected {contract} in {case}, found {findings:#?}\n{}",
                ended.told()
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}
