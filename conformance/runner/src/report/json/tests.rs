//! `results.json` against its schema, both ways: what is written fits, and what would not fit is noticed.

use serde_json::{Value, json};

use crate::report::human::tests::full_run;

fn schema() -> Value {
    serde_json::from_str(include_str!("../../../../schema/results.schema.json")).expect("the schema is JSON")
}

#[test]
fn report_fits_its_schema() {
    let schema = schema();
    let run = serde_json::to_value(full_run()).expect("it serialises");
    assert_eq!(complaints(&schema, &schema, &run, "run"), [] as [String; 0]);
}

/// Without this, a checker that looks at nothing would pass the test above.
#[test]
fn report_outside_the_schema_is_noticed() {
    let schema = schema();
    let mut run = serde_json::to_value(full_run()).expect("it serialises");
    run["cases"][0]["status"] = json!("fine");
    run["cases"][0]["mood"] = json!("good");
    run["header"]["lanes"] = json!("two");
    run.as_object_mut().expect("an object").remove("seconds");
    assert_eq!(
        complaints(&schema, &schema, &run, "run"),
        [
            "run lacks seconds",
            "run.cases[0] has mood",
            "run.cases[0].status is none of its values",
            "run.header.lanes is no integer",
        ]
    );
}

/// The part of JSON schema that our schema uses.
fn complaints(root: &Value, schema: &Value, value: &Value, at: &str) -> Vec<String> {
    if let Some(reference) = schema["$ref"].as_str() {
        let target = root.pointer(reference.trim_start_matches('#')).expect("references resolve");
        return complaints(root, target, value, at);
    }
    let fits = match schema["type"].as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("integer") => value.is_u64(),
        Some("number") => value.is_number(),
        Some("boolean") => value.is_boolean(),
        other => panic!("the schema uses {other:?}, which this test does not know"),
    };
    if !fits {
        return vec![format!("{at} is no {}", schema["type"].as_str().unwrap_or_default())];
    }
    let mut found = Vec::new();
    if let Some(values) = schema["enum"].as_array().filter(|values| !values.contains(value)) {
        found.push(format!("{at} is none of its values"));
        assert!(!values.is_empty());
    }
    for (index, item) in value.as_array().into_iter().flatten().enumerate() {
        found.extend(complaints(root, &schema["items"], item, &format!("{at}[{index}]")));
    }
    if let Some(object) = value.as_object() {
        let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
        found
            .extend(required.filter(|key| !object.contains_key(*key)).map(|key| format!("{at} lacks {key}")));
        for (key, value) in object {
            match schema["properties"].get(key) {
                Some(property) => found.extend(complaints(root, property, value, &format!("{at}.{key}"))),
                None => found.push(format!("{at} has {key}")),
            }
        }
    }
    found
}
