//! The judges of a trace. Contracts are written for one node: each node has a judge that gets its events, and a
//! third judge checks contracts across nodes.

use std::collections::BTreeSet;

use contracts::event::{ApiChange, Disturbance, Event, ObjectKind, TraceLine};
use contracts::rule::{Judge, Rest, Violation, Witness};

use crate::objects::{NEIGHBOUR, NODE};
use crate::script::Scenario;

/// Contracts of the attach/detach controller for the other node, whose manager is not simulated.
const OWED_TO_NEIGHBOURS: &[&str] = &["INV-078", "INV-079"];
/// The invariant of the attach/detach controller that concerns both nodes.
const ACROSS: &str = "INV-080";

/// All judges of a simulation.
pub(crate) struct Judges {
    /// For the node with the manager.
    node: (View, Judge),
    /// For the other node, and for both, if there is another one.
    others: Vec<(Option<View>, Judge)>,
    /// Whether volumes are for one node at a time.
    one_node: bool,
}

impl Judges {
    /// The judges for a scenario.
    pub(crate) fn of(scenario: &Scenario) -> Self {
        let mut others = Vec::new();
        if scenario.neighbour {
            others.push((Some(View::of(NEIGHBOUR)), judge(|id| OWED_TO_NEIGHBOURS.contains(&id))));
            others.push((None, judge(|id| id == ACROSS)));
        }
        Self { node: (View::of(NODE), judge(|_| true)), others, one_node: scenario.one_node }
    }

    /// Judges the next event; returns what it broke.
    pub(crate) fn event(&mut self, line: &TraceLine) -> Vec<Violation> {
        let mut violations: Vec<Violation> = self.used_twice(line).into_iter().collect();
        let (view, judge) = &mut self.node;
        if view.shows(&line.event) {
            violations.extend(judge.event(line));
        }
        for (view, judge) in &mut self.others {
            if view.as_mut().is_none_or(|view| view.shows(&line.event)) {
                violations.extend(judge.event(line));
            }
        }
        violations
    }

    /// Judges the end state.
    pub(crate) fn rest(&mut self, rest: &Rest) -> Vec<Violation> {
        self.node.1.rest(rest)
    }

    /// The purpose of attachments: the other node uses a single-node volume only after this node has released
    /// it, or was lost.
    fn used_twice(&self, line: &TraceLine) -> Option<Violation> {
        let Event::Disturbed(Disturbance::UsedElsewhere { volume: used }) = &line.event else { return None };
        let books = self.node.1.books();
        let is_held = self.one_node && contracts::manager::may_be_here(books, used);
        (is_held && !books.forced.contains(used)).then(|| Violation {
            contract: ACROSS,
            method: String::new(),
            cause: "used by two nodes at once",
            detail: used.clone(),
            seq: line.seq,
        })
    }
}

fn judge(which: impl Fn(&str) -> bool) -> Judge {
    Judge::new(contracts::manager::all().filter(|rule| which(rule.id)), &Witness::SIMULATED)
}

/// The events of one node.
struct View {
    node: &'static str,
    /// Objects and calls that belong to another node.
    objects: BTreeSet<(ObjectKind, String)>,
    calls: BTreeSet<u64>,
}

impl View {
    fn of(node: &'static str) -> Self {
        Self { node, objects: BTreeSet::new(), calls: BTreeSet::new() }
    }

    fn shows(&mut self, event: &Event) -> bool {
        match event {
            Event::RpcStart(start) => {
                let of = start.request().node_id();
                let is_named = !of.is_empty() && start.method.starts_with("Controller");
                let shown = if is_named { of == self.node } else { self.node == NODE };
                if !shown {
                    self.calls.insert(start.id);
                }
                shown
            }
            Event::RpcEnd(end) => !self.calls.remove(&end.id),
            Event::Api(change) => self.shows_object(change),
            Event::Disturbed(Disturbance::ApiSlow | Disturbance::ApiFast) => true,
            // Nothing else of the other node is simulated.
            _ => self.node == NODE,
        }
    }

    fn shows_object(&mut self, change: &ApiChange) -> bool {
        let key = (change.kind, change.object.clone());
        let of = match change.kind {
            ObjectKind::Node => Some(change.object.as_str()),
            ObjectKind::Pod | ObjectKind::Attachment => change.body["spec"]["nodeName"].as_str(),
            _ => None,
        };
        // A deletion does not have the object any more, so it is remembered.
        if of.is_some_and(|of| of != self.node) {
            self.objects.insert(key.clone());
        }
        !self.objects.contains(&key)
    }
}
