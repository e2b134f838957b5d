//! `cargo xtask bench`: the measuring programs run, and their report is complete. The figures are not judged.

use std::fs;

use serde_json::Value;
use tests::{is_thorough, xtask};

#[test]
fn bench_writes_each_subject_as_json() {
    if !is_thorough("no measuring program is built and run") {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let (json, picture) = (directory.path().join("bench.json"), directory.path().join("bench.svg"));
    let subjects = ["manager", "cluster", "sim", "harness", "pod"];
    let mut bench = xtask("bench");
    bench.args(subjects).args(["--no-install", "--rounds", "1"]);
    let output = bench.arg("--json").arg(&json).arg("--picture").arg(&picture).output().expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    let report: Value = serde_json::from_str(&fs::read_to_string(json).expect("a report")).expect("JSON");
    for field in ["kernel", "cores", "memory_gib", "cpu"] {
        assert!(!report["machine"][field].is_null(), "the machine has no {field}: {report}");
    }
    let rows = report["rows"].as_array().expect("there are rows");
    let is_root = nix::unistd::geteuid().is_root();
    // The last two need root.
    for subject in subjects.into_iter().take(if is_root { subjects.len() } else { 3 }) {
        assert!(rows.iter().any(|row| row["subject"] == subject), "no row is about {subject}");
    }
    for row in rows {
        assert!(row["name"].is_string() && row["unit"].is_string() && row["median"].is_number(), "{row}");
    }
    let table = String::from_utf8_lossy(&output.stdout);
    let longest = table.lines().map(|line| line.chars().count()).max();
    assert!(longest.is_some_and(|columns| columns <= 100), "{table}");
    assert!(fs::read_to_string(picture).expect("a picture").starts_with("<svg"));
}
