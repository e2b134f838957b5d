//! A trace, read from its text: one JSON object a line.

use serde_json::{Map, Value};

/// A trace, line by line.
#[derive(Debug, Clone, Default)]
pub struct Trace {
    lines: Vec<Line>,
}

/// A line of a trace.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    /// The type of the event.
    pub(crate) ev: String,
    /// The number of the line, from 1.
    pub(crate) number: usize,
    fields: Map<String, Value>,
}

/// Why a text is no trace.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// A line is no event of a trace.
    #[error("line {line} is no event of a trace: {why}")]
    Line {
        /// The line, from 1.
        line: usize,
        /// The fault of the line.
        why: String,
    },
    /// Nothing in it can be compared.
    #[error("it holds no call, no mount and no snapshot")]
    Empty,
}

/// The events of which a trace holds at least one.
const COMPARED: [&str; 4] = ["rpc_start", "mount_add", "snapshot", "event"];

impl Trace {
    /// Reads a trace.
    ///
    /// # Errors
    /// When it is none.
    pub fn parse(text: &str) -> Result<Self, Unreadable> {
        let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        let lines: Vec<Line> = lines.map(|(at, line)| Line::parse(line, at + 1)).collect::<Result<_, _>>()?;
        match lines.iter().any(Line::is_compared) {
            true => Ok(Self { lines }),
            false => Err(Unreadable::Empty),
        }
    }

    pub(crate) fn lines(&self) -> &[Line] {
        &self.lines
    }
}

impl Line {
    /// Reads the line with this number.
    ///
    /// # Errors
    /// When it is no event.
    pub(crate) fn parse(text: &str, number: usize) -> Result<Self, Unreadable> {
        let wrong = |why: String| Unreadable::Line { line: number, why };
        let value: Value = serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
        let Value::Object(fields) = value else { return Err(wrong("it is no object".to_owned())) };
        let ev = fields.get("ev").and_then(Value::as_str).map(str::to_owned);
        let ev = ev.ok_or_else(|| wrong("it has no `ev`".to_owned()))?;
        Ok(Self { ev, number, fields })
    }

    /// Whether it is one of the events of which a trace holds at least one.
    pub(crate) fn is_compared(&self) -> bool {
        COMPARED.contains(&self.ev.as_str())
    }

    pub(crate) fn into_fields(self) -> Map<String, Value> {
        self.fields
    }

    /// A field; null if it is not there.
    pub(crate) fn get(&self, key: &str) -> &Value {
        self.fields.get(key).unwrap_or(&Value::Null)
    }

    /// A field that is a text; empty if it is not there.
    pub(crate) fn text(&self, key: &str) -> &str {
        self.get(key).as_str().unwrap_or_default()
    }
}
