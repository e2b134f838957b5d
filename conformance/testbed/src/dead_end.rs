//! When to stop waiting for a driver: a call that it refuses each time with the same final error will not succeed.
//!
//! Only the driver's own final answers count, by the manager's list of codes. After any other code, an answer of the proxy,
//! or an act of the case, the count starts anew.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use contracts::event::{Edge, Event, OperationEdge, OperationName, RpcEnd, RpcStart, TraceLine};
use contracts::rule::books::is_unknown;
use harness::journal::Journal;

/// The number of equal failures in a row that ends a wait: the third shows that the second was no accident.
const ENOUGH: usize = 3;

/// The number of unreadable answers that ends a wait: the first broke a promise, and the second shows that it was no
/// accident.
const ENOUGH_UNREADABLE: usize = 2;

/// The least time in milliseconds between the first and the last of them, since an attacher tries again at once.
const APART: f64 = 1000.0;

/// The words of errors of the node itself that no further try mends, and the text that stands for a long one: a volume for
/// other nodes stays one, and what the driver has mounted or laid at a path is not the node's to remove.
const LASTING: [(&str, Option<&str>); 3] = [
    ("NodeAffinity check failed", None),
    ("exists but is not a directory", None),
    (
        "is still mounted by other references",
        Some("the node unstages no volume that is still mounted at a target"),
    ),
];

/// The promise that NodeUnpublishVolume and NodeUnstageVolume undo what was done.
pub const UNDOES: &str = "DRV-184";

/// The calls whose effect the manager or the attacher waits for.
pub(crate) const WAITED_FOR: [&str; 6] = [
    "ControllerPublishVolume",
    "ControllerUnpublishVolume",
    "NodeStageVolume",
    "NodeUnstageVolume",
    "NodePublishVolume",
    "NodeUnpublishVolume",
];

/// An attempt that was repeated and failed in the same way each time.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(test, derive(Default))]
pub struct DeadEnd {
    /// Equal in all cases that meet it: no ids, no paths, no numbers.
    pub(crate) key: String,
    /// The call, as `NodePublishVolume`; empty if the node made none.
    method: String,
    /// The code, such as `ALREADY_EXISTS`; `OK` if the manager found that the call had no effect. Empty without a call.
    code: String,
    message: String,
    calls: usize,
    /// Whether the answer could not be read, which breaks a promise of its own.
    is_unreadable: bool,
    /// Whether this case or an earlier one has waited for the same in vain.
    was_seen_before: bool,
}

/// A call that undoes another, and that the driver refuses for good.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotUndone {
    pub method: String,
    pub cause: String,
}

impl DeadEnd {
    /// The method and a sentence, if the driver refuses for good to undo what it has done.
    pub(crate) fn not_undone(&self) -> Option<NotUndone> {
        let undoes = ["NodeUnpublishVolume", "NodeUnstageVolume"].contains(&&*self.method);
        // After `OK` the manager found something wrong, and a volume that is not there may be gone because an earlier
        // call has undone it: both have promises of their own, as has an answer that cannot be read.
        let is_other = ["OK", "NOT_FOUND"].contains(&&*self.code);
        (undoes && !is_other && !self.is_unreadable).then(|| NotUndone {
            method: self.method.clone(),
            cause: format!("{} answers {} each time: {:?}.", self.method, self.code, self.message),
        })
    }

    /// The chain of causes of a failure: what did not happen with the driver's answer, and why the wait ended.
    pub(crate) fn explain(&self, not_happened: &str) -> Vec<String> {
        let Self { method, calls, was_seen_before, .. } = self;
        let early = match (was_seen_before, method.as_str()) {
            (true, _) => "ended early: the same wait ended in vain earlier in this run".to_owned(),
            (false, "") => format!("ended early: the same error each time ({calls} tries)"),
            (false, _) => format!("ended early: the same answer each time ({calls} calls)"),
        };
        vec![format!("{not_happened}: {}.", self.failure()), early]
    }

    /// The answer of the driver, or the error of the node.
    fn failure(&self) -> String {
        let Self { method, code, message, .. } = self;
        match method.as_str() {
            "" => message.clone(),
            _ => format!("{method} answers {code}{}", self.message()),
        }
    }

    /// The message behind the code.
    fn message(&self) -> String {
        match (self.code.as_str(), self.message.as_str()) {
            (_, "") => String::new(),
            ("OK", message) => format!(", and then: {message}"),
            (_, message) => format!(": {message:?}"),
        }
    }
}

impl fmt::Display for DeadEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { method, code, message, calls, was_seen_before, .. } = self;
        let (subject, tries, message) = match method.as_str() {
            "" => ("the node fails".to_owned(), "tries", format!(": {message}")),
            _ => (format!("{method} answers {code}"), "calls", self.message()),
        };
        match was_seen_before {
            true => write!(f, "ended early: {subject} as earlier in this run, where it never came{message}"),
            false => write!(f, "ended early: {subject} each time ({calls} {tries}){message}"),
        }
    }
}

/// Looks for a dead end in the lines of a journal, from the moment when it is made.
#[derive(Debug, Default)]
pub struct Search {
    /// The dead ends met so far, by key.
    known: BTreeSet<String>,
    /// Calls under way: the method, and the volume's handle.
    calls: BTreeMap<u64, (String, String)>,
    /// The pod of each volume that was published or unpublished last: of an inline one no operation names the handle.
    pods: BTreeMap<String, String>,
    /// The last answer for each volume since the operation on it began.
    answers: BTreeMap<String, Answer>,
    streaks: BTreeMap<[String; 3], Streak>,
}

#[derive(Debug, Clone)]
struct Answer {
    method: String,
    code: String,
    message: String,
    is_final: bool,
    is_unreadable: bool,
}

/// Equal failures in a row.
#[derive(Debug)]
struct Streak {
    key: String,
    calls: usize,
    since: f64,
}

impl Search {
    pub fn new(known: BTreeSet<String>) -> Self {
        Self { known, ..Self::default() }
    }

    /// Reads more lines; the dead end, if they lead to one.
    pub fn read(&mut self, lines: &[TraceLine]) -> Option<DeadEnd> {
        lines.iter().find_map(|line| self.line(line))
    }

    fn line(&mut self, line: &TraceLine) -> Option<DeadEnd> {
        match &line.event {
            Event::RpcStart(start) => self.call_begins(start),
            Event::RpcEnd(end) => return self.call_ends(end, line.t_ms),
            Event::Operation(edge) if edge.edge == Edge::End => return self.operation_ends(edge, line.t_ms),
            Event::Operation(edge) => drop(self.answer_to(edge)),
            // Any step of the case may be the cure, and so may a restarted driver or node.
            Event::Case(_) | Event::Pod(_) | Event::Disturbed(_) | Event::Process(_) => {
                self.streaks.clear();
                self.answers.clear();
            }
            _ => {}
        }
        None
    }

    fn call_begins(&mut self, start: &RpcStart) {
        let request = start.request();
        let handle = request.volume_id();
        if handle.is_empty() || !WAITED_FOR.contains(&start.method.as_str()) {
            return;
        }
        if let Some(pod) = pod_of(request.target_path()) {
            self.pods.insert(pod.to_owned(), handle.to_owned());
        }
        self.calls.insert(start.id, (start.method.clone(), handle.to_owned()));
    }

    fn call_ends(&mut self, end: &RpcEnd, now: f64) -> Option<DeadEnd> {
        let (method, handle) = self.calls.remove(&end.id)?;
        let answer = Answer {
            code: screaming(&end.code),
            message: end.message.clone(),
            is_final: end.unreadable.is_some() || end.is_from_the_driver() && !is_unknown(&end.code),
            is_unreadable: end.unreadable.is_some(),
            method: method.clone(),
        };
        // The attacher's calls are no operations of the manager.
        if !method.starts_with("Controller") {
            self.answers.insert(handle, answer);
            return None;
        }
        let of = [method, handle, String::new()];
        if end.code == "OK" {
            self.streaks.remove(&of);
            return None;
        }
        self.failed(of, answer, now)
    }

    fn operation_ends(&mut self, edge: &OperationEdge, now: f64) -> Option<DeadEnd> {
        let of = [edge.name.to_string(), edge.volume.clone(), edge.pod.clone()];
        let answer = self.answer_to(edge);
        match (answer, &edge.error) {
            (Some(mut answer), Some(error)) => {
                if answer.code == "OK" {
                    answer.message.clone_from(error);
                }
                self.failed(of, answer, now)
            }
            (None, Some(error)) if let Some(message) = lasting(error) => {
                let (method, code) = (String::new(), String::new());
                let answer = Answer { method, code, message, is_final: true, is_unreadable: false };
                self.failed(of, answer, now)
            }
            // The operation succeeded, or it made no call to the driver.
            _ => {
                self.streaks.remove(&of);
                None
            }
        }
    }

    /// The answer to the last call of an operation.
    fn answer_to(&mut self, edge: &OperationEdge) -> Option<Answer> {
        let is_inline = edge.volume.starts_with("kubernetes.io/csi/") && !edge.volume.contains('^');
        let of_pod = self.pods.get(&edge.pod).filter(|_| is_inline);
        self.answers.remove(of_pod.map_or(handle_of(&edge.volume), String::as_str))
    }

    fn failed(&mut self, of: [String; 3], answer: Answer, now: f64) -> Option<DeadEnd> {
        if !answer.is_final {
            self.streaks.remove(&of);
            return None;
        }
        let Answer { method, code, message, is_unreadable, .. } = answer;
        let key = format!("{method} {code} {}", without_names(&message));
        let streak =
            self.streaks.entry(of).or_insert_with(|| Streak { key: key.clone(), calls: 0, since: now });
        if streak.key != key {
            *streak = Streak { key: key.clone(), calls: 0, since: now };
        }
        streak.calls += 1;
        let was_seen_before = self.known.contains(&key);
        let shown = match is_unreadable {
            true => streak.calls >= ENOUGH_UNREADABLE,
            false => streak.calls >= ENOUGH && now - streak.since >= APART,
        };
        let calls = streak.calls;
        (shown || was_seen_before).then_some(DeadEnd {
            key,
            method,
            code,
            message,
            calls,
            is_unreadable,
            was_seen_before,
        })
    }
}

/// A search in a journal, from the moment when it is made.
#[derive(Debug)]
pub struct Following {
    journal: Journal,
    read: usize,
    search: Search,
}

impl Following {
    pub fn new(journal: Journal, search: Search) -> Self {
        let read = journal.length();
        Self { journal, read, search }
    }

    /// Reads the new lines of the journal; the dead end, if they lead to one.
    pub fn look(&mut self) -> Option<DeadEnd> {
        let lines = self.journal.since(self.read);
        self.read += lines.len();
        self.search.read(&lines)
    }

    /// Returns when the journal has led to a dead end.
    pub(crate) async fn dead_end(mut self) -> DeadEnd {
        loop {
            let read = self.read;
            self.journal.wait(LONG, |journal| journal.length() > read).await;
            if let Some(end) = self.look() {
                return end;
            }
        }
    }
}

/// Longer than any wait: the journal's call needs a limit.
const LONG: Duration = Duration::from_secs(24 * 60 * 60);

/// What to tell of an error of the node that no further try mends.
fn lasting(error: &str) -> Option<String> {
    let (_, instead) = LASTING.into_iter().find(|(words, _)| error.contains(words))?;
    Some(instead.unwrap_or(error).to_owned())
}

/// Whether the node has tried one mount again and again, and failed in the same way each time without a call of the driver's:
/// then it is not the load that is waited for.
pub(crate) fn fails_by_itself(lines: &[TraceLine]) -> bool {
    let mut streaks: BTreeMap<[&str; 2], (&str, usize)> = BTreeMap::new();
    for line in lines {
        match &line.event {
            Event::RpcStart(start) if WAITED_FOR.contains(&&*start.method) => streaks.clear(),
            Event::Case(_) | Event::Disturbed(_) | Event::Process(_) => streaks.clear(),
            Event::Operation(edge) if edge.edge == Edge::End && edge.name == OperationName::Mount => {
                let of = [&*edge.volume, &*edge.pod];
                let before = streaks.remove(&of);
                if let Some(error) = edge.error.as_deref() {
                    let equal = before.filter(|(known, _)| *known == error).map_or(0, |(_, times)| times);
                    streaks.insert(of, (error, equal + 1));
                }
            }
            _ => {}
        }
    }
    streaks.values().any(|(_, times)| *times >= ENOUGH)
}

/// The pod in the path of a target.
fn pod_of(target: &str) -> Option<&str> {
    target.split_once("/pods/")?.1.split('/').next()
}

/// The handle in the unique name of a volume.
fn handle_of(volume: &str) -> &str {
    volume.split_once('^').map_or(volume, |(_, handle)| handle)
}

/// A code in the spelling of the specification: `ALREADY_EXISTS` for `AlreadyExists`.
fn screaming(code: &str) -> String {
    if code == "OK" {
        return code.to_owned();
    }
    let mut text = String::new();
    for letter in code.chars() {
        if letter.is_uppercase() && !text.is_empty() {
            text.push('_');
        }
        text.push(letter.to_ascii_uppercase());
    }
    text
}

/// The words of a message that are the same for each volume: those without digits, quotes, dashes and slashes.
fn without_names(message: &str) -> String {
    let names = |c: char| c.is_ascii_digit() || "\"'`/-_<>^".contains(c);
    message.split_whitespace().filter(|word| !word.contains(names)).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests;
