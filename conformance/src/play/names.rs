//! Names as an API server takes them. One that it refuses can be in no cluster, and would be a path here. Touches nothing.

use serde_json::Value;

use super::scenario::Bad;

/// Refuses a document with a name that no API server takes.
pub(super) fn check(document: &Value) -> Result<(), Bad> {
    let text =
        |pointer: &str| document.pointer(pointer).and_then(Value::as_str).filter(|text| !text.is_empty());
    let kind = text("/kind").unwrap_or("object").to_lowercase();
    if let Some(name) = text("/metadata/name") {
        subdomain(&kind, name)?;
    }
    if let Some(namespace) = text("/metadata/namespace") {
        label("namespace", namespace)?;
    }
    if let Some(uid) = text("/metadata/uid") {
        let is_wrong = |letter: char| !letter.is_ascii_alphanumeric() && letter != '-';
        if uid.len() > LABEL || uid.contains(is_wrong) {
            return Err(wrong("uid", uid, "a uid has at most 63 letters, digits and dashes"));
        }
    }
    for (key, what) in [("volumes", "volume"), ("initContainers", "container"), ("containers", "container")] {
        let listed = document.pointer(&format!("/spec/{key}")).and_then(Value::as_array);
        for name in listed.into_iter().flatten().filter_map(|entry| entry.get("name")?.as_str()) {
            label(what, name)?;
        }
    }
    Ok(())
}

/// The most letters of a label, and of a name made of labels.
const LABEL: usize = 63;
const SUBDOMAIN: usize = 253;

/// RFC 1123: labels with dots between them.
pub(super) fn subdomain(what: &str, name: &str) -> Result<(), Bad> {
    let rule = "it must be a lower case RFC 1123 subdomain: at most 253 of a-z, 0-9, `-` and `.`";
    match name.len() <= SUBDOMAIN && name.split('.').all(is_label) {
        true => Ok(()),
        false => Err(wrong(what, name, rule)),
    }
}

fn label(what: &str, name: &str) -> Result<(), Bad> {
    let rule = "it must be an RFC 1123 label: at most 63 of a-z, 0-9 and `-`";
    match name.len() <= LABEL && is_label(name) {
        true => Ok(()),
        false => Err(wrong(what, name, rule)),
    }
}

/// Beginning and ending with a letter or digit.
fn is_label(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty() && text.bytes().all(is_inner) && !text.starts_with('-') && !text.ends_with('-')
}

fn wrong(what: &str, name: &str, rule: &str) -> Bad {
    let shown: String = name.chars().take(80).collect();
    let shown = if shown.len() < name.len() { format!("{shown}…") } else { shown };
    Bad::at(0, format!("no API server takes the name of the {what} {shown:?}: {rule}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn refused(document: &Value) -> String {
        check(document).expect_err("a wrong name").what
    }

    #[test]
    fn names_that_no_api_server_takes_are_refused() {
        let pod = |name: &str, uid: &str, volume: &str| {
            json!({
                "kind": "Pod", "metadata": { "name": name, "uid": uid },
                "spec": { "volumes": [{ "name": volume }], "containers": [{ "name": "main" }] },
            })
        };
        assert!(check(&pod("web-0.a", "uid-a", "data")).is_ok());
        assert!(check(&pod(&"a".repeat(253), "0b9a-UID", &"a".repeat(63))).is_ok());
        let long = "a".repeat(300);
        for name in ["../../etc", "a\0b", "Web", "-a", "a-", "a..b", "a/b", long.as_str()] {
            assert!(refused(&pod(name, "u", "data")).contains("the name of the pod"), "{name}");
            assert!(refused(&pod("web", "u", name)).contains("the name of the volume"), "{name}");
        }
        assert!(refused(&pod("web", "u", "a.b")).contains("RFC 1123 label"));
        for uid in ["../x", "a\nb", long.as_str()] {
            assert!(refused(&pod("web", uid, "data")).contains("a uid has"), "{uid}");
        }
        let shown = refused(&pod("a\u{1b}[2J", "u", "data"));
        assert!(!shown.contains('\u{1b}'), "{shown}");
    }
}
