//! Who judges a trace. The contracts are written for one node: each node has a judge who is shown what concerns
//! it, and a third one sees to what holds across nodes.

use std::collections::BTreeSet;

use contracts::event::{ApiChange, Event, TraceLine};
use contracts::rule::{Judge, Rest, Violation, Witness};

use crate::objects::{NEIGHBOUR, NODE};
use crate::script::Scenario;

/// Who speaks in a simulated trace: everybody.
const WITNESSES: &[Witness] = &[
    Witness::Rpc,
    Witness::Kernel,
    Witness::File,
    Witness::Api,
    Witness::Manager,
    Witness::Operations,
    Witness::Clock,
];

/// What the controller owes also to a node whose manager is not simulated.
const OWED_TO_NEIGHBOURS: &[&str] = &["INV-078", "INV-079"];
/// What nobody can see who looks at one node.
const ACROSS: &str = "INV-080";

/// What the trace says of the other node: it begins to use a volume.
pub(crate) const USES: &str = "use_elsewhere";

/// All judges of a simulation.
pub(crate) struct Judges {
    /// Of the node with the manager.
    node: (View, Judge),
    /// Of the other one, and of both, if there is another one.
    others: Vec<(Option<View>, Judge)>,
    /// Whether volumes are for one node at a time.
    one_node: bool,
}

impl Judges {
    /// Those of a scenario.
    pub(crate) fn of(scenario: &Scenario) -> Self {
        let mut others = Vec::new();
        if scenario.neighbour {
            others.push((Some(View::of(NEIGHBOUR)), judge(|id| OWED_TO_NEIGHBOURS.contains(&id))));
            others.push((None, judge(|id| id == ACROSS)));
        }
        Self { node: (View::of(NODE), judge(|_| true)), others, one_node: scenario.one_node }
    }

    /// Takes the next event, and says what it broke.
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

    /// The world has come to rest.
    pub(crate) fn rest(&mut self, rest: &Rest) -> Vec<Violation> {
        self.node.1.rest(rest)
    }

    /// What it is all for: the other node uses a volume only once this one has let it go, or was lost.
    fn used_twice(&self, line: &TraceLine) -> Option<Violation> {
        let Event::Step(step) = &line.event else { return None };
        let books = self.node.1.books();
        let volume = books.volume(&step.on).filter(|_| step.action == USES && self.one_node)?;
        let is_held = !volume.staged.is_empty() || !volume.published.is_empty();
        (is_held && !books.forced.contains(&step.on)).then(|| Violation {
            contract: ACROSS,
            method: String::new(),
            cause: "used by two nodes at once",
            detail: step.on.clone(),
            seq: line.seq,
        })
    }
}

fn judge(which: impl Fn(&str) -> bool) -> Judge {
    let rules = contracts::manager::RULES.iter().copied().filter(|rule| which(rule.id));
    Judge::new(rules, WITNESSES)
}

/// What concerns one node.
struct View {
    node: &'static str,
    /// Objects and calls that are another node's.
    objects: BTreeSet<(String, String)>,
    calls: BTreeSet<u64>,
}

impl View {
    fn of(node: &'static str) -> Self {
        Self { node, objects: BTreeSet::new(), calls: BTreeSet::new() }
    }

    fn shows(&mut self, event: &Event) -> bool {
        match event {
            Event::RpcStart(start) => {
                let of = start.req["nodeId"].as_str().filter(|_| start.method.starts_with("Controller"));
                let shown = of.unwrap_or(NODE) == self.node;
                if !shown {
                    self.calls.insert(start.id);
                }
                shown
            }
            Event::RpcEnd(end) => !self.calls.remove(&end.id),
            Event::Api(change) => self.shows_object(change),
            // Of the other node nothing else is simulated.
            _ => self.node == NODE,
        }
    }

    fn shows_object(&mut self, change: &ApiChange) -> bool {
        let key = (change.kind.clone(), change.object.clone());
        let of = match change.kind.as_str() {
            "Node" => Some(change.object.as_str()),
            "Pod" | "VolumeAttachment" => change.body["spec"]["nodeName"].as_str(),
            _ => None,
        };
        // A deletion tells nothing of the object any more.
        if of.is_some_and(|of| of != self.node) {
            self.objects.insert(key.clone());
        }
        !self.objects.contains(&key)
    }
}
