//! A CSI call in a story: its volume, its pod, its result and the number of tries. Touches nothing.

use std::fmt;
use std::path::Path;

use contracts::event::{RpcEnd, RpcStart};
use serde_json::Value;

use crate::symbols::Symbols;

/// A call, or several tries of it in a row that failed with the same error.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Call {
    pub(super) id: u64,
    pub(super) volume: String,
    verb: String,
    pod: Option<String>,
    started: f64,
    ended: Option<Ended>,
}

#[derive(Debug, Clone, PartialEq)]
struct Ended {
    code: String,
    message: String,
    /// Whether the driver itself answered that it cannot do the call now.
    is_put_off: bool,
    at: f64,
    times: usize,
}

impl Call {
    /// A call, if it changes the node; stories leave out the others.
    pub(super) fn start(start: &RpcStart, t_ms: f64, symbols: &Symbols) -> Option<Self> {
        let verb = verb(&start.method)?;
        let text = |key: &str| start.req.get(key).and_then(Value::as_str).unwrap_or_default();
        let target = symbols.place(Path::new(text("targetPath")));
        Some(Self {
            id: start.id,
            volume: symbols.volume(text("volumeId")),
            verb: verb.to_owned(),
            pod: target.and_then(|place| place.pod().map(str::to_owned)),
            started: t_ms,
            ended: None,
        })
    }

    pub(super) fn end(&mut self, end: &RpcEnd, t_ms: f64, symbols: &Symbols) {
        let message = symbols.text(&end.message);
        let is_put_off = end.is_put_off();
        self.ended = Some(Ended { code: end.code.clone(), message, is_put_off, at: t_ms, times: 1 });
    }

    /// Whether the driver put this call off, and a later one repeats it.
    pub(super) fn is_tried_again_by(&self, later: &Self) -> bool {
        self.is_same_call(later) && self.ended.as_ref().is_some_and(|ended| ended.is_put_off)
    }

    fn is_same_call(&self, later: &Self) -> bool {
        self.verb == later.verb && self.pod == later.pod && self.volume == later.volume
    }

    /// Counts a later call as another try of this one if it repeats the call and the error. Returns whether it does.
    pub(super) fn absorbs(&mut self, later: &Self) -> bool {
        let same_call = self.is_same_call(later);
        let (Some(mine), Some(theirs)) = (&mut self.ended, &later.ended) else { return false };
        let alike = mine.code == theirs.code && mine.message == theirs.message && mine.code != "OK";
        if same_call && alike {
            mine.times += theirs.times;
            mine.at = theirs.at;
        }
        same_call && alike
    }

    /// The text behind the call in a story; empty if it was OK.
    pub(super) fn result(&self, spans: bool) -> String {
        let Some(ended) = &self.ended else { return "under way".to_owned() };
        if ended.code == "OK" {
            return String::new();
        }
        let mut text = upper_snake(&ended.code);
        if !ended.message.is_empty() {
            text += &format!(" \"{}\"", ended.message);
        }
        if ended.times > 1 {
            text += &format!(", {} times", ended.times);
            if spans {
                text += &format!(" in {:.1} s", (ended.at - self.started) / 1e3);
            }
        }
        text
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.volume)?;
        match &self.pod {
            Some(pod) => write!(f, " {pod}"),
            None => Ok(()),
        }
    }
}

/// The word for a method in a story; `None` if it does not change the node.
fn verb(method: &str) -> Option<&'static str> {
    Some(match method {
        "NodeStageVolume" => "Stage",
        "NodeUnstageVolume" => "Unstage",
        "NodePublishVolume" => "Publish",
        "NodeUnpublishVolume" => "Unpublish",
        "NodeExpandVolume" => "Expand",
        _ => return None,
    })
}

/// CSI's spelling of a code: `FAILED_PRECONDITION` for `FailedPrecondition` in a trace.
fn upper_snake(code: &str) -> String {
    let mut text = String::new();
    for (at, c) in code.char_indices() {
        if c.is_ascii_uppercase() && at > 0 {
            text.push('_');
        }
        text.push(c.to_ascii_uppercase());
    }
    text
}
