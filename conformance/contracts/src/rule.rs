//! Rules, and the judge that checks a trace against them, event by event or as a whole.
//!
//! A [`Rule`] is a numbered promise with its sentence and the witnesses that it needs. A [`Judge`] feeds it a trace, and
//! keeps the [`Books`] for all rules. A rule never guesses: if a witness is missing, the verdict is
//! [`Verdict::NotObservable`].

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::event::{Event, TraceLine};

pub mod books;
pub mod place;
#[cfg(test)]
pub(crate) mod script;
pub(crate) mod work;

pub use books::Books;

/// A numbered promise, checked over traces.
#[derive(Debug)]
pub struct Rule {
    /// `INV-…` binds the manager, `DRV-…` the driver.
    pub id: &'static str,
    /// The promise in one sentence.
    pub sentence: &'static str,
    /// The witnesses that the rule needs.
    pub witnesses: &'static [Witness],
    /// The function that judges it.
    pub check: Checked,
}

/// A source of events in a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Witness {
    /// The calls between manager and driver.
    Rpc,
    /// The mount table.
    Kernel,
    /// Directories, files, links and locks that the manager made.
    File,
    /// Objects of the API.
    Api,
    /// The manager's own books: its states, and the results of its waits. They count as a witness only if the trace records
    /// each change before the call that it leads to.
    Manager,
    /// The start and end of the manager's operations, in the order of the trace.
    Operations,
    /// What the manager knows after a start, and since when.
    Recovery,
    /// The process that made each mount. Recordings of version 1 have only their recorder's conclusion.
    Makers,
    /// The manager's own clock: `t_ms` is the time by which it waited.
    Clock,
}

impl Witness {
    /// The witnesses of a trace that a simulation makes. It has no process that mounts.
    pub const SIMULATED: [Witness; 8] = [
        Witness::Rpc,
        Witness::Kernel,
        Witness::File,
        Witness::Api,
        Witness::Manager,
        Witness::Operations,
        Witness::Recovery,
        Witness::Clock,
    ];

    /// The witnesses of a trace. The manager's clock is never among them, since it has no event of its own: it can be
    /// advanced, and `t_ms` is only the time when the journal received an event.
    pub fn heard_in(trace: &[TraceLine]) -> BTreeSet<Witness> {
        trace.iter().filter_map(|line| Self::behind(&line.event)).collect()
    }

    /// The witness that sees such events; `None` if they come from no witness.
    pub fn behind(event: &Event) -> Option<Witness> {
        match event {
            Event::RpcStart(_) | Event::RpcEnd(_) => Some(Witness::Rpc),
            Event::MountAdd(_) | Event::MountDel(_) | Event::MountChg(_) => Some(Witness::Kernel),
            Event::Effect(_) => Some(Witness::File),
            Event::Api(_) => Some(Witness::Api),
            Event::State(_) => Some(Witness::Manager),
            Event::Operation(_) => Some(Witness::Operations),
            Event::Recovered(_) => Some(Witness::Recovery),
            _ => None,
        }
    }
}

/// The function of a rule. Most rules need no memory beside the books.
#[derive(Debug, Clone, Copy)]
pub enum Checked {
    /// At each event, with the books before it.
    Each(fn(&Books, &TraceLine, &mut Report)),
    /// When everything has come to rest.
    AtRest(fn(&Books, &Rest, &mut Report)),
    /// By something that remembers.
    With(fn() -> Box<dyn Check>),
}

/// A check with a memory.
pub trait Check: Send {
    /// Takes the next event. `books` have the state before it.
    fn event(&mut self, books: &Books, line: &TraceLine, report: &mut Report);

    /// A volume has left the node long ago, and counts no more.
    fn forget(&mut self, _volume: &str) {}

    /// Everything has come to rest: nothing pending, nothing in flight.
    fn rest(&mut self, _books: &Books, _rest: &Rest, _report: &mut Report) {}
}

/// The world at rest, as the testbed, the player or the simulation that brought it to rest knows it.
#[derive(Debug, Clone, Default)]
pub struct Rest {
    /// The UIDs of pods whose volumes are still wanted.
    pub pods: BTreeSet<String>,
}

/// A promise that was broken.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Violation {
    /// The id of the promise, `DRV-…` or `INV-…`.
    pub contract: &'static str,
    /// The call during or by which it was broken; empty where it was none.
    pub method: String,
    /// The fault, as a text that is the same in every run: it is part of a finding's key.
    pub cause: &'static str,
    /// On which volume, at which path: for the person who looks.
    pub detail: String,
    /// The line of the trace at which it showed; 0 for the end.
    pub seq: u64,
}

/// The fault, with its call and its place where they are known.
impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = [&self.method, self.cause, &self.detail];
        let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
        f.write_str(&words.join(": "))
    }
}

/// A rule's verdict on one event: whether the event could break the rule, and whether it did.
#[derive(Debug)]
pub struct Report {
    contract: &'static str,
    seq: u64,
    tried: bool,
    violations: Vec<Violation>,
}

impl Report {
    /// Records that the rule had something to judge: without a single occasion it is not kept but not tried.
    pub fn tried(&mut self) {
        self.tried = true;
    }

    /// Records that the rule was broken by `method`.
    pub fn broken(&mut self, method: &str, cause: &'static str, detail: impl Into<String>) {
        self.tried = true;
        self.violations.push(Violation {
            contract: self.contract,
            method: method.to_owned(),
            cause,
            detail: detail.into(),
            seq: self.seq,
        });
    }
}

/// The verdict of a whole trace on one rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// There was an occasion to break it, and nothing in the trace does.
    Kept,
    /// Nothing in the trace was an occasion to break it.
    NotTried,
    /// The trace lacks these witnesses.
    NotObservable(Vec<Witness>),
    /// The promise was broken in these ways.
    Broken(Vec<Violation>),
}

/// Holds a trace against rules while it is being written.
pub struct Judge {
    books: Books,
    rules: Vec<Judged>,
    unobservable: BTreeMap<&'static str, Vec<Witness>>,
}

/// A rule that is being judged.
struct Judged {
    rule: &'static Rule,
    running: Running,
    /// Whether it had something to judge.
    tried: bool,
}

enum Running {
    Each(fn(&Books, &TraceLine, &mut Report)),
    AtRest(fn(&Books, &Rest, &mut Report)),
    With(Box<dyn Check>),
}

impl Judge {
    /// A judge of `rules` for a trace in which `witnesses` speak.
    pub fn new(rules: impl IntoIterator<Item = &'static Rule>, witnesses: &[Witness]) -> Judge {
        let mut judge = Judge { books: Books::default(), rules: Vec::new(), unobservable: BTreeMap::new() };
        for rule in rules {
            let missing: Vec<Witness> =
                rule.witnesses.iter().copied().filter(|needed| !witnesses.contains(needed)).collect();
            if missing.is_empty() {
                judge.rules.push(Judged { rule, running: Running::begin(rule.check), tried: false });
            } else {
                judge.unobservable.insert(rule.id, missing);
            }
        }
        judge
    }

    /// Takes the next event. Returns the violations.
    pub fn event(&mut self, line: &TraceLine) -> Vec<Violation> {
        let books = &self.books;
        // A call that arrives from a dead node was sent before the node died, at an unknown time, so it cannot
        // break an order. Controllers are other processes and still alive.
        let late =
            books.down && matches!(&line.event, Event::RpcStart(start) if start.method.starts_with("Node"));
        let violations = collect(&mut self.rules, line.seq, |running, report| match running {
            Running::Each(check) if !late => check(books, line, report),
            Running::With(check) if !late => check.event(books, line, report),
            _ => {}
        });
        self.books.apply(line);
        violations
    }

    /// Judges a state at rest. Returns the differences from the desired state. More events may follow.
    pub fn rest(&mut self, rest: &Rest) -> Vec<Violation> {
        let books = &self.books;
        collect(&mut self.rules, 0, |running, report| match running {
            Running::Each(_) => {}
            Running::AtRest(check) => check(books, rest, report),
            Running::With(check) => check.rest(books, rest, report),
        })
    }

    /// Forgets volumes that are not on the node and in no call if there are more than `most`, so that a judge that watches
    /// for months does not grow. A later call about a forgotten volume is judged as one about an unknown volume.
    pub fn forget_gone(&mut self, most: usize) {
        for volume in self.books.forget_gone(most) {
            for judged in &mut self.rules {
                if let Running::With(check) = &mut judged.running {
                    check.forget(&volume);
                }
            }
        }
    }

    /// The state after the events so far.
    pub fn books(&self) -> &Books {
        &self.books
    }

    /// The ids of the rules that had something to judge so far.
    pub fn tried(&self) -> BTreeSet<&'static str> {
        self.rules.iter().filter(|judged| judged.tried).map(|judged| judged.rule.id).collect()
    }

    /// The rules that cannot be judged here, with their missing witnesses.
    pub fn unobservable(&self) -> &BTreeMap<&'static str, Vec<Witness>> {
        &self.unobservable
    }
}

impl Running {
    fn begin(check: Checked) -> Running {
        match check {
            Checked::Each(check) => Running::Each(check),
            Checked::AtRest(check) => Running::AtRest(check),
            Checked::With(make) => Running::With(make()),
        }
    }
}

fn collect(rules: &mut [Judged], seq: u64, mut ask: impl FnMut(&mut Running, &mut Report)) -> Vec<Violation> {
    let mut violations = Vec::new();
    for Judged { rule, running, tried } in rules {
        let mut report = Report { contract: rule.id, seq, tried: *tried, violations: Vec::new() };
        ask(running, &mut report);
        *tried = report.tried;
        violations.append(&mut report.violations);
    }
    violations
}

/// Judges a whole trace. `rest` is the desired state at its end; without it the trace was cut off, and rules do not ask
/// for events that should happen eventually.
pub fn verdicts(
    trace: &[TraceLine],
    rules: impl IntoIterator<Item = &'static Rule> + Clone,
    witnesses: &[Witness],
    rest: Option<&Rest>,
) -> BTreeMap<&'static str, Verdict> {
    let mut verdicts: BTreeMap<&'static str, Verdict> =
        rules.clone().into_iter().map(|rule| (rule.id, Verdict::NotTried)).collect();
    let mut judge = Judge::new(rules, witnesses);
    for (id, missing) in judge.unobservable() {
        verdicts.insert(id, Verdict::NotObservable(missing.clone()));
    }
    let mut broken: Vec<Violation> = trace.iter().flat_map(|line| judge.event(line)).collect();
    broken.extend(rest.into_iter().flat_map(|rest| judge.rest(rest)));
    verdicts.extend(judge.tried().into_iter().map(|id| (id, Verdict::Kept)));
    for violation in broken {
        match verdicts.get_mut(violation.contract) {
            Some(Verdict::Broken(violations)) => violations.push(violation),
            _ => {
                verdicts.insert(violation.contract, Verdict::Broken(vec![violation]));
            }
        }
    }
    verdicts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::script::trace;

    static NEEDS_MANAGER: Rule = Rule {
        id: "INV-000",
        sentence: "nothing ever happens",
        witnesses: &[Witness::Rpc, Witness::Manager],
        check: Checked::Each(|_, _, report| report.broken("", "something happened", "")),
    };

    static NO_UNSTAGE: Rule = Rule {
        id: "INV-001",
        sentence: "nothing is unstaged",
        witnesses: &[Witness::Rpc],
        check: Checked::Each(|_, line, report| match &line.event {
            Event::RpcStart(_) => report.tried(),
            Event::RpcEnd(end) if end.method == "NodeUnstageVolume" => {
                report.broken("", "it was unstaged", "")
            }
            _ => {}
        }),
    };

    #[test]
    fn rule_without_an_occasion_is_not_tried() {
        let verdict =
            |script: &str| verdicts(&trace(script), [&NO_UNSTAGE], &[Witness::Rpc], None)["INV-001"].clone();
        assert_eq!(verdict("mount /x"), Verdict::NotTried);
        assert_eq!(verdict("stage v1"), Verdict::Kept);
        assert!(
            matches!(verdict("stage v1\nunstage v1\nstage v1"), Verdict::Broken(found) if found.len() == 1)
        );
    }

    #[test]
    fn without_its_witnesses_a_rule_is_not_kept_but_not_observable() {
        let trace = trace("stage v1");
        let rules = [&NEEDS_MANAGER];
        let blind = verdicts(&trace, rules, &[Witness::Rpc], None);
        assert_eq!(blind["INV-000"], Verdict::NotObservable(vec![Witness::Manager]));
        let seeing = verdicts(&trace, rules, &[Witness::Rpc, Witness::Manager], None);
        assert!(matches!(&seeing["INV-000"], Verdict::Broken(violations) if violations.len() == trace.len()));
    }
}
