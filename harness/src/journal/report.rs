//! The journal as files: `trace.jsonl` for programs, `journal.txt` for people. Writes the files that a run asks for.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use contracts::event::{Event, TraceLine};
use contracts::recording;
use serde_json::Value;

use super::Journal;
use crate::masks::Masks;
use crate::private;
use crate::symbols::Symbols;

/// Why a report could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write `{path}`")]
pub struct ReportError {
    pub(super) path: PathBuf,
    #[source]
    pub(super) source: io::Error,
}

impl Journal {
    /// Writes `trace.jsonl` and `journal.txt` into a directory.
    ///
    /// # Errors
    /// When one of them cannot be written.
    pub fn write(&self, directory: &Path) -> Result<(), ReportError> {
        let lines = self.trace();
        write(&directory.join("trace.jsonl"), &jsonl(&lines, self.symbols(), self.masks()))?;
        write(&directory.join("journal.txt"), &self.masks().hide(&text(&lines, self.symbols())))
    }

    /// The trace as `trace.jsonl` has it: in the symbols of the recordings.
    pub fn jsonl(&self) -> String {
        jsonl(&self.trace(), self.symbols(), self.masks())
    }
}

fn write(path: &Path, text: &str) -> Result<(), ReportError> {
    private::write(path, text).map_err(|source| ReportError { path: path.to_owned(), source })
}

/// A line without secrets.
pub(super) fn value(line: &TraceLine, masks: &Masks) -> Value {
    let mut value = serde_json::to_value(line).expect("a trace line is made of maps with text keys");
    masks.hide_in_json(&mut value);
    value
}

fn jsonl(lines: &[TraceLine], symbols: &Symbols, masks: &Masks) -> String {
    let mut text = recording::header();
    text.push('\n');
    for line in lines {
        text += &symbolic(value(line, masks), symbols).to_string();
        text.push('\n');
    }
    text
}

fn symbolic(value: Value, symbols: &Symbols) -> Value {
    match value {
        Value::String(text) => Value::String(symbols.golden(&text)),
        Value::Array(items) => items.into_iter().map(|item| symbolic(item, symbols)).collect(),
        Value::Object(map) => {
            map.into_iter().map(|(key, value)| (symbols.golden(&key), symbolic(value, symbols))).collect()
        }
        other => other,
    }
}

fn text(lines: &[TraceLine], symbols: &Symbols) -> String {
    let mut text = String::new();
    for line in lines {
        let (what, path) = describe(&line.event);
        let name = path.map(|path| symbols.path(Path::new(path))).filter(|name| Some(name.as_str()) != path);
        // Writing to a string cannot fail.
        let _ = write!(text, "{:>6} {:>10.3}  {what}", line.seq, line.t_ms);
        if let Some(name) = name {
            let _ = write!(text, "   {name}");
        }
        text.push('\n');
    }
    text
}

/// An event in one line with real paths, and the path a symbol may stand beside.
fn describe(event: &Event) -> (String, Option<&str>) {
    match event {
        Event::RpcStart(start) => (format!("csi      #{} {} {}", start.id, start.method, start.req), None),
        Event::RpcEnd(end) => {
            let injected = end.injected.as_deref().map(|what| format!("  [{what}]")).unwrap_or_default();
            let answer = if end.code == "OK" { end.resp.to_string() } else { end.message.clone() };
            let head = format!("answer   #{} {} {}", end.id, end.method, end.code);
            (format!("{head} after {:.1} ms {answer}{injected}", end.dur_ms), None)
        }
        Event::MountAdd(mount) | Event::MountChg(mount) => {
            let verb = if matches!(event, Event::MountAdd(_)) { "mounted" } else { "changed" };
            let rest = format!("{} {} {} {}", mount.fstype, mount.source, mount.root, mount.opts);
            (format!("{verb}  {} ({rest}) by {:?}", mount.target, mount.by), Some(&mount.target))
        }
        Event::MountDel(gone) => (format!("gone     {} by {:?}", gone.target, gone.by), Some(&gone.target)),
        Event::Effect(effect) => {
            let source = effect.source.as_deref().map(|source| format!(" = {source}")).unwrap_or_default();
            let fields: String = effect.fields.iter().map(|(key, value)| format!(" {key}={value}")).collect();
            (format!("{:<8} {}{source}{fields}", effect.effect, effect.path), Some(&effect.path))
        }
        Event::State(state) => {
            (format!("{:<8} {}: {:?} -> {:?}", state.world, state.key, state.from, state.to), None)
        }
        Event::Operation(operation) => {
            let error = operation.error.as_deref().map(|error| format!(": {error}")).unwrap_or_default();
            let on = format!("{} {}", operation.volume, operation.pod);
            (format!("{:<8} {} {on}{error}", operation.edge, operation.name), None)
        }
        Event::Api(change) => {
            (format!("api      {} {} {} by {}", change.verb, change.kind, change.object, change.by), None)
        }
        Event::Event(emitted) => (
            format!("event    {} {} {}: {}", emitted.kind, emitted.reason, emitted.obj, emitted.message),
            None,
        ),
        Event::Wait(wait) => (format!("waited   {} {} {}", wait.what, wait.pod, wait.err), None),
        Event::Process(edge) => {
            let status = edge.status.as_deref().unwrap_or_default();
            (format!("process  {} {} {status}", edge.who, edge.edge), None)
        }
        Event::DirectCall(call) => (format!("direct   #{} {} {}", call.id, call.edge, call.volume), None),
        Event::MountsLost(lost) => (format!("LOST     {}", lost.why), None),
        Event::Recovered(recovered) => (format!("knows    {}", recovered.what), None),
        Event::Looked => ("looked".to_owned(), None),
        Event::Meddled(found) => (format!("MEDDLED  {} {} by {:?}", found.how, found.path, found.by), None),
        Event::Touched(found) => {
            (format!("TOUCHED  {:?} {} during #{} {}", found.how, found.path, found.id, found.method), None)
        }
        Event::Case(step) => (format!("step     {} {}", step.action, step.on), None),
        Event::Pod(change) => (format!("pod      {} {}", change.to, change.pod), None),
        Event::Disturbed(disturbance) => (format!("DISTURBED {disturbance:?}"), None),
    }
}
