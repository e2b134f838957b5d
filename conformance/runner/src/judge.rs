//! Holds what happened in a case against the numbered promises.

use std::collections::BTreeSet;

use contracts::event::{Actor, Event, Irregular, TraceLine};
use contracts::rule::{Rest, Rule, Verdict, Violation, Witness, verdicts};
use contracts::{driver, manager};
use harness::symbols::Symbols;

use crate::finding::{Finding, Party};

/// Every promise that was broken.
///
/// `rest` says what is still wanted at the end; without it the trace was cut off, and what should happen
/// eventually is not asked for.
pub(crate) fn findings(trace: &[TraceLine], rest: Option<&Rest>, symbols: &Symbols) -> Vec<Finding> {
    let witnesses = witnesses(trace);
    let of_driver = violations(driver::RULES, trace, &witnesses, rest);
    // What the manager does after the driver has lied to it is not held against the manager.
    let lied_at = of_driver.iter().map(|(_, violation)| violation.seq).filter(|seq| *seq > 0).min();
    let before_the_lie = |violation: &Violation| match lied_at {
        Some(lied_at) => violation.seq > 0 && violation.seq < lied_at,
        None => true,
    };
    let of_manager = violations(manager::RULES, trace, &witnesses, rest);
    let of_manager = of_manager.iter().filter(|(_, violation)| before_the_lie(violation));

    let of_driver =
        of_driver.iter().map(|(rule, violation)| finding(Party::Driver, rule, violation, symbols));
    let of_manager = of_manager.map(|(rule, violation)| finding(Party::Manager, rule, violation, symbols));
    let mut findings: Vec<Finding> = of_driver.chain(of_manager).collect();
    findings.sort();
    findings.dedup_by(|a, b| a.key() == b.key());
    findings
}

fn violations(
    rules: &'static [&'static Rule],
    trace: &[TraceLine],
    witnesses: &[Witness],
    rest: Option<&Rest>,
) -> Vec<(&'static Rule, Violation)> {
    let mut judged = verdicts(trace, rules.iter().copied(), witnesses, rest);
    let mut found = Vec::new();
    for rule in rules {
        if let Some(Verdict::Broken(violations)) = judged.remove(rule.id) {
            found.extend(violations.into_iter().map(|violation| (*rule, violation)));
        }
    }
    found
}

/// Who has testified. The harness itself looks at calls, mounts and files, even where there were none; of the rest
/// it knows what it was told.
fn witnesses(trace: &[TraceLine]) -> Vec<Witness> {
    let mut witnesses = Witness::heard_in(trace);
    witnesses.extend([Witness::Rpc, Witness::Kernel, Witness::File]);
    witnesses.into_iter().collect()
}

fn finding(party: Party, rule: &Rule, violation: &Violation, symbols: &Symbols) -> Finding {
    let Violation { contract, method, cause, detail, .. } = violation;
    let by = if method.is_empty() { String::new() } else { format!("{method}: ") };
    let at = if detail.is_empty() { String::new() } else { format!(" (`{}`)", symbols.text(detail)) };
    let whose = match party {
        Party::Driver => "",
        _ => "Not the driver's fault: the volume manager broke its own rule. ",
    };
    Finding {
        contract: (*contract).to_owned(),
        method: method.clone(),
        cause: (*cause).to_owned(),
        party,
        sentence: format!("{whose}{by}{cause}{at}."),
        cites: format!("{}: {}.", rule.id, rule.sentence),
    }
}

/// Strays and phantoms: what one of the two witnesses did not see.
pub(crate) fn irregular(found: &[Irregular], trace: &[TraceLine]) -> Vec<Finding> {
    let phantoms: BTreeSet<&str> = (trace.iter())
        .filter_map(|line| match &line.event {
            Event::Phantom(irregular) => Some(irregular.what.as_str()),
            _ => None,
        })
        .collect();
    let finding = |irregular: &Irregular| {
        let phantom = phantoms.contains(irregular.what.as_str());
        let (contract, cause) = if phantom {
            ("phantom", "announced, and not there")
        } else {
            ("stray", "done, and not announced")
        };
        let party = if irregular.by == Actor::Driver { Party::Driver } else { Party::Manager };
        let sentence = match (phantom, party) {
            (true, _) => {
                format!("The volume manager announced `{}`, and the kernel does not show it.", irregular.what)
            }
            (false, Party::Driver) => {
                format!("The driver did `{}` while no call for that volume was under way.", irregular.what)
            }
            (false, _) => format!("`{}` happened, and nobody had announced it.", irregular.what),
        };
        Finding {
            contract: contract.to_owned(),
            method: String::new(),
            cause: cause.to_owned(),
            party,
            sentence,
            cites: String::new(),
        }
    };
    let mut findings: Vec<Finding> = found.iter().map(finding).collect();
    findings.dedup_by(|a, b| a.key() == b.key());
    findings
}

/// A secret that stands in a log.
pub(crate) fn secret_told(file: &str) -> Finding {
    let (party, who) = match file {
        "driver.log" => (Party::Driver, "The driver"),
        _ => (Party::Manager, "The volume manager or the suite"),
    };
    Finding {
        contract: "secrets".to_owned(),
        method: String::new(),
        cause: format!("a secret is in {file}"),
        party,
        sentence: format!("{who} wrote a secret into `{file}`."),
        cites: "CSI: fields marked csi_secret must not be logged.".to_owned(),
    }
}

/// A limit of the machine's that the driver has come to.
pub(crate) fn used_up(cause: &str, limit: &str) -> Finding {
    Finding {
        contract: "limits".to_owned(),
        method: String::new(),
        cause: cause.to_owned(),
        party: Party::Driver,
        sentence: format!("The driver {cause}: {limit}."),
        cites: String::new(),
    }
}
