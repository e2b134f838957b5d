//! Judges a recording by every promise: kept, broken (with the line), not tried, or not observable.
//!
//! The [`Recording`] may be a `trace.jsonl` of this program or come from a recorder beside another node. It has fewer
//! witnesses than a case: a promise that needs a missing witness is reported as not observable, with that witness. Touches
//! nothing: the input is a text.

mod read;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::BufRead;

use contracts::promise::{self, Strength};
use contracts::rule::{Judge, Rest, Rule, Verdict, Violation, Witness};
use contracts::{driver, manager, witnessed};
use serde::Serialize;

pub(crate) use read::{ReadError, Recording};

/// The verdicts of a recording.
#[derive(Debug, Serialize)]
pub(crate) struct Judgement {
    /// The witnesses of the recording.
    witnesses: BTreeSet<Witness>,
    /// The promises with a verdict other than not tried, and those that a recording could show.
    promises: Vec<Judged>,
}

/// The violations that were found. Of each rule only the first are kept, since a recording has no end.
#[derive(Debug, Default)]
pub(crate) struct Broken {
    rules: BTreeMap<&'static str, Listed>,
}

#[derive(Debug, Default)]
struct Listed {
    first: Vec<Violation>,
    /// The number of those that were not kept.
    more: usize,
}

/// The verdict about a promise.
#[derive(Debug, Serialize)]
struct Judged {
    contract: &'static str,
    binds: Party,
    /// The strength of a driver's promise; `None` for invariants of the manager.
    #[serde(skip_serializing_if = "Option::is_none")]
    strength: Option<Strength>,
    sentence: &'static str,
    verdict: Verdict,
    /// How often it was broken beside the listed violations.
    #[serde(skip_serializing_if = "is_zero")]
    more: usize,
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Party {
    Driver,
    Manager,
    /// The controllers of the cluster.
    Controllers,
    /// The one that the finding names.
    Either,
}

/// The rules, with the party that each binds, in the order of the report.
const PARTIES: [(&[&Rule], Party); 4] = [
    (driver::RULES, Party::Driver),
    (manager::RULES, Party::Manager),
    (manager::CLUSTER, Party::Controllers),
    (witnessed::RULES, Party::Either),
];

fn rules() -> impl Iterator<Item = (&'static Rule, Party)> {
    PARTIES.into_iter().flat_map(|(rules, binds)| rules.iter().map(move |rule| (*rule, binds)))
}

/// The witnesses that a rule needs and a recording does not have.
fn missing(rule: &Rule, witnesses: &BTreeSet<Witness>) -> Vec<Witness> {
    rule.witnesses.iter().copied().filter(|needed| !witnesses.contains(needed)).collect()
}

/// The witnesses that a recording can have.
const POSSIBLE: [Witness; 8] = [
    Witness::Rpc,
    Witness::Kernel,
    Witness::File,
    Witness::Api,
    Witness::Manager,
    Witness::Operations,
    Witness::Recovery,
    Witness::Makers,
];

/// The volumes that are remembered after they have left the node.
const REMEMBERED: usize = 10_000;

impl Judgement {
    /// Judges a recording as it is read. With `rest`, nothing was under way at its end, and what should have happened by
    /// then is asked for, too.
    ///
    /// # Errors
    /// When the text is no recording.
    pub(crate) fn of(mut recording: Recording<impl BufRead>, rest: Option<&Rest>) -> Result<Self, ReadError> {
        let mut judge = Judge::new(rules().map(|(rule, _)| rule), &POSSIBLE);
        let mut broken = Broken::default();
        while let Some(line) = recording.next()? {
            judge.event(&line).iter().for_each(|violation| broken.add(violation));
            judge.forget_gone(REMEMBERED);
        }
        if let Some(rest) = rest {
            judge.rest(rest).iter().for_each(|violation| broken.add(violation));
        }
        // The witnesses are known only now: a rule that lacks one was judged in vain.
        let witnesses = recording.witnesses();
        for (rule, _) in rules().filter(|(rule, _)| !missing(rule, &witnesses).is_empty()) {
            broken.rules.remove(rule.id);
        }
        Ok(Self::so_far(&judge, witnesses, &broken))
    }

    /// The verdicts of a judge so far, with the violations that were kept.
    pub(crate) fn so_far(judge: &Judge, witnesses: BTreeSet<Witness>, broken: &Broken) -> Self {
        let tried = judge.tried();
        let verdict = |rule: &Rule| match (broken.rules.get(rule.id), missing(rule, &witnesses)) {
            (Some(listed), _) => Verdict::Broken(listed.first.clone()),
            (None, missing) if !missing.is_empty() => Verdict::NotObservable(missing),
            (None, _) if tried.contains(rule.id) => Verdict::Kept,
            (None, _) => Verdict::NotTried,
        };
        let more = |rule: &Rule| broken.rules.get(rule.id).map_or(0, |listed| listed.more);
        let judged = |(rule, binds)| Judged::new(rule, binds, verdict(rule), more(rule));
        let promises = rules().map(judged).collect();
        Self { witnesses, promises }
    }

    /// Whether anything was broken that binds its party.
    pub(crate) fn is_bad(&self) -> bool {
        self.promises.iter().any(|promise| promise.binds_its_party() && promise.is_broken())
    }

    /// Whether there was anything to judge.
    pub(crate) fn says_something(&self) -> bool {
        self.promises.iter().any(|promise| matches!(promise.verdict, Verdict::Kept | Verdict::Broken(_)))
    }

    /// Every promise with its verdict, one line each.
    pub(crate) fn in_full(&self) -> String {
        let line = |promise: &Judged| {
            let verdict = match &promise.verdict {
                Verdict::Kept => "kept".to_owned(),
                Verdict::NotTried => "not tried".to_owned(),
                Verdict::Broken(_) => "broken".to_owned(),
                Verdict::NotObservable(missing) => format!("not observable without {}", names(missing)),
            };
            format!("{}  {verdict}: {}\n", promise.head(), promise.sentence)
        };
        self.promises.iter().map(line).collect()
    }

    fn count(&self, of: impl Fn(&Judged) -> bool) -> usize {
        self.promises.iter().filter(|promise| of(promise)).count()
    }
}

impl Broken {
    /// The violations of a rule that are kept.
    const LISTED: usize = 100;

    pub(crate) fn add(&mut self, violation: &Violation) {
        let listed = self.rules.entry(violation.contract).or_default();
        match listed.first.len() < Self::LISTED {
            true => listed.first.push(violation.clone()),
            false => listed.more += 1,
        }
    }
}

impl Judged {
    fn new(rule: &Rule, binds: Party, verdict: Verdict, more: usize) -> Self {
        let strength = promise::find(rule.id).map(|promise| promise.strength);
        Self { contract: rule.id, binds, strength, sentence: rule.sentence, verdict, more }
    }

    fn is_broken(&self) -> bool {
        matches!(self.verdict, Verdict::Broken(_))
    }

    /// Whether breaking the promise is a fault. A broken recommendation or advice is reported and is none.
    fn binds_its_party(&self) -> bool {
        self.strength.is_none_or(|strength| strength == Strength::Must)
    }

    /// The id, with how far it binds if that is less than a MUST.
    fn head(&self) -> String {
        match self.strength {
            Some(strength @ (Strength::Should | Strength::Advice)) => {
                format!("{} ({strength})", self.contract)
            }
            _ => self.contract.to_owned(),
        }
    }
}

/// The broken promises, each with where it showed, and the sum.
impl fmt::Display for Judgement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for promise in &self.promises {
            let Verdict::Broken(violations) = &promise.verdict else { continue };
            let party = match promise.binds {
                Party::Driver => "the driver",
                Party::Manager => "the node's volume manager",
                Party::Controllers => "the cluster's controllers",
                Party::Either => "the one it names",
            };
            let verb = if promise.binds_its_party() { "broken by" } else { "not followed by" };
            writeln!(f, "{}: {}\n  {verb} {party}", promise.head(), promise.sentence)?;
            violations.iter().try_for_each(|violation| writeln!(f, "    {}", place(violation)))?;
            if promise.more > 0 {
                writeln!(f, "    and {} more times", promise.more)?;
            }
            writeln!(f)?;
        }
        let broken = self.count(|promise| promise.binds_its_party() && promise.is_broken());
        let ignored = self.count(|promise| !promise.binds_its_party() && promise.is_broken());
        let kept = self.count(|promise| promise.verdict == Verdict::Kept);
        let not_tried = self.count(|promise| promise.verdict == Verdict::NotTried);
        let broken = if broken == 0 { "none".to_owned() } else { broken.to_string() };
        write!(f, "{broken} broken, {kept} kept, {not_tried} not tried")?;
        if ignored > 0 {
            write!(f, ", {ignored} recommended and not followed")?;
        }
        self.unobservable(f)
    }
}

impl Judgement {
    /// The promises that no witness in the recording speaks of, with the witnesses they would take.
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
        let all = self.count(|promise| matches!(promise.verdict, Verdict::NotObservable(_)));
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

/// The lines of a recording that are a witness.
fn name(witness: Witness) -> &'static str {
    match witness {
        Witness::Rpc => "calls",
        Witness::Kernel => "mounts",
        Witness::File => "what the node made",
        Witness::Api => "objects of the API",
        Witness::Manager => "the manager's books",
        Witness::Operations => "the manager's operations",
        Witness::Recovery => "what the manager knows after a start",
        Witness::Makers => "the process that made each mount",
        Witness::Clock => "the manager's clock",
    }
}
