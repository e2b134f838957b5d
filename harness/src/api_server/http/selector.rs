//! Label and field selectors of lists and watches. Touches nothing.

use serde_json::Value;

/// The conditions for an object to be in a list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Selector {
    labels: Vec<Requirement>,
    fields: Vec<Requirement>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Requirement {
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Exists(String),
    Absent(String),
}

impl Selector {
    /// Reads `labelSelector` and `fieldSelector`.
    ///
    /// # Errors
    /// The part that is none.
    pub(super) fn parse(labels: &str, fields: &str) -> Result<Self, String> {
        let all = |text: &str| split(text).into_iter().map(requirement).collect::<Result<Vec<_>, _>>();
        Ok(Self { labels: all(labels)?, fields: all(fields)? })
    }

    pub(super) fn matches(&self, object: &Value) -> bool {
        let labels = &object["metadata"]["labels"];
        let label = |key: &str| labels.get(key).and_then(Value::as_str).map(str::to_owned);
        // A field that is not there is as good as an empty one.
        let field = |path: &str| Some(text(path.split('.').fold(object, |value, part| &value[part])));
        self.labels.iter().all(|needed| needed.holds(label))
            && self.fields.iter().all(|needed| needed.holds(field))
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// At commas that are in no parentheses.
fn split(selector: &str) -> Vec<&str> {
    let mut depth = 0;
    let parts = selector.split(|c| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        c == ',' && depth == 0
    });
    parts.map(str::trim).filter(|part| !part.is_empty()).collect()
}

fn requirement(part: &str) -> Result<Requirement, String> {
    let owned = |text: &str| text.trim().to_owned();
    if let Some((key, set)) = part.split_once(" notin ") {
        return Ok(Requirement::NotIn(owned(key), values(set)?));
    }
    if let Some((key, set)) = part.split_once(" in ") {
        return Ok(Requirement::In(owned(key), values(set)?));
    }
    if let Some((key, value)) = part.split_once("!=") {
        return Ok(Requirement::NotIn(owned(key), vec![owned(value)]));
    }
    if let Some((key, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
        return Ok(Requirement::In(owned(key), vec![owned(value)]));
    }
    match part.strip_prefix('!') {
        Some(key) => Ok(Requirement::Absent(owned(key))),
        None if part.contains(char::is_whitespace) => Err(part.to_owned()),
        None => Ok(Requirement::Exists(owned(part))),
    }
}

fn values(set: &str) -> Result<Vec<String>, String> {
    let inner = set.trim().strip_prefix('(').and_then(|set| set.strip_suffix(')'));
    let inner = inner.ok_or_else(|| set.to_owned())?;
    Ok(inner.split(',').map(|value| value.trim().to_owned()).collect())
}

impl Requirement {
    fn holds(&self, of: impl Fn(&str) -> Option<String>) -> bool {
        match self {
            Self::In(key, values) => of(key).is_some_and(|value| values.contains(&value)),
            Self::NotIn(key, values) => of(key).is_none_or(|value| !values.contains(&value)),
            Self::Exists(key) => of(key).is_some(),
            Self::Absent(key) => of(key).is_none(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn selectors_choose_as_in_a_cluster() {
        let object = json!({
            "metadata": { "name": "a", "labels": { "app": "web", "tier": "gold" } },
            "spec": { "nodeName": "node-1" },
        });
        let chosen = |labels: &str, fields: &str| Selector::parse(labels, fields).unwrap().matches(&object);
        for labels in
            ["", "app", "app=web", "app==web,tier!=silver", "tier in (gold, silver),!zone", "zone notin (a)"]
        {
            assert!(chosen(labels, ""), "{labels}");
        }
        for labels in ["zone", "app=db", "!app", "tier notin (gold,silver)", "zone in (a)"] {
            assert!(!chosen(labels, ""), "{labels}");
        }
        assert!(chosen("", "spec.nodeName=node-1,metadata.name!=b") && chosen("", "spec.none="));
        assert!(!chosen("", "spec.nodeName=node-2"));
        assert!(Selector::parse("a in b", "").is_err() && Selector::parse("a b", "").is_err());
    }
}
