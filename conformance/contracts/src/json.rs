//! Fields of JSON objects in a trace.

use serde_json::{Map, Value};

/// A field with text; empty if it is missing.
pub(crate) fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object[field].as_str().unwrap_or_default()
}

/// The fields of an object; none if the value is no object.
pub(crate) fn object(value: &Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}

/// The texts in a list, without its other elements; `None` if the value is no list.
pub(crate) fn texts(value: &Value) -> Option<impl Iterator<Item = &str>> {
    Some(value.as_array()?.iter().filter_map(Value::as_str))
}
