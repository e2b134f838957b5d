//! Cases that share a driver: a failed one runs again alone, and a failure that needs earlier cases is reported with them.

use tests::{Ended, Volproof, built, has_root};

/// Runs cases one after the other against fake-csi with these arguments.
fn run(arguments: &str, cases: &str) -> Ended {
    let driver = format!(
        "{} __fake-csi --endpoint={{endpoint}} --node={{node}} --state-dir={{state}} {arguments}",
        built().display()
    );
    let run = Volproof::new().args("run --jobs 1 --report out --driver-cmd").arg(driver);
    run.args(cases).run()
}

/// Each case creates one or two volumes. The driver dies at its sixth CreateVolume, so never with one case alone.
const CASES: &str = "csi::calls::detach_without_a_node_is_ok csi::calls::name_of_128_bytes_is_accepted \
    csi::calls::size_limit_is_respected csi::calls::taken_name_with_another_size_is_refused \
    csi::calls::volume_in_use_is_not_deleted";

#[test]
fn failure_that_needs_earlier_cases_is_reported_with_them() {
    if !has_root() {
        return;
    }
    let ended = run(r#"--fault '{"method":"CreateVolume","skip":5,"times":1,"crash":true}'"#, CASES);
    let failed = ended.results().bad();
    assert_eq!((ended.code, failed.len()), (Some(1), 1), "{}", ended.told());
    let case = &failed[0];
    assert_eq!(case.status, "driver_exited", "{}", ended.told());
    assert!(ended.told().contains("breaks on the same driver after"), "{}", ended.told());
    // The reported command, with the earlier cases and the case in one lane, reproduces the failure.
    let ids = format!("{} {}", case.after.join(" "), case.id);
    assert!(!case.after.is_empty() && case.again.ends_with(&format!("--jobs 1 {ids}")), "{case:?}");
    // The logs are those of the shared driver, and not of the case alone.
    let logs = ended.directory.path().join("out/cases/shared-driver-1").join(&case.id);
    let log =
        std::fs::read_to_string(logs.join("driver.log")).expect("the driver's log is beside the case's");
    assert!(log.contains("ordered fault"), "{log}");
    let passed = ended.results().cases().into_iter().filter(|case| case.status == "passed").count();
    assert_eq!(passed, 4, "{}", ended.told());
}

/// A fault in one of several cases is reported for that case alone, and every case has a result.
#[test]
fn failure_of_one_case_is_reported_for_it_alone() {
    if !has_root() {
        return;
    }
    // None of these cases lists volumes.
    let ended = run("--sabotage list-accepts-any-token", CASES);
    assert_eq!(ended.code, Some(0), "{}", ended.told());
    let ended = run("--sabotage list-accepts-any-token", "csi::calls");
    let results = ended.results();
    let failed = results.bad();
    let ids: Vec<&str> = failed.iter().map(|case| case.id.as_str()).collect();
    assert_eq!(ids, ["csi::calls::unknown_list_token_is_refused"], "{}", ended.told());
    assert!(failed[0].after.is_empty(), "{failed:?}");
    let listed = Volproof::new().args("list csi::calls").run();
    let listed: Vec<&str> = listed.stdout.lines().filter(|line| line.starts_with("csi::")).collect();
    let mut ids: Vec<String> = results.cases().into_iter().map(|case| case.id).collect();
    ids.sort_unstable();
    assert_eq!(ids, listed, "{}", ended.told());
}

/// The order of a run is drawn from its seed, and is the same each time.
#[test]
fn shuffled_cases_come_in_an_order_of_the_seed() {
    if !has_root() {
        return;
    }
    let order = |seed: &str| -> Vec<String> {
        let ended = run("", &format!("--shuffle --seed {seed} csi::identity"));
        assert_eq!(ended.code, Some(0), "{}", ended.told());
        let passed = ended.stdout.lines().filter(|line| line.trim_start().starts_with("PASS"));
        passed.filter_map(|line| line.split(' ').next_back()).map(str::to_owned).collect()
    };
    let orders = ["1", "2", "1"].map(order);
    assert_eq!(orders[0], orders[2]);
    assert_ne!(orders[0], orders[1]);
    let sorted = orders.map(|mut order| {
        order.sort();
        order
    });
    assert_eq!(sorted[0], sorted[1]);
}
