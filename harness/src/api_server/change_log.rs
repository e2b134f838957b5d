//! The last changes of all objects, for watches that begin at a version. Kept only where clients may ask for it.

use std::collections::VecDeque;

use api::Object;
use serde_json::Value;
use tokio::sync::watch;

/// The key of a document that only clients of the HTTP interface see.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) group: String,
    pub(super) plural: String,
    /// Empty for resources that have none.
    pub(super) namespace: String,
    pub(super) name: String,
}

/// The kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Became {
    Added,
    Modified,
    Deleted,
}

/// An object as it was then.
#[derive(Debug, Clone)]
pub(super) enum Logged {
    Typed(Object),
    Document(Place, Value),
}

/// A change of one object, as the log keeps it.
#[derive(Debug, Clone)]
pub(super) struct Line {
    pub(super) version: u64,
    pub(super) became: Became,
    pub(super) object: Logged,
    bytes: usize,
}

/// Enough for a client that was away for a moment; one that was away longer lists anew.
const LINES: usize = 2000;

/// Most bytes that documents in the log take.
const BYTES: usize = 16 << 20;

/// The changes, and who waits for more.
#[derive(Debug, Default)]
pub(super) struct ChangeLog {
    lines: VecDeque<Line>,
    bytes: usize,
    /// Changes up to this version are not here any more.
    forgotten: u64,
    /// The version of the last one; closed when the server ends.
    latest: Option<watch::Sender<u64>>,
}

impl ChangeLog {
    /// Starts to keep changes.
    pub(super) fn keep(&mut self, version: u64) {
        self.forgotten = version;
        self.latest = Some(watch::Sender::new(version));
    }

    pub(super) fn add(&mut self, version: u64, became: Became, object: impl FnOnce() -> Logged) {
        let Some(latest) = &self.latest else { return };
        let object = object();
        let bytes = match &object {
            Logged::Typed(_) => 0,
            Logged::Document(_, document) => document.to_string().len(),
        };
        self.bytes += bytes;
        self.lines.push_back(Line { version, became, object, bytes });
        while self.lines.len() > LINES || self.bytes > BYTES {
            let Some(gone) = self.lines.pop_front() else { break };
            (self.forgotten, self.bytes) = (gone.version, self.bytes - gone.bytes);
        }
        latest.send_replace(version);
    }

    /// The changes after a version; none if some of them are forgotten.
    pub(super) fn after(&self, version: u64) -> Option<impl Iterator<Item = &Line>> {
        let begin = self.lines.partition_point(|line| line.version <= version);
        (version >= self.forgotten).then(|| self.lines.range(begin..))
    }

    /// Receives the version of each change, if changes are kept.
    pub(super) fn listen(&self) -> Option<watch::Receiver<u64>> {
        self.latest.as_ref().map(watch::Sender::subscribe)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(size: usize) -> Logged {
        let place =
            Place { group: String::new(), plural: "x".into(), namespace: String::new(), name: "a".into() };
        Logged::Document(place, Value::String("x".repeat(size)))
    }

    #[test]
    fn forgotten_change_cannot_be_asked_for() {
        let mut log = ChangeLog::default();
        log.add(1, Became::Added, || document(1));
        assert!(log.listen().is_none() && log.lines.is_empty(), "no client follows the log");
        log.keep(1);
        for version in 2..2 + LINES as u64 {
            log.add(version, Became::Modified, || document(1));
        }
        assert_eq!(log.after(1).unwrap().count(), LINES);
        log.add(5000, Became::Modified, || document(1));
        assert!(log.after(1).is_none());
        assert_eq!(log.after(4999).unwrap().count(), 1);
        log.add(5001, Became::Modified, || document(BYTES));
        assert!(log.bytes <= BYTES && log.after(5001).is_some() && log.after(5000).is_none());
    }
}
