//! Which journals a change of the API is written to: that of the node which it is about, or all of them.

use std::collections::BTreeMap;

use api::shape::shape;
use api::{Key, Kind, Notification, Object};
use contracts::event::{ApiChange, Client, Emitted, Event, ObjectKind, Verb};
use serde_json::Value;

use crate::journal::Journal;

/// The journal of each node. Changes about a node without a journal are in the first node's.
#[derive(Debug)]
pub(super) struct Records {
    first: Journal,
    others: BTreeMap<String, Journal>,
}

impl Records {
    pub(super) fn new(first: Journal) -> Self {
        Self { first, others: BTreeMap::new() }
    }

    /// The journal that holds the names and the secrets of all.
    pub(super) fn first(&self) -> &Journal {
        &self.first
    }

    /// Adds the journal of a node. It begins with all existing objects, and gets all later changes that concern the node.
    pub(super) fn add<'a>(
        &mut self,
        node: &str,
        journal: Journal,
        there: impl Iterator<Item = &'a Object> + Clone,
    ) {
        for object in there.filter(|object| node_of(object).is_none_or(|of| of == node)) {
            if let Some(change) = change(Verb::Create, &object.key(), shape(object), Client::Case) {
                journal.api(change);
            }
        }
        self.others.insert(node.to_owned(), journal);
    }

    pub(super) fn write(&self, verb: Verb, object: &Object, body: Value, by: Client) {
        let Some(change) = change(verb, &object.key(), body, by) else { return };
        self.of(node_of(object)).for_each(|journal| journal.api(change.clone()));
    }

    /// Writes a change of an object that only a client knows; an event has a line of its own.
    pub(super) fn write_document(&self, verb: Verb, kind: &str, document: &Value, by: Client) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let event = match kind {
            "Event" if verb == Verb::Delete => return,
            "Event" => {
                let either = |one: &str, other: &str| match &document[one] {
                    Value::Null => document[other].clone(),
                    found => found.clone(),
                };
                let about = either("involvedObject", "regarding");
                Event::Event(Emitted {
                    obj: format!("{}/{}", text(&about["kind"]).to_lowercase(), text(&about["name"])),
                    kind: text(&document["type"]),
                    reason: text(&document["reason"]),
                    message: text(&either("message", "note")),
                    by,
                })
            }
            _ => {
                let meta = &document["metadata"];
                let namespace = meta["namespace"].as_str().map(|name| format!("{name}/")).unwrap_or_default();
                let object = format!("{kind} {namespace}{}", text(&meta["name"]));
                Event::Api(ApiChange { verb, kind: ObjectKind::Other, object, by, body: Value::Null })
            }
        };
        self.of(None).for_each(|journal| journal.record(event.clone()));
    }

    /// Records an event; `about` is its object, if that exists.
    pub(super) fn record_event(&self, notification: &Notification, about: Option<&Object>, by: Client) {
        let event = emitted(notification, by);
        self.of(about.and_then(node_of)).for_each(|journal| journal.record(event.clone()));
    }

    /// The journals for a change about a node, or about none.
    fn of<'a>(&'a self, node: Option<&'a str>) -> impl Iterator<Item = &'a Journal> {
        let other = node.and_then(|node| self.others.get(node));
        let first = other.is_none().then_some(&self.first);
        let all = self.others.values().filter(move |_| node.is_none());
        first.into_iter().chain(other).chain(all)
    }
}

/// The node that an object is about; none where it is about all.
fn node_of(object: &Object) -> Option<&str> {
    match object {
        Object::Node(node) => Some(&node.meta.name),
        Object::CsiNode(node) => Some(&node.meta.name),
        Object::Attachment(attachment) => Some(&attachment.node),
        Object::Pod(pod) => Some(pod.node.as_str()).filter(|node| !node.is_empty()),
        _ => None,
    }
}

fn change(verb: Verb, key: &Key, body: Value, by: Client) -> Option<ApiChange> {
    // Events have lines of another type, and the values of secrets are never recorded.
    if key.kind == Kind::Notification {
        return None;
    }
    let object = match key.namespace.as_str() {
        "" => key.name.clone(),
        namespace => format!("{namespace}/{}", key.name),
    };
    let kind = key.kind.as_str().parse().expect("a test holds that a trace knows each kind");
    Some(ApiChange { verb, kind, object, by, body })
}

fn emitted(notification: &Notification, by: Client) -> Event {
    let short = match notification.about.kind {
        Kind::Volume => "pv".to_owned(),
        Kind::Claim => "pvc".to_owned(),
        other => other.as_str().to_lowercase(),
    };
    Event::Event(Emitted {
        obj: format!("{short}/{}", notification.about.name),
        kind: format!("{:?}", notification.severity),
        reason: notification.reason.clone(),
        message: notification.message.clone(),
        by: if by == Client::Case { Client::Node } else { by },
    })
}
