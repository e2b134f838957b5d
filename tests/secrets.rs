//! No report, log or terminal shows a secret, even if the driver prints it, and a driver that reveals one has a finding.
//! Only the owner can read the files of a report.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tests::{Ended, Volproof, built};

/// The value of the case's secret.
const SECRET: &str = "open-sesame";

/// Runs a case with a secret against a sabotaged driver, as root or not.
fn run(sabotage: &str) -> Ended {
    let backing = if tests::has_root() { "loop" } else { "directory" };
    let manifest = format!(
        "name = \"fake.csi.volproof.dev\"\ncommand = [{:?}, \"__fake-csi\", \"--endpoint={{endpoint}}\", \
         \"--node={{node}}\", \"--state-dir={{state}}\", \"--backing={backing}\", \"--sabotage={sabotage}\"]\n\
         [volume]\ninline = true\n",
        built().display().to_string()
    );
    // A report may not depend on what its directory was made with.
    Volproof::at(Path::new("sh"))
        .args("-c")
        .arg("umask 0 && exec \"$@\"")
        .arg("sh")
        .arg(built())
        .file("driver.toml", &manifest)
        .args("run csi::inline --driver driver.toml --report out --timeout 30s")
        .run()
}

/// All files and directories below a directory, and that itself.
fn all_below(top: &Path) -> Vec<PathBuf> {
    let mut found = vec![top.to_owned()];
    let mut next = 0;
    while let Some(path) = found.get(next).cloned() {
        next += 1;
        let entries = std::fs::read_dir(&path).into_iter().flatten().flatten();
        found.extend(entries.map(|entry| entry.path()));
    }
    found
}

#[track_caller]
fn check_no_secret_is_shown(ended: &Ended) {
    let out = all_below(&ended.directory.path().join("out"));
    let encoded = "b3Blbi1zZXNhbW";
    let holds = |text: &[u8], word: &str| text.windows(word.len()).any(|part| part == word.as_bytes());
    for file in out.iter().filter(|path| path.is_file()) {
        let text = std::fs::read(file).expect("it can be read");
        assert!(!holds(&text, SECRET) && !holds(&text, encoded), "{} holds the secret", file.display());
    }
    assert!(!ended.told().contains(SECRET), "{}", ended.told());
    for path in &out {
        let mode = path.metadata().expect("it is there").permissions().mode() & 0o777;
        assert_eq!(mode & 0o077, 0, "{} has mode {mode:o}", path.display());
    }
    assert!(out.iter().any(|path| path.ends_with("driver.log")), "{out:?}");
}

#[test]
fn error_that_repeats_a_secret_is_the_drivers_and_is_masked() {
    let ended = run("secrets-in-errors");
    assert_eq!(ended.code, Some(1), "{}", ended.told());
    let findings = ended.results().findings();
    let leaks: Vec<_> = findings.iter().filter(|finding| finding.contract == "DRV-094").collect();
    assert_eq!(leaks.len(), 1, "{}", ended.told());
    assert_eq!((leaks[0].method.as_str(), leaks[0].party.as_str()), ("NodePublishVolume", "driver"));
    assert!(leaks[0].cause.contains("`password`"), "{:?}", leaks[0]);
    assert!(findings.iter().all(|finding| finding.party != "manager"), "{findings:?}");
    check_no_secret_is_shown(&ended);
}

#[test]
fn secret_in_the_drivers_log_is_found_and_masked() {
    let ended = run("secrets-in-log");
    assert_eq!(ended.code, Some(1), "{}", ended.told());
    let findings = ended.results().findings();
    assert!(findings.iter().any(|finding| finding.contract == "DRV-094"), "{}", ended.told());
    check_no_secret_is_shown(&ended);
}

/// A driver that refuses the first volumes with the secret of its storage has no case to fail, and a finding.
#[test]
fn refusal_of_the_first_volumes_that_repeats_a_secret_is_a_finding() {
    let fault = r#"{"method":"CreateVolume","code":3,"message":"cannot log in with open-sesame"}"#;
    let run = |secrets: &str| {
        let manifest = format!(
            "command = [{:?}, \"__fake-csi\", \"--endpoint={{endpoint}}\", \"--node={{node}}\", \
             \"--state-dir={{state}}\", \"--backing=directory\", {:?}]\n{secrets}",
            built().display().to_string(),
            format!("--fault={fault}")
        );
        let volproof = Volproof::new().file("driver.toml", &manifest);
        let volproof = volproof.file("login.toml", &format!("password = \"{SECRET}\"\n"));
        volproof.args("run csi::lifecycle --driver driver.toml --report out").run()
    };
    let secret = run("[secrets]\nprovision = \"login.toml\"\n");
    let findings: Vec<_> = secret.results().findings().into_iter().map(|found| found.contract).collect();
    assert_eq!((secret.code, findings), (Some(1), vec!["DRV-094".to_owned()]), "{}", secret.told());
    assert!(!secret.told().contains(SECRET), "{}", secret.told());
    // What no request carried to the driver is no secret of it.
    let public = run("");
    assert_eq!(public.code, Some(3), "{}", public.told());
    assert!(public.results().findings().is_empty() && public.told().contains(SECRET), "{}", public.told());
}
