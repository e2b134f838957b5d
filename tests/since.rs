//! `--since`: a run lists the differences from an earlier one, also in `results.json`.

use std::path::Path;

use serde_json::Value;
use tests::{Ended, Volproof, has_root};

const CASE: &str = "csi::calls::unknown_list_token_is_refused";

/// Runs the case, with its report below `place`.
fn run(place: &Path, report: &str, sabotage: Option<&str>, since: Option<&str>) -> Ended {
    let mut volproof = Volproof::new().arg("run").arg("--report").arg(place.join(report));
    if let Some(sabotage) = sabotage {
        volproof = volproof.arg("--sabotage").arg(sabotage);
    }
    if let Some(since) = since {
        volproof = volproof.arg("--since").arg(place.join(since));
    }
    volproof.arg(CASE).run()
}

#[test]
fn fault_is_new_and_still_there_and_mended() {
    if !has_root() {
        return;
    }
    let place = tempfile::tempdir().expect("a directory");
    let broken = Some("list-accepts-any-token");
    let check = |report: &str, sabotage, since: &str, tally: &str, list: &str| {
        let ended = run(place.path(), report, sabotage, Some(since));
        assert!(ended.stdout.contains(&format!(": {tally}\n")), "{}", ended.told());
        let text = std::fs::read_to_string(place.path().join(report).join("results.json")).expect("results");
        let results: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(results["since"][list][0]["case"], CASE, "{}", results["since"]);
        let page = std::fs::read_to_string(place.path().join(report).join("report.html")).expect("a report");
        assert!(page.contains(tally), "the report has it");
    };
    assert_eq!(run(place.path(), "honest", None, None).code, Some(0));
    check("broken", broken, "honest", "1 new", "new");
    check("again", broken, "broken/results.json", "1 still there", "still_there");
    // The results that it compares with may be those that it replaces.
    check("again", None, "again", "1 mended", "mended");
}
