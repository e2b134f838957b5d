//! Judges a case by the numbered promises and invariants, and makes findings of the violations.

use contracts::event::{Actor, Event, RpcEnd, TraceLine};
use contracts::promise::{self, Strength};
use contracts::rule::books::{Books, is_unknown};
use contracts::rule::{Rest, Rule, Verdict, Violation, Witness, verdicts};
use contracts::witnessed::{self, Found, Kind};
use contracts::{driver, manager};
use harness::cgroup::Beside;
use harness::driver::NOT_ANSWERED;
use harness::sandbox::Written;
use harness::symbols::Symbols;
use testbed::bed::sentence;
use testbed::cx::Ignored;
use testbed::dead_end::UNDOES;
use testbed::limits;

use crate::finding::{Finding, Party};
use crate::promises::Judged;

/// The findings of a trace, faults first, and the verdicts of the rules that found nothing.
///
/// `rest` is the desired state at the end. Without it the trace was cut off, and rules do not ask for events that should
/// happen eventually.
pub(crate) fn judgement(
    trace: &[TraceLine],
    rest: Option<&Rest>,
    symbols: &Symbols,
) -> (Vec<Finding>, Judged) {
    let witnesses = witnesses(trace);
    let mut judged = Judged::default();
    let of_driver = violations(driver::RULES.iter().copied(), trace, &witnesses, rest, &mut judged);
    let suspicions = Suspicion::all(trace, &of_driver);
    let of_manager = violations(manager::all(), trace, &witnesses, rest, &mut judged);

    let of_driver = of_driver.iter().map(|(rule, violation)| drivers(rule, violation, symbols));
    let of_manager = of_manager.iter().map(|(rule, violation)| {
        // A violation found at the end of the trace has no line of its own (0): it is later than every suspicion.
        let before = suspicions.iter().filter(|earlier| violation.seq == 0 || earlier.seq <= violation.seq);
        managers(rule, violation, before.min_by_key(|earlier| earlier.reason), symbols)
    });
    let mut findings: Vec<Finding> = of_driver.chain(of_manager).collect();
    explain_by_staged_volume(&mut findings);
    sort(&mut findings);
    (findings, judged)
}

/// Sorts faults to the front and removes duplicates.
pub(crate) fn sort(findings: &mut Vec<Finding>) {
    findings.sort_by(|a, b| (!a.is_fault(), a).cmp(&(!b.is_fault(), b)));
    findings.dedup_by(|a, b| a.key() == b.key());
}

/// An act of the driver before the volume manager broke an invariant, which may have caused that.
struct Suspicion<'a> {
    seq: u64,
    reason: Reason<'a>,
}

/// The kinds of suspicion, the likeliest explanation first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Reason<'a> {
    /// The driver broke this promise.
    Broke(&'static str),
    /// The driver changed mounts outside of its calls.
    Strayed,
    /// The driver refused to unstage a volume that was published nowhere on the node: the code and the message.
    KeptStaged(&'a str, &'a str),
    /// The driver answered NOT_FOUND when a volume was to be unstaged that had been deleted: the message.
    Deleted(&'a str),
    /// The driver refused this call with a final error.
    Refused(&'a str),
}

impl<'a> Suspicion<'a> {
    fn all(trace: &'a [TraceLine], broken: &[(&'static Rule, Violation)]) -> Vec<Suspicion<'a>> {
        let broken = broken.iter().map(|(rule, violation)| (violation.seq, Reason::Broke(rule.id)));
        let mut books = Books::default();
        let seen = trace.iter().filter_map(|line| {
            let reason = match &line.event {
                Event::RpcEnd(end)
                    if end.code != "OK" && end.is_from_the_driver() && !is_unknown(&end.code) =>
                {
                    Some(refusal(&books, end))
                }
                _ => None,
            };
            books.apply(line);
            reason.map(|reason| (line.seq, reason))
        });
        let seen: Vec<_> = seen.collect();
        let strayed = witnessed::found(trace).into_iter();
        let strayed = strayed.filter(|found| found.kind == Kind::Stray && found.what.by == Actor::Driver);
        let strayed = strayed.map(|found| (found.seq, Reason::Strayed));
        broken.chain(strayed).chain(seen).map(|(seq, reason)| Suspicion { seq, reason }).collect()
    }
}

fn refusal<'a>(books: &Books, end: &'a RpcEnd) -> Reason<'a> {
    let call = books.calls.get(&end.id).filter(|call| call.method == UNSTAGE);
    match call.and_then(|call| books.volume(call.volume())) {
        Some(volume) if volume.deleted && end.code == "NotFound" => Reason::Deleted(&end.message),
        Some(volume) if volume.published.is_empty() => Reason::KeptStaged(&end.code, &end.message),
        _ => Reason::Refused(&end.method),
    }
}

const UNSTAGE: &str = "NodeUnstageVolume";

fn violations(
    rules: impl Iterator<Item = &'static Rule> + Clone,
    trace: &[TraceLine],
    witnesses: &[Witness],
    rest: Option<&Rest>,
    judged: &mut Judged,
) -> Vec<(&'static Rule, Violation)> {
    let mut verdicts = verdicts(trace, rules.clone(), witnesses, rest);
    let mut found = Vec::new();
    for rule in rules {
        match verdicts.remove(rule.id) {
            Some(Verdict::Broken(violations)) => {
                found.extend(violations.into_iter().map(|violation| (rule, violation)));
            }
            Some(Verdict::Kept) => drop(judged.kept.insert(rule.id.to_owned())),
            Some(Verdict::NotObservable(lacks)) => {
                judged.unobservable.insert(rule.id.to_owned(), lacks);
            }
            Some(Verdict::NotTried) | None => {}
        }
    }
    found
}

/// The witnesses of a trace. Calls, mounts and files are always observed, even if there were none; the other witnesses
/// count only if the trace has an event of theirs.
fn witnesses(trace: &[TraceLine]) -> Vec<Witness> {
    let mut witnesses = Witness::heard_in(trace);
    witnesses.extend([Witness::Rpc, Witness::Kernel, Witness::File]);
    witnesses.into_iter().collect()
}

pub(crate) fn drivers(rule: &Rule, violation: &Violation, symbols: &Symbols) -> Finding {
    let strength = promise::find(rule.id).map(|promise| promise.strength);
    let mut sentence = described(violation, symbols);
    if driver::lacks_device(violation) {
        sentence += " The driver said yes to a block volume; if it has none, CreateVolume is to refuse it with INVALID_ARGUMENT.";
    }
    // Two fields that are missing are two faults.
    let cause = match rule.id {
        "DRV-144" | "DRV-170" => format!("{}: {}", violation.cause, violation.detail),
        _ => violation.cause.to_owned(),
    };
    Finding {
        party: Party::Driver,
        strength,
        sentence,
        cites: promise_cited(rule.id),
        ..blank(rule.id, &violation.method, &cause)
    }
}

/// Marks the other findings about a volume that the driver does not unstage as consequences of that one.
fn explain_by_staged_volume(findings: &mut [Finding]) {
    let stays = |finding: &Finding| {
        finding.party == Party::Driver && [UNDOES, STAYS_STAGED].contains(&&*finding.contract)
    };
    let Some(of) = findings.iter().find(|finding| stays(finding)).map(|finding| finding.contract.clone())
    else {
        return;
    };
    let others =
        findings.iter_mut().filter(|finding| finding.contract.starts_with("INV-") && !stays(finding));
    for finding in others.filter(|finding| finding.party == Party::Driver) {
        finding.party = Party::Unknown;
        finding.consequence_of.clone_from(&of);
    }
}

/// Removes what was found at rest about a call that does not undo another, if the case itself has met that refusal.
pub(crate) fn unite_not_undone(findings: &mut Vec<Finding>, method: &str) {
    findings.retain(|finding| finding.contract != UNDOES || finding.method != method);
}

/// The cause of the advice about a volume that was deleted while it was staged.
const DELETED: &str = "a volume that was deleted cannot be unstaged";

/// Whether a finding is that advice.
pub(crate) fn is_of_a_deleted_volume(finding: &Finding) -> bool {
    finding.cause == DELETED
}

/// The invariant that each stage is undone in the end.
const STAYS_STAGED: &str = "INV-007";

/// The finding of a broken invariant of the volume manager or of a controller. It is their fault only if no act of the
/// driver can have caused it: a driver can unmount, cover or remove what the manager has made.
fn managers(
    rule: &Rule,
    violation: &Violation,
    suspicion: Option<&Suspicion<'_>>,
    symbols: &Symbols,
) -> Finding {
    let shared = rule.witnesses.iter().any(|witness| matches!(witness, Witness::Kernel | Witness::File));
    let found = Finding {
        cites: format!("{}: {}.", rule.id, rule.sentence),
        sentence: described(violation, symbols),
        ..blank(rule.id, &violation.method, violation.cause)
    };
    match suspicion.map(|suspicion| suspicion.reason) {
        Some(Reason::Broke(promise)) => consequence(found, promise),
        Some(Reason::Strayed) => consequence(found, STRAY),
        // The violation was found at the end of the trace: the volume stays staged for ever.
        Some(Reason::KeptStaged(code, message))
            if violation.seq == 0 && !manager::binds_controllers(rule.id) =>
        {
            let message = symbols.text(message);
            let refused = format!("of a volume that was unpublished everywhere was refused, with {code}");
            if rule.id == STAYS_STAGED {
                let sentence = format!("{UNSTAGE} {refused} ({message}), for as often as the node asked.");
                return Finding { sentence, ..promise_broken(UNDOES, UNSTAGE, &refused) };
            }
            let sentence = format!("{UNSTAGE} {refused} ({message}), and so: {}", found.sentence);
            // Refusals with two codes are two faults.
            let cause = format!("{} after {code}", found.cause);
            Finding { party: Party::Driver, cause, sentence, ..found }
        }
        // CSI allows the code for a volume that does not exist, and a class without attachments lets the controller delete
        // a volume before the node has unstaged it.
        Some(Reason::Deleted(message)) if violation.seq == 0 && !manager::binds_controllers(rule.id) => {
            let message = symbols.text(message);
            let sentence = format!(
                "{UNSTAGE} of a volume that was deleted while it was staged was refused, with NotFound ({message}): \
                 the node asks again for ever."
            );
            Finding {
                party: Party::Driver,
                strength: Some(Strength::Advice),
                sentence,
                cites: "Kubernetes deletes a volume without attachments also before it is unstaged.".into(),
                ..blank(STAYS_STAGED, UNSTAGE, DELETED)
            }
        }
        Some(Reason::Deleted(_) | Reason::KeptStaged(..)) => {
            unattributed(found, &format!("the driver refused {UNSTAGE} before"))
        }
        Some(Reason::Refused(method)) => unattributed(found, &format!("the driver refused {method} before")),
        None if shared => unattributed(found, "a driver that touches what is the node's can cause it"),
        None => {
            let sentence = format!("{ACQUITTAL}{} {OWN_RULE}. {}", breaker(rule.id), found.sentence);
            Finding { party: Party::Manager, sentence, ..found }
        }
    }
}

/// Marks findings of the volume manager as consequences of the promise that the driver broke in the body of the case.
pub(crate) fn blame(findings: &mut [Finding], promise: &str) {
    for finding in findings.iter_mut().filter(|finding| finding.is_fault()) {
        if matches!(finding.party, Party::Manager | Party::Unknown) {
            let found =
                Finding { sentence: without_verdict(&finding.sentence).to_owned(), ..finding.clone() };
            *finding = consequence(found, promise);
        }
    }
}

/// The promise that a request without a required field is refused, and that an answer lacks none.
const REFUSES_INCOMPLETE: &str = "DRV-090";
const ANSWERS_COMPLETELY: &str = "DRV-170";

/// Marks what an answer lacks as a consequence, if the call was to be refused for what it lacked itself. A case that makes
/// several such calls has one finding, of the first that was not refused, whose cause names each.
pub(crate) fn excuse_answer(findings: &mut [Finding], broken: &Finding) {
    let is_named =
        |method: &str| method == broken.method || broken.cause.contains(&format!(" {method} answered "));
    let is_excused = |finding: &Finding| {
        broken.contract == REFUSES_INCOMPLETE
            && finding.contract == ANSWERS_COMPLETELY
            && is_named(&finding.method)
    };
    for finding in findings.iter_mut().filter(|finding| is_excused(finding)) {
        finding.consequence_of = REFUSES_INCOMPLETE.to_owned();
    }
}

/// The promise that a required call is implemented.
const ANSWERS: &str = "DRV-002";

/// Marks what a case found broken as a consequence, if the driver does not implement the call at all.
pub(crate) fn explain_by_missing_call(findings: &[Finding], broken: &mut Finding) {
    let is_missing = |finding: &Finding| finding.contract == ANSWERS && finding.method == broken.method;
    if broken.contract != ANSWERS && findings.iter().any(is_missing) {
        broken.consequence_of = ANSWERS.to_owned();
    }
}

const ACQUITTAL: &str = "Not the driver's fault: ";
const OWN_RULE: &str = "broke its own rule";
const NOT_KNOWN: &str = "Who is at fault is not known: ";

/// The part of the cluster that an invariant binds.
fn breaker(invariant: &str) -> &'static str {
    match manager::binds_controllers(invariant) {
        true => "a controller of the cluster",
        false => "the volume manager",
    }
}

/// The sentence of a finding without the part about whose fault it is.
fn without_verdict(sentence: &str) -> &str {
    let verdict = sentence.strip_prefix(NOT_KNOWN).or_else(|| sentence.strip_prefix(ACQUITTAL));
    match verdict.and_then(|rest| rest.split_once(". ")) {
        Some((said, found)) if said.contains(OWN_RULE) => found,
        _ => sentence,
    }
}

fn consequence(found: Finding, of: &str) -> Finding {
    let sentence =
        format!("After the driver broke {of}, {} {OWN_RULE}. {}", breaker(&found.contract), found.sentence);
    Finding { party: Party::Unknown, consequence_of: of.to_owned(), sentence, ..found }
}

fn unattributed(found: Finding, why: &str) -> Finding {
    let breaker = breaker(&found.contract);
    let sentence = format!("{NOT_KNOWN}{breaker} {OWN_RULE}, and {why}. {}", found.sentence);
    Finding { party: Party::Unknown, sentence, ..found }
}

/// The call, what was wrong, and where.
fn described(violation: &Violation, symbols: &Symbols) -> String {
    let Violation { method, cause, detail, .. } = violation;
    let by = if method.is_empty() { String::new() } else { format!("{method}: ") };
    let at = if detail.is_empty() { String::new() } else { format!(" (`{}`)", symbols.text(detail)) };
    format!("{by}{cause}{at}.")
}

/// A promise with its strength and the sentence of CSI.
pub(crate) fn promise_cited(id: &str) -> String {
    promise::find(id).map_or_else(String::new, |promise| {
        format!("{id}, {}: {}. {}", promise.strength, promise.sentence, promise.basis)
    })
}

fn blank(contract: &str, method: &str, cause: &str) -> Finding {
    Finding {
        contract: contract.to_owned(),
        method: method.to_owned(),
        cause: cause.to_owned(),
        party: Party::Unknown,
        strength: None,
        consequence_of: String::new(),
        sentence: String::new(),
        cites: String::new(),
    }
}

/// The finding of a promise that the body of a case has found broken.
pub(crate) fn promise_broken(id: &str, method: &str, cause: &str) -> Finding {
    // A case may give the cause in the words of a rule, so that both make the same finding.
    let is_fragment = !method.is_empty() && cause.starts_with(char::is_lowercase) && !cause.ends_with('.');
    Finding {
        party: Party::Driver,
        strength: promise::find(id).map(|promise| promise.strength),
        sentence: if is_fragment { format!("{method}: {cause}.") } else { cause.to_owned() },
        cites: promise_cited(id),
        ..blank(id, method, cause)
    }
}

/// The same in the words of the body. What stands in parentheses at the end of a rule's words is of this one occasion, as the
/// detail of the rule is.
pub(crate) fn promise_broken_in_body(id: &str, method: &str, said: &str) -> Finding {
    let found = promise_broken(id, method, said);
    let cause = said.strip_suffix(')').and_then(|said| Some(said.split_once(" (")?.0));
    match cause.filter(|_| found.sentence != said) {
        Some(cause) => Finding { cause: cause.to_owned(), ..found },
        None => found,
    }
}

/// The finding of a recommendation that the body of a case has found not followed.
pub(crate) fn ignored(ignored: &Ignored, symbols: &Symbols) -> Finding {
    let Ignored { contract, method, cause, strength } = ignored;
    Finding { strength: Some(*strength), ..promise_broken_in_body(contract, method, &symbols.text(cause)) }
}

/// The finding of a case that did not see its story, if no broken promise explains it.
pub(crate) fn story_broken(case: &str, cause: &str, sentence: &str) -> Finding {
    Finding { sentence: cause.to_owned(), cites: sentence.to_owned(), ..blank(case, "", cause) }
}

/// The contract of a stray: changes of a driver outside of its calls break no numbered promise.
const STRAY: &str = "stray";

/// The findings of strays and phantoms: changes that one of the two witnesses did not see.
pub(crate) fn irregular(found: &[Found], symbols: &Symbols) -> Vec<Finding> {
    let finding = |Found { kind, what: irregular, .. }: &Found| {
        let phantom = *kind == Kind::Phantom;
        let (contract, cause) = if phantom {
            ("phantom", "announced, and not there")
        } else {
            (STRAY, "done, and not announced")
        };
        let what = symbols.text(&irregular.what);
        let (party, sentence) = match (phantom, irregular.by) {
            // The driver may have undone it before the kernel was checked.
            (true, _) => (
                Party::Unknown,
                format!("The volume manager announced `{what}`, and the kernel does not show it."),
            ),
            (false, Actor::Driver) => (
                Party::Driver,
                format!("The driver did `{what}` while no call for it was under way: that is the node's."),
            ),
            (false, Actor::Node) => {
                (Party::Manager, format!("The node did `{what}`, and had not announced it."))
            }
            (false, _) => (Party::Unknown, format!("`{what}` happened without an announcement.")),
        };
        Finding { party, sentence, ..blank(contract, "", cause) }
    };
    let mut findings: Vec<Finding> = found.iter().map(finding).collect();
    findings.dedup_by(|a, b| a.key() == b.key());
    findings
}

/// The promise not to reveal secrets in errors and logs.
pub(crate) const SECRETS: &str = "DRV-094";

/// The finding of a secret in the error of a call: a caller writes errors into logs and events.
pub(crate) fn secret_repeated(method: &str, key: &str) -> Finding {
    let cause = format!("the message of its error repeats the secret `{key}`");
    let sentence = format!("{method}: {cause}, which the driver was given. Callers log such messages.");
    Finding { sentence, ..promise_broken(SECRETS, method, &cause) }
}

/// The promise not to reveal secrets in a context.
pub(crate) const NO_SECRET_IN_CONTEXT: &str = "DRV-175";

/// The finding of a secret in a context that a driver has answered: everyone who may read the cluster's volumes sees it.
pub(crate) fn secret_in_context(method: &str, key: &str) -> Finding {
    let cause = format!("the context that it answers holds the secret `{key}`");
    let sentence =
        format!("{method}: {cause}, which the driver was given. A cluster keeps contexts in the open.");
    Finding { sentence, ..promise_broken(NO_SECRET_IN_CONTEXT, method, &cause) }
}

/// The finding of a secret in a log.
pub(crate) fn secret_in_log(file: &str) -> Finding {
    let cause = format!("a secret is in {file}");
    if file == "driver.log" {
        let sentence = format!("The driver wrote a secret into `{file}`.");
        return Finding { sentence, ..promise_broken(SECRETS, "", &cause) };
    }
    Finding {
        party: Party::Manager,
        sentence: format!("The volume manager or the suite wrote a secret into `{file}`."),
        cites: "CSI: fields marked csi_secret must not be logged.".to_owned(),
        ..blank("secrets", "", &cause)
    }
}

/// The contract of changes of the machine, which is no numbered promise.
const MACHINE: &str = "machine";

/// The number of changed files of the machine that are listed one by one.
const CHANGES: usize = 5;

/// The findings of files that the driver has written to the machine: a sandbox throws them away, and without a sandbox
/// they would stay. If the manifest has `prepare`, that command may have written them.
pub(crate) fn machine_written(all: &[Written], is_prepared: bool) -> Vec<Finding> {
    let by = if is_prepared { "The driver, or `prepare` of its manifest," } else { "The driver" };
    let finding = |written: &Written, more: usize| {
        let others = match more {
            0 => String::new(),
            more => format!(", and so changed {more} more of the machine's files and directories"),
        };
        Finding {
            contract: MACHINE.to_owned(),
            method: String::new(),
            cause: written.to_string(),
            party: Party::Driver,
            // CSI does not forbid such files.
            strength: Some(Strength::Advice),
            consequence_of: String::new(),
            sentence: format!("{by} {written} on the machine{others}."),
            cites: "It is thrown away. A driver keeps what is its own below `{state}`; `host_paths` in its manifest \
                    opens more."
                .to_owned(),
        }
    };
    let more = all.len().saturating_sub(CHANGES);
    let listed = all.iter().take(CHANGES).enumerate();
    listed.map(|(index, written)| finding(written, if index + 1 == CHANGES { more } else { 0 })).collect()
}

/// The findings of control groups that appeared while the driver ran, and are not thrown away with it. Those that may be
/// another program's are one finding of the run, whatever their names.
pub(crate) fn groups_made(beside: &Beside) -> Vec<Finding> {
    let cause = |index: usize| match beside.groups.get(index).filter(|_| beside.by_us) {
        Some(group) => format!("a control group stays: {}", group.display()),
        None => "control groups stay".to_owned(),
    };
    let finding = |(index, line): (usize, &String)| Finding {
        party: if beside.by_us { Party::Driver } else { Party::Unknown },
        strength: Some(Strength::Advice),
        sentence: sentence(line),
        cites: "A driver removes the control groups that it has made; `rmdir` does it by hand.".to_owned(),
        ..blank(MACHINE, "", &cause(index))
    };
    limits::groups_stay(beside).iter().enumerate().map(finding).collect()
}

/// The contract of a limit of the machine that the driver has reached, which is no numbered promise.
const LIMITS: &str = "limits";

/// The finding of a limit of the machine that the driver has reached.
pub(crate) fn used_up(cause: &str, limit: &str) -> Finding {
    let sentence = format!("The driver {cause}: {limit}.");
    Finding { party: Party::Driver, sentence, ..blank(LIMITS, "", cause) }
}

/// Excuses the findings of a case that the machine could not carry out: on another machine they may not occur.
pub(crate) fn excuse(findings: &mut [Finding]) {
    for finding in findings.iter_mut().filter(|finding| finding.is_fault()) {
        *finding =
            Finding { party: Party::Unknown, consequence_of: ENVIRONMENT.to_owned(), ..finding.clone() };
    }
}

/// Excuses the findings of a case on a machine that was only slow. The driver's broken promises stay, since no rule takes
/// a late answer for a broken promise, and so do its strays. Returns whether a finding against the driver is left.
pub(crate) fn excuse_slowness(findings: &mut Vec<Finding>) -> bool {
    let is_broken_promise = |finding: &Finding| {
        let is_act = finding.contract.starts_with("DRV-") || finding.contract == STRAY;
        is_act && finding.party == Party::Driver
    };
    let (kept, mut others): (Vec<_>, Vec<_>) =
        findings.drain(..).partition(|finding| finding.is_fault() && is_broken_promise(finding));
    excuse(&mut others);
    let is_left = !kept.is_empty();
    findings.extend(kept.into_iter().chain(others));
    is_left
}

/// The finding of a call without an answer within the case's time for it.
pub(crate) fn unanswered(method: &str) -> Finding {
    let sentence = format!(
        "{method} was not answered in the time of the case; if the driver needs longer, --timeout and `call` below \
         [timeouts] in its manifest give it more."
    );
    Finding { sentence, ..promise_broken("DRV-093", method, NOT_ANSWERED) }
}

/// The finding of a machine that lacks a resource, beside others; `said` names the resource and the remedy.
pub(crate) fn environment(said: &str, others: &[Finding]) -> Finding {
    let cause = said.split(':').next().unwrap_or(said);
    // A wait that the load cut short does not show its result: a driver that is broken waits as well. Nor is
    // a driver acquitted by a full disk of what was seen of it.
    let is_accused = others.iter().any(|finding| finding.party == Party::Driver && finding.is_fault());
    let fault = if cause == OVERLOADED || is_accused { NOT_KNOWN } else { ACQUITTAL };
    Finding {
        party: Party::Environment,
        sentence: format!("{fault}{said}."),
        ..blank(ENVIRONMENT, "", cause)
    }
}

/// The beginning of the text about a load for which a wait ended early.
const OVERLOADED: &str = "the machine was overloaded";

/// The contract of a machine that lacks a resource, which is no numbered promise.
pub(crate) const ENVIRONMENT: &str = "environment";

/// The finding of a log that is too long to be kept whole. CSI has no rule about logs.
pub(crate) fn log_used_up(lost: u64) -> Option<Finding> {
    let finding = Finding {
        strength: Some(Strength::Advice),
        sentence: format!(
            "The driver used up its log: of what it printed {} MiB are not kept; the first and the last part are.",
            lost.div_ceil(1 << 20)
        ),
        ..used_up("used up its log", "")
    };
    (lost > 0).then_some(finding)
}

mod ended;
mod held;
#[cfg(test)]
mod tests;

pub(crate) use ended::{after_the_end, call_at_the_end, driver_ended};
pub(crate) use held::{held, mounts_left, released};
