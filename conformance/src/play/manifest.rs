//! Manifests in a scenario or in files, as objects of the API. Touches nothing.

use api::{Object, Pod, Resource};
use api_convert::ConvertError;
use serde_json::{Value, json};

use super::scenario::{Bad, known};

/// The name in an object's metadata; empty if there is none.
pub(crate) fn name(document: &Value) -> &str {
    document.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default()
}

/// Looks for what the API server would refuse, and for a pod that nothing can be learned from. An error comes with
/// the word it is about.
pub(super) fn check_pod(pod: &Value) -> Result<(), (String, Bad)> {
    let name = name(pod);
    if name.is_empty() {
        return Err((String::new(), Bad::at(0, "a pod has no name")));
    }
    let list =
        |value: &Value, key: &str| value.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
    let word = |value: &Value| value.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
    let spec = pod.get("spec").cloned().unwrap_or_default();
    let volumes: Vec<String> = list(&spec, "volumes").iter().map(word).collect();
    if volumes.is_empty() {
        let bad = Bad::at(0, format!("the pod `{name}` names no volume"));
        return Err((name.to_owned(), bad));
    }
    let volumes: Vec<&str> = volumes.iter().map(String::as_str).collect();
    for kind in ["initContainers", "containers", "ephemeralContainers"] {
        for container in list(&spec, kind) {
            for used in list(&container, "volumeMounts").iter().chain(&list(&container, "volumeDevices")) {
                let used = word(used);
                known(&format!("volume in the pod `{name}` named"), &used, &volumes)
                    .map_err(|bad| (used.clone(), bad))?;
            }
        }
    }
    Ok(())
}

/// A manifest of a scenario, which has no `kind`.
pub(crate) fn of_kind(kind: &str, document: &Value, root: &str) -> Result<Object, ConvertError> {
    let mut document = document.clone();
    if let Value::Object(fields) = &mut document {
        fields.insert("kind".to_owned(), json!(kind));
    }
    let all = objects(document, root)?;
    all.into_iter().next().ok_or(ConvertError::NoKind)
}

/// Every object of a document. `ROOTPATH` is replaced by a directory of the run.
pub(crate) fn objects(mut document: Value, root: &str) -> Result<Vec<Object>, ConvertError> {
    as_yaml_1_1(&mut document, "");
    place(&mut document, root);
    api_convert::objects(document)
}

/// A pod of a scenario.
pub(crate) fn pod(document: &Value, root: &str) -> Result<Pod, ConvertError> {
    let object = of_kind("Pod", document, root)?;
    Ok(Pod::from_object(object).map(|pod| Pod::clone(&pod)).unwrap_or_default())
}

/// Kubernetes reads YAML as it was: modes are octal without saying so, and amounts may be numbers.
fn as_yaml_1_1(value: &mut Value, key: &str) {
    match value {
        Value::Object(fields) => fields.iter_mut().for_each(|(key, value)| as_yaml_1_1(value, key)),
        Value::Array(items) => items.iter_mut().for_each(|item| as_yaml_1_1(item, key)),
        Value::String(text) if matches!(key, "defaultMode" | "mode") => {
            let digits = text.strip_prefix("0o").unwrap_or(text);
            if let Ok(mode) = u32::from_str_radix(digits, 8) {
                *value = json!(mode);
            }
        }
        Value::Number(amount) if AMOUNTS.contains(&key) => *value = json!(amount.to_string()),
        _ => {}
    }
}

/// The keys of amounts.
const AMOUNTS: [&str; 6] = ["storage", "memory", "cpu", "ephemeral-storage", "sizeLimit", "divisor"];

fn place(value: &mut Value, root: &str) {
    match value {
        Value::Object(fields) => fields.values_mut().for_each(|value| place(value, root)),
        Value::Array(items) => items.iter_mut().for_each(|item| place(item, root)),
        Value::String(text) if text.contains("ROOTPATH") => *text = text.replace("ROOTPATH", root),
        _ => {}
    }
}
