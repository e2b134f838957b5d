//! Root of a user namespace, as in a rootless container, is an ordinary user to the kernel: no driver is blamed for that.

use std::path::Path;
use std::process::Command;

use tests::{Ended, Volproof, built};

/// Runs volproof as root of a namespace of its own, where such may be made.
fn run(args: &str) -> Option<Ended> {
    let allowed = Command::new("unshare").args(["-r", "true"]).output();
    if !allowed.is_ok_and(|output| output.status.success()) {
        eprintln!("no user namespace can be made here");
        return None;
    }
    Some(namespaced(args).run())
}

fn namespaced(args: &str) -> Volproof {
    // Ledgers go below the place for temporary files, which is the test's own.
    Volproof::at(Path::new("unshare")).args("-r").arg(built()).args(args).env("XDG_RUNTIME_DIR", "")
}

#[test]
fn root_of_a_user_namespace_runs_rootless_and_says_so() {
    let Some(ended) =
        run("run csi::lifecycle::file_system_is_set_up_and_torn_down csi::publish --report out --jobs 2")
    else {
        return;
    };
    assert!(ended.stdout.contains("rootless, as root of a user namespace"), "{}", ended.told());
    assert_eq!(ended.results().findings(), [], "{}", ended.told());
    assert_eq!(ended.code, Some(0), "{}", ended.told());
}

/// Whether a case needs a device is all that decides: directories are provisioned, bound and published.
#[test]
fn claims_for_directories_need_no_root() {
    let Some(ended) = run("run csi::claims --report out --jobs 2") else { return };
    assert_eq!(ended.code, Some(0), "{}", ended.told());
    let cases = ended.results().cases();
    let skipped = cases.iter().filter(|case| case.status != "passed");
    let skipped: Vec<&str> = skipped.map(|case| case.id.as_str()).collect();
    assert_eq!(skipped, ["csi::claims::claim_for_a_device_gets_one"], "{}", ended.told());
}

#[test]
fn tier_host_is_refused_to_root_of_a_user_namespace() {
    let Some(ended) = run("run csi::publish --tier host") else { return };
    assert_eq!(ended.code, Some(4), "{}", ended.told());
    assert!(ended.stderr.contains("root of a user namespace, and not of the machine"), "{}", ended.told());
}

#[test]
fn run_without_a_report_keeps_the_logs_of_the_cases_that_failed() {
    let (failed, passed) = ("unknown_list_token_is_refused", "name_of_128_bytes_is_accepted");
    let cases = format!("csi::calls::{failed} csi::calls::{passed} csi::calls::size_limit_is_respected");
    let Some(ended) = run(&format!("run {cases} --sabotage list-accepts-any-token")) else { return };
    assert_eq!(ended.code, Some(1), "{}", ended.told());
    let journal =
        |case: &str| Path::new(&kept_logs(&ended)).join(format!("cases/csi::calls::{case}/journal.txt"));
    assert!(journal(failed).is_file(), "{}", ended.told());
    assert!(!journal(passed).exists(), "{}", ended.told());
}

/// The directory of logs that a failed run has printed.
fn kept_logs(failed: &Ended) -> String {
    let place =
        failed.stdout.split_once("the logs stay in ").and_then(|(_, rest)| rest.split_once(" until "));
    place.unwrap_or_else(|| panic!("{}", failed.told())).0.to_owned()
}

/// In a namespace, since there the runs of others are out of sight.
#[test]
fn failed_run_prints_its_log_directory_and_sweep_removes_it_on_request() {
    let Some(failed) =
        run("run csi::publish::read_only_claim_cannot_be_written --sabotage publish-ignores-read-only")
    else {
        return;
    };
    assert_eq!(failed.code, Some(1), "{}", failed.told());
    let place = kept_logs(&failed);
    assert!(Path::new(&place).join("cases").is_dir(), "{}", failed.told());
    let logs = Path::new(&place).parent().expect("a directory is in one");
    let cache = logs.parent().and_then(Path::parent).expect("the logs are in the cache");
    assert!(logs.ends_with("volproof/logs"), "{place}");
    for (flags, says, is_there) in [
        ("", "1 report directory of ended runs", true),
        ("--reports=1d", "removed 0 report directories", true),
        ("--reports --dry-run", "would remove ", true),
        ("--reports", "removed 1 report directory", false),
        ("", "nothing to sweep", false),
    ] {
        let swept =
            namespaced(&format!("sweep {flags}")).env("XDG_CACHE_HOME", &cache.to_string_lossy()).run();
        assert_eq!(swept.code, Some(0), "{flags}: {}", swept.told());
        assert!(swept.stdout.contains(says), "{flags}: {}", swept.told());
        assert_eq!(Path::new(&place).exists(), is_there, "{flags}: {}", swept.told());
    }
    assert!(!cache.join("volproof").exists(), "an empty cache stays");
}
