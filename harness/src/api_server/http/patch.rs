//! The four ways in which clients change a part of an object: JSON patch, merge patch, strategic merge patch and apply,
//! which is treated as a strategic merge that may create. Touches nothing.

use serde_json::{Map, Value};

/// The kind of a patch, from its media type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Json,
    Merge,
    Strategic,
    Apply,
}

impl Format {
    pub(super) fn of(media_type: &str) -> Option<Self> {
        match media_type {
            "application/json-patch+json" => Some(Self::Json),
            "application/merge-patch+json" => Some(Self::Merge),
            "application/strategic-merge-patch+json" => Some(Self::Strategic),
            // Clients announce YAML, and most of them send JSON, which is valid YAML.
            "application/apply-patch+yaml" => Some(Self::Apply),
            _ => None,
        }
    }

    /// The object after the patch.
    ///
    /// # Errors
    /// Why the patch does not fit.
    pub(super) fn apply(self, object: &Value, patch: &Value) -> Result<Value, String> {
        let mut object = object.clone();
        match self {
            Self::Json => {
                let steps = patch.as_array().ok_or("a JSON patch is a list of operations")?;
                steps.iter().try_for_each(|step| operate(&mut object, step))?;
            }
            Self::Merge => merge(&mut object, patch),
            Self::Strategic | Self::Apply => strategic(&mut object, patch, ""),
        }
        Ok(object)
    }
}

fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(target) = target else { return };
    for (key, value) in patch {
        match value {
            Value::Null => drop(target.remove(key)),
            value => merge(target.entry(key.clone()).or_insert(Value::Null), value),
        }
    }
}

/// The field that identifies the items of a list, for lists that are merged and not replaced.
fn merge_key(list: &str) -> Option<&'static str> {
    match list {
        "containers"
        | "initContainers"
        | "ephemeralContainers"
        | "volumes"
        | "env"
        | "imagePullSecrets"
        | "drivers"
        | "secrets" => Some("name"),
        "conditions" | "addresses" => Some("type"),
        "ownerReferences" => Some("uid"),
        "taints" => Some("key"),
        "volumeMounts" => Some("mountPath"),
        "volumeDevices" => Some("devicePath"),
        "ports" => Some("port"),
        "hostAliases" => Some("ip"),
        _ => None,
    }
}

fn strategic(target: &mut Value, patch: &Value, list: &str) {
    match patch {
        Value::Object(patch) => {
            if patch.get("$patch").is_some_and(|word| word == "replace") || !target.is_object() {
                *target = Value::Object(Map::new());
            }
            let Value::Object(target) = target else { return };
            for (key, value) in patch {
                strategic_field(target, key, value);
            }
        }
        Value::Array(items) => merge_list(target, items, list),
        scalar => *target = scalar.clone(),
    }
}

fn strategic_field(target: &mut Map<String, Value>, key: &str, value: &Value) {
    if let Some(list) = key.strip_prefix("$deleteFromPrimitiveList/") {
        let gone = value.as_array().cloned().unwrap_or_default();
        if let Some(Value::Array(items)) = target.get_mut(list) {
            items.retain(|item| !gone.contains(item));
        }
    } else if !key.starts_with('$') {
        match value {
            Value::Null => drop(target.remove(key)),
            value => strategic(target.entry(key).or_insert(Value::Null), value, key),
        }
    }
}

fn merge_list(target: &mut Value, items: &[Value], list: &str) {
    let replaces = |item: &Value| item.get("$patch").is_some_and(|word| word == "replace");
    let (Some(merged), false) = (target.as_array_mut(), items.iter().any(replaces)) else {
        let kept = items.iter().filter(|item| item.get("$patch").is_none());
        *target = Value::Array(kept.cloned().collect());
        return;
    };
    // Finalizers have no key: they are a set, to which the patch adds.
    let key = merge_key(list);
    for item in items {
        let same = |known: &Value| match key {
            Some(key) if list == "ports" => {
                known[key] == item[key]
                    || known["containerPort"] == item["containerPort"] && !item[key].is_number()
            }
            Some(key) => known[key] == item[key],
            None => list == "finalizers" && known == item,
        };
        let at = merged.iter().position(same);
        match (at, item.get("$patch").is_some_and(|word| word == "delete")) {
            (Some(at), true) => drop(merged.remove(at)),
            (None, true) => {}
            (Some(at), false) => strategic(&mut merged[at], item, ""),
            (None, false) if key.is_none() && list != "finalizers" => {
                *target = Value::Array(items.to_vec());
                return;
            }
            (None, false) => merged.push(item.clone()),
        }
    }
    if items.is_empty() && key.is_none() && list != "finalizers" {
        merged.clear();
    }
}

fn operate(object: &mut Value, step: &Value) -> Result<(), String> {
    let text = |key: &str| step[key].as_str().ok_or_else(|| format!("an operation has no `{key}`"));
    let path = text("path")?;
    let value = || step.get("value").cloned().ok_or_else(|| format!("there is no value for {path}"));
    match text("op")? {
        "add" => put(object, path, value()?, true),
        "replace" => put(object, path, value()?, false),
        "remove" => take(object, path).map(drop),
        "move" => {
            let moved = take(object, text("from")?)?;
            put(object, path, moved, true)
        }
        "copy" => {
            let from = text("from")?;
            let copied = object.pointer(from).cloned().ok_or_else(|| format!("there is no {from}"))?;
            put(object, path, copied, true)
        }
        "test" => match object.pointer(path) == Some(&value()?) {
            true => Ok(()),
            false => Err(format!("testing value {path} failed")),
        },
        other => Err(format!("unknown operation `{other}`")),
    }
}

/// The parent of the value at a path, and the last part of the path.
fn parent<'a>(object: &'a mut Value, path: &str) -> Result<(&'a mut Value, String), String> {
    let (above, last) = path.rsplit_once('/').ok_or_else(|| format!("`{path}` is no path"))?;
    let parent = object.pointer_mut(above).ok_or_else(|| format!("there is no {above}"))?;
    Ok((parent, last.replace("~1", "/").replace("~0", "~")))
}

fn put(object: &mut Value, path: &str, value: Value, adds: bool) -> Result<(), String> {
    if path.is_empty() {
        *object = value;
        return Ok(());
    }
    let (parent, last) = parent(object, path)?;
    let missing = || format!("there is no {path}");
    match parent {
        Value::Object(map) if adds || map.contains_key(&last) => drop(map.insert(last, value)),
        Value::Array(items) if adds && last == "-" => items.push(value),
        Value::Array(items) => {
            let at: usize = last.parse().map_err(|_| missing())?;
            match (adds, at.cmp(&items.len())) {
                (true, std::cmp::Ordering::Less | std::cmp::Ordering::Equal) => items.insert(at, value),
                (false, std::cmp::Ordering::Less) => items[at] = value,
                _ => return Err(missing()),
            }
        }
        _ => return Err(missing()),
    }
    Ok(())
}

fn take(object: &mut Value, path: &str) -> Result<Value, String> {
    let (parent, last) = parent(object, path)?;
    let missing = || format!("there is no {path}");
    match parent {
        Value::Object(map) => map.remove(&last).ok_or_else(missing),
        Value::Array(items) => {
            let at: usize = last.parse().map_err(|_| missing())?;
            if at < items.len() { Ok(items.remove(at)) } else { Err(missing()) }
        }
        _ => Err(missing()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object() -> Value {
        json!({
            "metadata": { "labels": { "a": "1", "b": "2" }, "finalizers": ["x"] },
            "spec": { "list": [1, 2], "containers": [{ "name": "one", "image": "a" }, { "name": "two" }] },
        })
    }

    #[track_caller]
    fn check(format: Format, patch: &Value, path: &str, expected: &Value) {
        let patched = format.apply(&object(), patch).unwrap();
        assert_eq!(patched.pointer(path).unwrap_or(&Value::Null), expected, "{patch}");
    }

    #[test]
    fn merge_patch_replaces_lists_and_removes_nulls() {
        check(
            Format::Merge,
            &json!({ "metadata": { "labels": { "a": null } } }),
            "/metadata/labels",
            &json!({ "b": "2" }),
        );
        check(Format::Merge, &json!({ "spec": { "list": [3] } }), "/spec/list", &json!([3]));
        check(Format::Merge, &json!({ "status": { "at": { "x": 1 } } }), "/status/at/x", &json!(1));
    }

    #[test]
    fn strategic_merge_patch_merges_lists_by_their_keys() {
        let image = json!({ "spec": { "containers": [{ "name": "two", "image": "b" }] } });
        let merged = json!([{ "name": "one", "image": "a" }, { "name": "two", "image": "b" }]);
        check(Format::Strategic, &image, "/spec/containers", &merged);
        let delete = json!({ "spec": { "containers": [{ "name": "one", "$patch": "delete" }] } });
        check(Format::Strategic, &delete, "/spec/containers", &json!([{ "name": "two" }]));
        check(
            Format::Strategic,
            &json!({ "metadata": { "finalizers": ["y"] } }),
            "/metadata/finalizers",
            &json!(["x", "y"]),
        );
        let gone = json!({ "metadata": { "$deleteFromPrimitiveList/finalizers": ["x"] } });
        check(Format::Strategic, &gone, "/metadata/finalizers", &json!([]));
        check(Format::Strategic, &json!({ "spec": { "list": [3] } }), "/spec/list", &json!([3]));
        check(Format::Strategic, &json!({ "spec": { "list": [] } }), "/spec/list", &json!([]));
    }

    #[test]
    fn json_patch_does_its_operations_in_their_order() {
        let add = json!([{ "op": "add", "path": "/metadata/labels/c~1d", "value": "3" }]);
        check(Format::Json, &add, "/metadata/labels/c~1d", &json!("3"));
        let several = json!([
            { "op": "test", "path": "/spec/list/0", "value": 1 },
            { "op": "remove", "path": "/spec/list/0" },
            { "op": "add", "path": "/spec/list/-", "value": 9 },
            { "op": "replace", "path": "/spec/list/0", "value": 8 },
            { "op": "copy", "from": "/spec/list", "path": "/spec/copy" },
        ]);
        check(Format::Json, &several, "/spec/copy", &json!([8, 9]));
        for bad in [
            json!([{ "op": "test", "path": "/spec/list/0", "value": 2 }]),
            json!([{ "op": "replace", "path": "/spec/none", "value": 2 }]),
            json!([{ "op": "remove", "path": "/spec/list/7" }]),
            json!([{ "op": "add", "path": "/none/x", "value": 1 }]),
            json!({ "op": "add" }),
        ] {
            assert!(Format::Json.apply(&object(), &bad).is_err(), "{bad}");
        }
    }
}
