//! A watch: the existing objects if the client wants them, then each change, read from the log at the client's own pace.
//! So nothing is buffered for a client that does not read.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

use super::Shared;
use super::refusal::Refused;
use super::resource::Resource;
use super::selector::Selector;
use crate::api_server::change_log::Became;

/// The parameters of a watch.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) resource: Resource,
    pub(super) namespace: Option<String>,
    pub(super) selector: Selector,
    /// Empty: starts with the objects that exist.
    pub(super) version: String,
    pub(super) bookmarks: bool,
    /// Whether the existing objects come first, and a bookmark after them.
    pub(super) initial: bool,
    pub(super) lasts: Duration,
}

/// The time between two bookmarks.
const BOOKMARK: Duration = Duration::from_secs(60);

/// A watch under way.
pub(super) struct Watching {
    shared: Shared,
    wanted: Wanted,
    latest: watch::Receiver<u64>,
    /// The version up to which changes were sent.
    seen: u64,
    /// The objects that the client knows: one that does not match any more is gone for it. None for a client that
    /// has listed them before.
    known: Option<BTreeSet<(String, String)>>,
    queue: VecDeque<Value>,
    end: Instant,
    has_ended: bool,
}

impl Watching {
    pub(super) fn begin(shared: Shared, wanted: Wanted) -> Result<Self, Refused> {
        let end = Instant::now() + wanted.lasts;
        let mut queue = VecDeque::new();
        let (latest, seen, known) = shared.with(|objects| {
            let latest = objects.store.log.listen().ok_or_else(Refused::no_path)?;
            let now = objects.store.version();
            let there = || objects.list(&wanted.resource, wanted.namespace.as_deref(), &wanted.selector);
            let from_here = wanted.initial || matches!(wanted.version.as_str(), "" | "0");
            if from_here {
                let mut known = BTreeSet::new();
                queue.extend(there().into_iter().map(|object| {
                    known.insert(name_of(&object));
                    line("ADDED", object)
                }));
                if wanted.initial {
                    queue.push_back(bookmark(&wanted.resource, now, true));
                }
                return Ok((latest, now, Some(known)));
            }
            let version =
                wanted.version.parse().map_err(|_| Refused::bad_request("invalid resource version"))?;
            match version > now || objects.store.log.after(version).is_none() {
                true => Err(Refused::too_old()),
                false => Ok((latest, version, None)),
            }
        })?;
        Ok(Self { shared, wanted, latest, seen, known, queue, end, has_ended: false })
    }

    /// The next line; none at the end of the watch.
    pub(super) async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(line) = self.queue.pop_front() {
                return Some(line);
            }
            if self.has_ended {
                return None;
            }
            self.read();
            if !self.queue.is_empty() {
                continue;
            }
            let until = self.end.min(Instant::now() + BOOKMARK);
            match tokio::time::timeout_at(until, self.latest.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return None,
                Err(_) if Instant::now() >= self.end => return None,
                Err(_) if self.wanted.bookmarks => {
                    self.queue.push_back(bookmark(&self.wanted.resource, self.seen, false));
                }
                Err(_) => {}
            }
        }
    }

    /// Takes the changes since the last look from the log.
    fn read(&mut self) {
        self.latest.mark_unchanged();
        let Self { shared, wanted, seen, known, queue, has_ended, .. } = self;
        shared.with(|objects| {
            let Some(lines) = objects.store.log.after(*seen) else {
                queue.push_back(line("ERROR", Refused::too_old().status()));
                *has_ended = true;
                return;
            };
            let changes: Vec<_> = lines.cloned().collect();
            for change in changes {
                *seen = change.version;
                let Some(mut object) = objects.logged(&change.object, &wanted.resource) else { continue };
                object["metadata"]["resourceVersion"] = change.version.to_string().into();
                let namespace = &object["metadata"]["namespace"];
                if wanted.namespace.as_ref().is_some_and(|wanted| namespace != wanted) {
                    continue;
                }
                let is_there = change.became != Became::Deleted && wanted.selector.matches(&object);
                let Some(kind) = kind(known.as_mut(), &object, change.became, is_there) else { continue };
                queue.push_back(line(kind, object));
            }
        });
    }
}

/// The type of the watch event for a change; `is_there` is whether the object matches the client's selector.
fn kind(
    known: Option<&mut BTreeSet<(String, String)>>,
    object: &Value,
    became: Became,
    is_there: bool,
) -> Option<&'static str> {
    let Some(known) = known else {
        // The client knows matching objects from its list. An object that stops matching is DELETED for it.
        return Some(match (became, is_there) {
            (Became::Added, true) => "ADDED",
            (_, true) => "MODIFIED",
            (_, false) => "DELETED",
        });
    };
    let was_known = match is_there {
        true => !known.insert(name_of(object)),
        false => known.remove(&name_of(object)),
    };
    match (was_known, is_there) {
        (false, true) => Some("ADDED"),
        (true, true) => Some("MODIFIED"),
        (true, false) => Some("DELETED"),
        (false, false) => None,
    }
}

fn name_of(object: &Value) -> (String, String) {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    (text("namespace"), text("name"))
}

fn line(kind: &str, object: Value) -> Value {
    json!({ "type": kind, "object": object })
}

fn bookmark(resource: &Resource, version: u64, is_initial_end: bool) -> Value {
    let mut meta = json!({ "resourceVersion": version.to_string() });
    if is_initial_end {
        meta["annotations"] = json!({ "k8s.io/initial-events-end": "true" });
    }
    line("BOOKMARK", json!({ "kind": resource.kind, "apiVersion": resource.api_version(), "metadata": meta }))
}
