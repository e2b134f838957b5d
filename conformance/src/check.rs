//! A recording held against every promise: what was kept, what was broken and where, and what nobody testified to.
//!
//! The [`Recording`] may be a `trace.jsonl` of this program or come from a recorder beside somebody else's node.
//! It has fewer witnesses than a case: a promise that takes one that is missing is told as not observable, with
//! whom it would have taken. Touches nothing: it is given a text.

mod read;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use contracts::event::TraceLine;
use contracts::rule::{Rest, Rule, Verdict, Violation, Witness, verdicts};
use contracts::{driver, manager};
use serde::Serialize;

pub(crate) use read::Recording;

/// What a recording says about every promise.
#[derive(Debug, Serialize)]
pub(crate) struct Judgement {
    /// Who testified.
    witnesses: BTreeSet<Witness>,
    /// Those it says something about or could say something about.
    promises: Vec<Judged>,
}

/// What a recording says about one promise.
#[derive(Debug, Serialize)]
struct Judged {
    /// Its id.
    contract: &'static str,
    /// Whom it binds.
    binds: Party,
    /// The promise itself.
    sentence: &'static str,
    /// What became of it.
    verdict: Verdict,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Party {
    Driver,
    Manager,
}

impl Judgement {
    /// Judges what these have testified to. With `rest`, nothing was under way at its end, and what should have
    /// happened by then is asked for, too.
    pub(crate) fn of(trace: &[TraceLine], witnesses: BTreeSet<Witness>, rest: Option<&Rest>) -> Self {
        let mut promises = judge(driver::RULES, Party::Driver, trace, &witnesses, rest);
        promises.extend(judge(manager::RULES, Party::Manager, trace, &witnesses, rest));
        Self { witnesses, promises }
    }

    /// Whether any promise was broken.
    pub(crate) fn is_bad(&self) -> bool {
        self.promises.iter().any(|promise| matches!(promise.verdict, Verdict::Broken(_)))
    }

    /// Whether there was anything that could be judged.
    pub(crate) fn says_something(&self) -> bool {
        self.promises.iter().any(|promise| !matches!(promise.verdict, Verdict::NotObservable(_)))
    }

    /// Every promise in a line, with what became of it.
    pub(crate) fn in_full(&self) -> String {
        let line = |promise: &Judged| {
            let verdict = match &promise.verdict {
                Verdict::Kept => "kept".to_owned(),
                Verdict::Broken(_) => "broken".to_owned(),
                Verdict::NotObservable(missing) => format!("not observable without {}", names(missing)),
            };
            format!("{}  {verdict}: {}\n", promise.contract, promise.sentence)
        };
        self.promises.iter().map(line).collect()
    }

    fn count(&self, of: impl Fn(&Verdict) -> bool) -> usize {
        self.promises.iter().filter(|promise| of(&promise.verdict)).count()
    }
}

fn judge(
    rules: &'static [&'static Rule],
    binds: Party,
    trace: &[TraceLine],
    witnesses: &BTreeSet<Witness>,
    rest: Option<&Rest>,
) -> Vec<Judged> {
    let witnesses: Vec<Witness> = witnesses.iter().copied().collect();
    let mut verdicts = verdicts(trace, rules.iter().copied(), &witnesses, rest);
    let judged = |rule: &&'static Rule| {
        let verdict = verdicts.remove(rule.id)?;
        Some(Judged { contract: rule.id, binds, sentence: rule.sentence, verdict })
    };
    rules.iter().filter_map(judged).collect()
}

/// The broken promises, each with where it showed, and the sum.
impl fmt::Display for Judgement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for promise in &self.promises {
            let Verdict::Broken(violations) = &promise.verdict else { continue };
            let whose = match promise.binds {
                Party::Driver => "the driver",
                Party::Manager => "the node's volume manager",
            };
            writeln!(f, "{}: {}\n  broken by {whose}", promise.contract, promise.sentence)?;
            violations.iter().try_for_each(|violation| writeln!(f, "    {}", place(violation)))?;
            writeln!(f)?;
        }
        let broken = self.count(|verdict| matches!(verdict, Verdict::Broken(_)));
        let kept = self.count(|verdict| *verdict == Verdict::Kept);
        write!(
            f,
            "{} broken, {kept} kept",
            if broken == 0 { "none".to_owned() } else { broken.to_string() }
        )?;
        self.unobservable(f)
    }
}

impl Judgement {
    /// How much more there would be to say, and who would have to be heard.
    fn unobservable(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut missing: BTreeMap<Witness, usize> = BTreeMap::new();
        for promise in &self.promises {
            if let Verdict::NotObservable(witnesses) = &promise.verdict {
                witnesses.iter().for_each(|witness| *missing.entry(*witness).or_default() += 1);
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        let all = self.count(|verdict| matches!(verdict, Verdict::NotObservable(_)));
        let lacks = missing.iter().map(|(witness, count)| format!("{} ({count})", name(*witness)));
        write!(f, ", {all} not observable; it would take {}", lacks.collect::<Vec<_>>().join(", "))
    }
}

fn place(violation: &Violation) -> String {
    let at = match violation.seq {
        0 => "at the end".to_owned(),
        line => format!("line {line}"),
    };
    format!("{at}: {violation}")
}

fn names(witnesses: &[Witness]) -> String {
    witnesses.iter().map(|witness| name(*witness)).collect::<Vec<_>>().join(" and ")
}

/// What of a recording a witness is.
fn name(witness: Witness) -> &'static str {
    match witness {
        Witness::Rpc => "calls",
        Witness::Kernel => "mounts",
        Witness::File => "what the node made",
        Witness::Api => "objects of the API",
        Witness::Manager => "the manager's books",
        Witness::Operations => "the manager's operations",
        Witness::Clock => "the manager's clock",
    }
}
