//! Which call goes wrong, and how. Decides only; the server does it.

use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// One sort of call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// Each of the others.
    Any,
    /// A name is looked up, or attributes are asked for.
    Look,
    /// A file is opened.
    Open,
    /// A file, a directory or a link is made.
    Create,
    Read,
    Write,
    /// Written data are synced.
    Sync,
    /// A range is allocated, zeroed or given back; a file gets another length.
    Allocate,
    /// Attributes but the length are changed.
    Change,
    /// A file or a directory is removed.
    Remove,
    /// A file or a directory gets another name.
    Rename,
    /// A directory is listed.
    List,
}

/// The effect on a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// The call fails with this error number.
    Errno(i32),
    /// The call takes this many milliseconds longer. The rules after this one are asked, too.
    Delay(u64),
    /// The call is not answered until it is released.
    Hang,
    /// Only this number of bytes is written and reported as written.
    Short(u64),
    /// Only this number of bytes is written, and the answer says all.
    Torn(u64),
    /// Nothing is written, and the answer says all.
    Lost,
    /// Once this number of bytes was written by calls that this rule is about, there is no space left.
    NoSpace(u64),
    /// The serving process dies, without an answer.
    Die,
}

/// One rule: about which calls it is, which of those it spares, and what it does to the others.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rule {
    operation: Operation,
    #[serde(default)]
    path: Option<PathBuf>,
    #[serde(default)]
    range: Option<Range<u64>>,
    #[serde(default)]
    after: u64,
    #[serde(default)]
    times: Option<u64>,
    #[serde(default)]
    chance: Option<f64>,
    fault: Fault,
}

impl Rule {
    /// About every call of this sort, for ever.
    pub fn on(operation: Operation, fault: Fault) -> Rule {
        Rule { operation, path: None, range: None, after: 0, times: None, chance: None, fault }
    }

    /// Only about this file, and what is below it; the path is relative to the file system's root.
    pub fn path(self, path: impl Into<PathBuf>) -> Rule {
        Rule { path: Some(path.into()), ..self }
    }

    /// Only about reads, writes and allocations that touch this range.
    pub fn range(self, range: Range<u64>) -> Rule {
        Rule { range: Some(range), ..self }
    }

    /// Spares the first `count` of the calls it is about.
    pub fn after(self, count: u64) -> Rule {
        Rule { after: count, ..self }
    }

    /// Does it this often, and is spent.
    pub fn times(self, count: u64) -> Rule {
        Rule { times: Some(count), ..self }
    }

    /// Does it with this probability each time.
    pub fn chance(self, probability: f64) -> Rule {
        Rule { chance: Some(probability), ..self }
    }
}

/// Names an armed rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RuleId(pub u64);

/// A call that a rule might be about.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call<'a> {
    pub(super) operation: Operation,
    pub(super) path: &'a Path,
    pub(super) offset: u64,
    pub(super) length: u64,
}

/// The effect of the rules on one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Decision {
    pub(super) delay_ms: u64,
    pub(super) fate: Fate,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Fate {
    #[default]
    Plain,
    Fail(i32),
    Hang,
    Short(u64),
    Torn(u64),
    Lost,
    Die,
}

/// The armed rules, in order, and what they have seen.
#[derive(Debug, Default)]
pub(super) struct RuleBook {
    armed: Vec<Armed>,
    last: u64,
    seed: u64,
}

#[derive(Debug)]
struct Armed {
    id: RuleId,
    rule: Rule,
    seen: u64,
    done: u64,
    written: u64,
    dice: u64,
}

impl RuleBook {
    pub(super) fn new(seed: u64) -> RuleBook {
        RuleBook { seed, ..RuleBook::default() }
    }

    pub(super) fn arm(&mut self, rule: Rule) -> RuleId {
        self.last += 1;
        let id = RuleId(self.last);
        // Never zero, which the generator would stay at; and another sequence for each rule.
        let dice = (self.seed ^ self.last.wrapping_mul(0x9e37_79b9_7f4a_7c15)) | 1;
        self.armed.push(Armed { id, rule, seen: 0, done: 0, written: 0, dice });
        id
    }

    pub(super) fn disarm(&mut self, id: RuleId) -> bool {
        let before = self.armed.len();
        self.armed.retain(|armed| armed.id != id);
        self.armed.len() < before
    }

    pub(super) fn clear(&mut self) {
        self.armed.clear();
    }

    /// The number of calls that each armed rule has changed.
    pub(super) fn struck(&self) -> impl Iterator<Item = (RuleId, u64)> {
        self.armed.iter().map(|armed| (armed.id, armed.done))
    }

    /// Asks the rules about a call, in order. The first that strikes decides; delays add up before it.
    pub(super) fn decide(&mut self, call: &Call<'_>) -> Decision {
        let mut decision = Decision::default();
        for armed in &mut self.armed {
            if !armed.strikes(call) {
                continue;
            }
            decision.fate = match armed.rule.fault {
                Fault::Delay(ms) => {
                    decision.delay_ms += ms;
                    continue;
                }
                Fault::Errno(errno) => Fate::Fail(errno),
                Fault::NoSpace(_) => Fate::Fail(libc::ENOSPC),
                Fault::Hang => Fate::Hang,
                Fault::Short(bytes) => Fate::Short(bytes),
                Fault::Torn(bytes) => Fate::Torn(bytes),
                Fault::Lost => Fate::Lost,
                Fault::Die => Fate::Die,
            };
            return decision;
        }
        decision
    }
}

impl Armed {
    fn strikes(&mut self, call: &Call<'_>) -> bool {
        if !self.is_about(call) || self.rule.times.is_some_and(|times| self.done >= times) {
            return false;
        }
        self.seen += 1;
        if self.seen <= self.rule.after || !self.is_lucky() {
            return false;
        }
        if let Fault::NoSpace(bytes) = self.rule.fault {
            // Each write counts until it would not fit any more.
            if self.written + call.length <= bytes {
                self.written += call.length;
                return false;
            }
        }
        self.done += 1;
        true
    }

    fn is_about(&self, call: &Call<'_>) -> bool {
        let rule = &self.rule;
        let writes_only =
            matches!(rule.fault, Fault::Short(_) | Fault::Torn(_) | Fault::Lost | Fault::NoSpace(_));
        (rule.operation == Operation::Any || rule.operation == call.operation)
            && (!writes_only || call.operation == Operation::Write)
            && rule.path.as_ref().is_none_or(|path| call.path.starts_with(path))
            && rule.range.as_ref().is_none_or(|range| {
                call.offset < range.end && range.start < call.offset.saturating_add(call.length)
            })
    }

    fn is_lucky(&mut self) -> bool {
        let Some(chance) = self.rule.chance else { return true };
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        ((self.dice >> 11) as f64) < chance * (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EIO: Fault = Fault::Errno(5);

    fn write(offset: u64, length: u64) -> Call<'static> {
        Call { operation: Operation::Write, path: Path::new("a/disk"), offset, length }
    }

    fn fates(rule: Rule, calls: &[Call<'_>]) -> Vec<Fate> {
        let mut book = RuleBook::new(1);
        book.arm(rule);
        calls.iter().map(|call| book.decide(call).fate).collect()
    }

    #[test]
    fn some_are_spared_then_some_struck_then_it_is_spent() {
        let rule = Rule::on(Operation::Write, EIO).after(1).times(2);
        let expected = [Fate::Plain, Fate::Fail(5), Fate::Fail(5), Fate::Plain];
        assert_eq!(fates(rule, &[write(0, 1); 4]), expected);
    }

    #[test]
    fn a_range_is_touched_at_its_edges_only_from_inside() {
        let rule = Rule::on(Operation::Any, EIO).range(100..200);
        let calls = [write(90, 10), write(90, 11), write(199, 1), write(200, 1)];
        assert_eq!(fates(rule, &calls), [Fate::Plain, Fate::Fail(5), Fate::Fail(5), Fate::Plain]);
    }

    #[test]
    fn a_path_covers_what_is_below_it_and_no_namesake() {
        let rule = Rule::on(Operation::Any, EIO);
        assert_eq!(fates(rule.clone().path("a"), &[write(0, 1)]), [Fate::Fail(5)]);
        assert_eq!(fates(rule.clone().path("a/di"), &[write(0, 1)]), [Fate::Plain]);
        assert_eq!(fates(rule.path(""), &[write(0, 1)]), [Fate::Fail(5)]);
    }

    #[test]
    fn space_ends_where_a_write_does_not_fit() {
        let rule = Rule::on(Operation::Any, Fault::NoSpace(10));
        let expected = [Fate::Plain, Fate::Fail(28), Fate::Plain, Fate::Fail(28)];
        assert_eq!(fates(rule, &[write(0, 6), write(6, 6), write(6, 4), write(10, 1)]), expected);
    }

    #[test]
    fn delays_add_up_before_the_rule_that_decides() {
        let mut book = RuleBook::new(1);
        book.arm(Rule::on(Operation::Any, Fault::Delay(3)));
        book.arm(Rule::on(Operation::Write, Fault::Delay(4)));
        book.arm(Rule::on(Operation::Write, EIO));
        book.arm(Rule::on(Operation::Write, Fault::Die));
        assert_eq!(book.decide(&write(0, 1)), Decision { delay_ms: 7, fate: Fate::Fail(5) });
    }

    #[test]
    fn chance_is_the_same_for_the_same_seed() {
        let rule = Rule::on(Operation::Write, EIO).chance(0.5);
        let first = fates(rule.clone(), &[write(0, 1); 64]);
        assert_eq!(first, fates(rule, &[write(0, 1); 64]));
        assert!(first.contains(&Fate::Plain) && first.contains(&Fate::Fail(5)));
    }

    #[test]
    fn a_short_read_is_not_a_fault_of_ours() {
        let read = Call { operation: Operation::Read, ..write(0, 8) };
        assert_eq!(fates(Rule::on(Operation::Any, Fault::Short(4)), &[read]), [Fate::Plain]);
    }
}
