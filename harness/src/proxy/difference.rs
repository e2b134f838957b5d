//! The differences between two answers to the same request. Touches nothing.

use std::collections::BTreeSet;

use serde_json::Value;

/// The number of differences that are listed.
const LISTED: usize = 3;

/// The number of characters of a value that are shown.
const LENGTH: usize = 60;

/// The fields that differ, with both values: `volume.capacityBytes: "1", then "2"`.
pub(super) fn describe(first: &Value, second: &Value) -> String {
    let mut found = Vec::new();
    collect("", first, second, &mut found);
    let more = found.len().saturating_sub(LISTED);
    found.truncate(LISTED);
    let rest = if more > 0 { format!("; and {more} more") } else { String::new() };
    format!("{}{rest}", found.join("; "))
}

fn collect(path: &str, first: &Value, second: &Value, found: &mut Vec<String>) {
    if first == second {
        return;
    }
    let (Value::Object(before), Value::Object(after)) = (first, second) else {
        found.push(format!("{path}: {}, then {}", short(first), short(second)));
        return;
    };
    let keys: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    for key in keys {
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        let of = |answer: &serde_json::Map<String, Value>| answer.get(key).cloned().unwrap_or_default();
        collect(&path, &of(before), &of(after), found);
    }
}

fn short(value: &Value) -> String {
    if value.is_null() {
        return "nothing".to_owned();
    }
    let text = value.to_string();
    match text.char_indices().nth(LENGTH) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_that_differ_are_listed_with_both_values() {
        let first = json!({ "volume": { "volumeId": "v", "accessibleTopology": [{ "zone": "a" }] } });
        let second = json!({ "volume": { "volumeId": "v", "capacityBytes": "5" } });
        assert_eq!(
            describe(&first, &second),
            r#"volume.accessibleTopology: [{"zone":"a"}], then nothing; volume.capacityBytes: nothing, then "5""#
        );
        assert_eq!(describe(&first, &first), "");
    }

    #[test]
    fn many_and_long_values_are_cut() {
        let all = |value: &str| json!({ "a": value, "b": value, "c": value, "d": value, "e": value });
        let text = describe(&all("x"), &all(&"y".repeat(100)));
        assert!(text.ends_with("yyy…; and 2 more") && text.len() < 300, "{text}");
    }
}
