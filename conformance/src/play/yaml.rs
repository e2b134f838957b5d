//! YAML as Kubernetes' own reader takes it. Touches nothing.
//!
//! That reader knows keys that merge maps, has more words for yes and no, and takes a number for a text where a text
//! is meant.

use serde_yaml_ng::{Error, Value};

/// Makes of a document what Kubernetes would read.
///
/// # Errors
/// When something is merged that is no map.
pub(super) fn as_kubernetes_reads(document: &mut Value) -> Result<(), Error> {
    document.apply_merge()?;
    take("", document);
    Ok(())
}

/// Converts a value to the type that its key has.
fn take(key: &str, value: &mut Value) {
    match value {
        Value::Mapping(fields) => fields.iter_mut().for_each(|(name, value)| {
            // In a map of texts the names are the user's own.
            let key = if TEXT_MAPS.contains(&key) { "name" } else { name.as_str().unwrap_or_default() };
            take(key, value);
        }),
        Value::Sequence(items) => items.iter_mut().for_each(|item| take(key, item)),
        Value::String(word) if FLAGS.contains(&key) => {
            if let Some(flag) = flag(word) {
                *value = Value::Bool(flag);
            }
        }
        Value::Number(number) if TEXTS.contains(&key) => *value = Value::String(number.to_string()),
        Value::Bool(flag) if TEXTS.contains(&key) => *value = Value::String(flag.to_string()),
        _ => {}
    }
}

fn flag(word: &str) -> Option<bool> {
    match word.to_ascii_lowercase().as_str() {
        "y" | "yes" | "on" => Some(true),
        "n" | "no" | "off" => Some(false),
        _ => None,
    }
}

/// The keys of a yes or no, in scenarios and in manifests.
const FLAGS: &[&str] = &[
    "attachRequired",
    "block",
    "controller",
    "disable",
    "duplicate",
    "force",
    "forward",
    "hang",
    "optional",
    "podInfoOnMount",
    "pvReadOnly",
    "readOnly",
    "requiresRepublish",
];

/// The keys of a text, or of texts in a list.
const TEXTS: &[&str] = &[
    "claimName",
    "cmd",
    "code",
    "desc",
    "dropPods",
    "dropVolumes",
    "key",
    "label",
    "mountPath",
    "name",
    "namespace",
    "path",
    "pod",
    "secretName",
    "subPath",
    "tokenAudiences",
    "uid",
    "volume",
];

/// The keys of maps whose values are texts.
const TEXT_MAPS: &[&str] = &["annotations", "data", "labels", "parameters", "stringData", "volumeAttributes"];

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(written: &str, read: &str) {
        let mut value: Value = serde_yaml_ng::from_str(written).expect("it is YAML");
        as_kubernetes_reads(&mut value).expect("it can be read");
        let read: Value = serde_yaml_ng::from_str(read).expect("it is YAML");
        assert_eq!(value, read);
    }

    #[test]
    fn maps_are_merged_and_what_is_said_again_wins() {
        check("[&a {do: addPod, pod: a}, {<<: *a, pod: b}]", "[{do: addPod, pod: a}, {do: addPod, pod: b}]");
        let mut wrong: Value = serde_yaml_ng::from_str("{<<: x}").expect("it is YAML");
        assert!(as_kubernetes_reads(&mut wrong).is_err());
    }

    #[test]
    fn there_are_many_words_for_yes_and_no() {
        check("{force: yes, hang: Off, readOnly: on}", "{force: true, hang: false, readOnly: true}");
        // Other values are left for the next reader to refuse, and a text "yes" stays a text.
        check("{force: maybe, cmd: yes}", "{force: maybe, cmd: 'yes'}");
    }

    #[test]
    fn a_number_may_stand_for_a_text() {
        check("{cmd: 5, ms: 5, pod: true}", "{cmd: '5', ms: 5, pod: 'true'}");
        check("{data: {k: 1, mode: true}, dropPods: [1]}", "{data: {k: '1', mode: 'true'}, dropPods: ['1']}");
    }
}
