//! Which fields the messages have: those of the objects that drivers write. Touches nothing.

mod table;

use std::collections::{BTreeMap, HashMap};
use std::sync::LazyLock;

/// A message, by the numbers of its fields.
pub(super) type Message = BTreeMap<u32, Field>;

/// A field, as JSON names it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Field {
    pub(super) name: &'static str,
    /// A scalar, or the name of a message.
    pub(super) kind: &'static str,
    pub(super) shape: Shape,
    /// Whether the field is a pointer in Go: it is in the document whenever it was encoded, even if it is empty.
    pub(super) is_pointer: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    One,
    List,
    /// From texts to values.
    Map,
    /// A message whose fields are those of the object around it in JSON.
    Inline,
}

/// An entry of the table that is no message.
#[cfg(test)]
const SCALARS: [&str; 8] = ["text", "bytes", "bool", "int", "Time", "MicroTime", "Quantity", "IntOrString"];

static MESSAGES: LazyLock<HashMap<&str, Message>> = LazyLock::new(|| {
    let lines = table::MESSAGES.split('\n').map(str::trim).filter(|line| !line.is_empty());
    lines
        .map(|line| {
            let (name, fields) = line.split_once(':').expect("a message has fields");
            (name, fields.split(',').map(field).collect())
        })
        .collect()
});

/// `3 name`, `4 ports [Port]`, `5 labels {text}`, `6 size int?`, `7 ~Source`.
fn field(words: &'static str) -> (u32, Field) {
    let mut words = words.split_whitespace();
    let number = words.next().and_then(|number| number.parse().ok()).expect("a field has a number");
    let name = words.next().expect("a field has a name");
    let kind = words.next().unwrap_or("text");
    let (kind, is_pointer) = match kind.strip_suffix('?') {
        Some("") => ("text", true),
        Some(kind) => (kind, true),
        None => (kind, false),
    };
    let inside = |open, close| kind.strip_prefix(open).and_then(|rest: &str| rest.strip_suffix(close));
    let (kind, shape) = match (name.strip_prefix('~'), inside('[', ']'), inside('{', '}')) {
        (Some(message), ..) => (message, Shape::Inline),
        (None, Some(kind), _) => (kind, Shape::List),
        (None, None, Some(kind)) => (kind, Shape::Map),
        (None, None, None) => (kind, Shape::One),
    };
    (number, Field { name, kind, shape, is_pointer })
}

/// The message of an object; none if it is of a kind that is not read here.
pub(super) fn of(api_version: &str, kind: &str) -> Option<&'static Message> {
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    let found = table::OBJECTS.iter().find(|(of, kinds)| *of == group && kinds.contains(&kind));
    let (_, name) = match (found, kind) {
        // In each group.
        (None, "DeleteOptions") => ("", "DeleteOptions"),
        (Some(_), "Event") if !group.is_empty() => ("", "EventOfItsGroup"),
        (found, kind) => (found?.0, kind),
    };
    Some(named(name))
}

/// The message of that name.
pub(super) fn named(name: &str) -> &'static Message {
    MESSAGES.get(name).expect("each message that is named is in the table")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_names_only_messages_that_it_has() {
        for (name, message) in MESSAGES.iter() {
            for field in message.values() {
                assert!(
                    SCALARS.contains(&field.kind) || MESSAGES.contains_key(field.kind),
                    "{name}: {field:?}"
                );
            }
        }
        for (group, kinds) in table::OBJECTS {
            for kind in *kinds {
                assert!(of(&format!("{group}/v1"), kind).is_some(), "{group} {kind}");
            }
        }
    }
}
