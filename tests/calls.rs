//! The calls that volproof sends are those of docs/calls.md, which were written from a cluster's.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde_json::Value;
use tests::{Ended, Volproof, built, has_root, root};

/// Cases in which controllers and the node call the driver, with every kind of volume and copy. Some make and delete a volume
/// themselves.
const CASES: &str = "csi::claims:: csi::publish::read_only csi::inline::pod csi::stats::statistics_are_asked_for_each_minute \
                     csi::block::teardown";

/// A row of the page.
#[derive(Debug, Default, PartialEq)]
struct Row {
    /// The time limits in seconds: cases give their own calls other ones.
    limits: BTreeSet<u64>,
    always: BTreeSet<String>,
    sometimes: BTreeSet<String>,
}

fn page() -> BTreeMap<String, Row> {
    let text = fs::read_to_string(root().join("docs/calls.md")).expect("the page");
    let words = |cell: &str| cell.split(", ").filter(|word| !word.is_empty()).map(str::to_owned).collect();
    let rows = text.lines().filter_map(|line| {
        let cells: Vec<&str> = line.strip_prefix('|')?.strip_suffix('|')?.split('|').map(str::trim).collect();
        let [call, _, limit, always, sometimes] = cells[..] else { return None };
        let limits = [limit.strip_suffix(" s")?.parse().ok()?].into();
        Some((call.to_owned(), Row { limits, always: words(always), sometimes: words(sometimes) }))
    });
    rows.collect()
}

/// The rows that the traces of a run would have.
fn recorded(ended: &Ended) -> BTreeMap<String, Row> {
    let mut calls: BTreeMap<String, Vec<(u64, BTreeSet<String>)>> = BTreeMap::new();
    for case in fs::read_dir(ended.directory.path().join("out/cases")).expect("cases").flatten() {
        // The first questions have no trace.
        let trace = fs::read_to_string(case.path().join("trace.jsonl")).unwrap_or_default();
        for line in trace.lines() {
            let event: Value = serde_json::from_str(line).expect("JSON");
            let (Some("rpc_start"), Some(method)) = (event["ev"].as_str(), event["method"].as_str()) else {
                continue;
            };
            let fields = event["req"].as_object().expect("a request").keys().cloned().collect();
            let seconds = event["deadline_s"].as_f64().unwrap_or_default().ceil() as u64;
            calls.entry(method.to_owned()).or_default().push((seconds, fields));
        }
    }
    let row = |(method, calls): (String, Vec<(u64, BTreeSet<String>)>)| {
        let all: BTreeSet<String> = calls.iter().flat_map(|(_, fields)| fields.clone()).collect();
        let is_always = |field: &&String| calls.iter().all(|(_, fields)| fields.contains(*field));
        let always: BTreeSet<String> = all.iter().filter(is_always).cloned().collect();
        let limits = calls.iter().map(|(seconds, _)| *seconds).collect();
        let sometimes = all.difference(&always).cloned().collect();
        (method, Row { limits, always, sometimes })
    };
    calls.into_iter().map(row).collect()
}

#[test]
fn calls_have_the_fields_and_time_limits_of_the_page() {
    if !has_root() {
        return;
    }
    let secrets: String =
        ["provision", "controller_publish", "node_stage", "node_publish", "controller_expand"]
            .into_iter()
            .chain(["node_expand", "snapshot"])
            .map(|kind| format!("{kind} = \"secrets.toml\"\n"))
            .collect();
    let program = built().display();
    let manifest = format!(
        "command = [\"{program}\", \"__fake-csi\", \"--endpoint={{endpoint}}\", \"--node={{node}}\", \
         \"--state-dir={{state}}\"]\nnodes = 2\n[volume]\nfs_types = [\"ext4\"]\ninline = true\n\
         mutable_parameters = {{ tier = \"gold\" }}\nparameters = {{ pool = \"a\" }}\n[secrets]\n{secrets}"
    );
    let run = Volproof::new().file("driver.toml", &manifest).file("secrets.toml", "key = \"open-sesame\"\n");
    let ended = run.args("run --report out --driver driver.toml").args(CASES).run();
    assert_eq!(ended.code, Some(0), "{}", ended.told());

    let (page, recorded) = (page(), recorded(&ended));
    let mut problems = Vec::new();
    for (method, row) in &page {
        let Some(seen) = recorded.get(method) else {
            problems.push(format!("{method} was not called"));
            continue;
        };
        if !row.limits.is_subset(&seen.limits) {
            problems.push(format!("{method} has the time limits {:?}", seen.limits));
        }
        let sent: BTreeSet<&String> = seen.always.union(&seen.sometimes).collect();
        let known: BTreeSet<&String> = row.always.union(&row.sometimes).collect();
        let omitted = row.always.difference(&seen.always).map(|field| format!("{method} omits {field}"));
        let unknown = sent.difference(&known).map(|field| format!("the page has no {field} of {method}"));
        // A field that no call has is not compared with anything.
        let unseen = known.difference(&sent).map(|field| format!("no {method} has {field}"));
        problems.extend(omitted.chain(unknown).chain(unseen));
    }
    let questions = [
        "GetPluginInfo",
        "GetPluginCapabilities",
        "Probe",
        "ControllerGetCapabilities",
        "NodeGetInfo",
        "NodeGetCapabilities",
        "ListVolumes",
    ];
    let is_on_the_page = |method: &String| page.contains_key(method) || questions.contains(&method.as_str());
    let others = recorded.keys().filter(|method| !is_on_the_page(method));
    problems.extend(others.map(|method| format!("the page has no {method}")));
    assert_eq!(problems, Vec::<String>::new());
}
