//! Snapshots in lines: states, mounts, tree, metadata, claims, loop devices.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::read::{Line, Trace};
use super::section::Section;
use super::words;

/// All snapshots of a trace.
pub(super) fn sections(trace: &Trace) -> Vec<Section> {
    let mut labels: BTreeMap<&str, usize> = BTreeMap::new();
    let (mut open, mut sections) = (BTreeMap::new(), Vec::new());
    for line in trace.lines() {
        match line.ev.as_str() {
            "rpc_start" => {
                let volume = line.get("req").get("volumeId").and_then(Value::as_str).unwrap_or_default();
                open.insert(line.get("id").as_u64(), volume.to_owned());
            }
            "rpc_end" => drop(open.remove(&line.get("id").as_u64())),
            // The restarted node waits for no earlier call.
            "restart" => open.clear(),
            "snapshot" => {
                let label = line.text("label");
                let count = labels.entry(label).or_default();
                *count += 1;
                let name = match *count {
                    1 => format!("snapshot `{label}`"),
                    count => format!("snapshot `{label}`, the {count}. of that name"),
                };
                sections.extend(sections_of(line, &name, &open.values().cloned().collect()));
            }
            _ => {}
        }
    }
    sections
}

fn sections_of(line: &Line, name: &str, busy: &BTreeSet<String>) -> Vec<Section> {
    let section = |about: &str, mut lines: Vec<String>| {
        lines.sort();
        Section::new(format!("{name}: {about}"), lines)
    };
    vec![
        // One line even for an empty snapshot, so that a snapshot of one trace only is a difference.
        Section::new(name, vec!["there is one".to_owned()]),
        section("states", states(line.get("asw"), busy)),
        section("mounts", texts(line.get("mounts")).map(|text| mount(&text)).collect()),
        section("tree", tree(line.get("tree"))),
        section("vol_data.json", metadata(line.get("vol_data"))),
        section("claims", claims(line.get("pvcs"))),
        section("loop devices", texts(line.get("loop_devices")).map(|text| backing(&text)).collect()),
    ]
}

fn texts(list: &Value) -> impl Iterator<Item = String> + '_ {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned)
}

/// The names of the states. What is marked while a call is under way belongs to that call, and a volume that is
/// known but not there is no state to speak of.
fn states(states: &Value, busy: &BTreeSet<String>) -> Vec<String> {
    let all = states.as_object().into_iter().flatten();
    let idle = all
        .filter(|(key, _)| !busy.iter().any(|volume| !volume.is_empty() && key.ends_with(volume.as_str())));
    let named = idle.filter_map(|(key, state)| {
        let state = state.as_str()?.split(' ').next()?;
        (state != "DeviceNotMounted").then(|| format!("{key}: {state}"))
    });
    named.collect()
}

/// `<target> <- <source> root=<…> type=<…> opts=<…> super=<…>`
fn mount(text: &str) -> String {
    let (target, rest) = text.split_once(" <- ").unwrap_or((text, ""));
    let field = |key: &str| {
        let found = rest.split(' ').find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
        found.unwrap_or_default().to_owned()
    };
    let description = words::mount(&field("root"), &field("type"), &field("super"));
    format!("{target} {description} {}", words::options(&field("opts")))
}

/// Every path with its mode, owners and link.
fn tree(tree: &Value) -> Vec<String> {
    texts(tree).map(|line| line.split(' ').map(words::path).collect::<Vec<_>>().join(" ")).collect()
}

/// One line for each key, so that a difference is about a key.
fn metadata(files: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    for (path, data) in files.as_object().into_iter().flatten() {
        match data {
            Value::Object(keys) => {
                lines.extend(keys.iter().map(|(key, value)| format!("{path} {key}={value}")))
            }
            other => lines.push(format!("{path} {other}")),
        }
    }
    lines
}

fn claims(claims: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    for claim in claims.as_array().into_iter().flatten() {
        let name = claim.get("name").and_then(Value::as_str).unwrap_or_default();
        for (key, value) in claim.get("status").and_then(Value::as_object).into_iter().flatten() {
            match (key.as_str(), value) {
                // When something was noticed is a time.
                ("conditions", Value::Array(conditions)) => {
                    lines.extend(conditions.iter().map(|condition| {
                        let text = |key: &str| condition.get(key).and_then(Value::as_str).unwrap_or_default();
                        format!("{name} condition {}={}", text("type"), text("status"))
                    }))
                }
                _ => lines.push(format!("{name} {key}={value}")),
            }
        }
    }
    lines
}

/// The path in `/dev/loop3: [0006]:96 (<path>)`: the number of the device and the inode differ between runs.
fn backing(text: &str) -> String {
    let path = text.split_once('(').map_or(text, |(_, path)| path.trim_end_matches(')'));
    format!("one over {path}")
}
