//! `volproof explain`: what a name in a report means.

use clap::Args;
use contracts::rule::Rule;
use contracts::{driver, manager, promise};

use super::Exit;
use runner::exit_code;
use runner::promises;
use runner::select;
use testbed::case::{self, Case, CaseId};
use testbed::need::{Need, Provider};

/// Say what a case, a promise or a need is about.
#[derive(Debug, Args)]
pub(super) struct Flags {
    /// A case's id, a promise such as INV-013 or DRV-031, or a need such as Block
    name: String,
}

pub(super) fn run(flags: &Flags) -> Result<u8, Exit> {
    let text = explain(&flags.name).ok_or_else(|| unknown(&flags.name))?;
    println!("{}", text.trim_end());
    Ok(exit_code::OK)
}

fn explain(name: &str) -> Option<String> {
    let need =
        Need::ALL.iter().find(|need| need.name().eq_ignore_ascii_case(name)).map(|need| explain_need(*need));
    let case = || case::find(&CaseId::new(name)).map(explain_case);
    need.or_else(case).or_else(|| explain_contract(name)).or_else(|| only_match(name))
}

/// A part of an id is enough where it means one case.
fn only_match(name: &str) -> Option<String> {
    let all = case::all();
    let mut meant = all.iter().filter(|case| select::matches(name, &case.id()));
    match (meant.next(), meant.next()) {
        (Some(case), None) => Some(explain_case(case)),
        _ => None,
    }
}

fn explain_case(case: &Case) -> String {
    let mut text = format!("{}   {}:{}\n\n", case.id(), case.file, case.line);
    case.proves.lines().for_each(|line| text += &format!("  {line}\n"));
    text += "\n  needs\n";
    case.needs().iter().for_each(|need| text += &format!("    {need}  {}\n", need.help()));
    if !case.judges.is_empty() {
        text += "\n  judges, beside the rules\n";
        let promises = case.judges.iter().filter_map(|id| promise::find(id));
        promises.for_each(|promise| text += &format!("    {}  {}\n", promise.id, promise.sentence));
    }
    for (word, reason) in [("runs alone", case.serial), ("expected to fail", case.xfail)] {
        reason.iter().for_each(|reason| text += &format!("\n  {word}: {reason}\n"));
    }
    text
}

fn explain_contract(name: &str) -> Option<String> {
    let name = name.to_ascii_uppercase();
    let rule = rules().find(|(_, rule)| rule.id == name);
    let promise = promise::find(&name);
    let binds = if promise.is_some() { "driver" } else { rule?.0 };
    let sentence =
        promise.map_or_else(|| rule.map_or("", |(_, rule)| rule.sentence), |promise| promise.sentence);
    let mut text = format!("{name}   binds the {binds}\n\n  {sentence}\n");
    if let Some(promise) = promise {
        text += &format!("\n  {}: {}\n", promise.strength, promise.basis);
        promise.seen_in.iter().for_each(|seen_in| text += &format!("\n  seen in {seen_in}"));
    }
    match rule {
        Some((_, rule)) => {
            let says = rule.witnesses.iter().map(|witness| format!("{witness:?}").to_lowercase());
            text += &format!(
                "\n  judged in every case that gives an occasion, by what these say: {}\n",
                says.collect::<Vec<_>>().join(", ")
            );
        }
        None => text += "\n  judged by no rule over traces\n",
    }
    text += &judged_elsewhere(&name);
    Some(text)
}

/// What judges a promise beside a rule.
fn judged_elsewhere(id: &str) -> String {
    let mut text = String::new();
    promises::judged_by_the_suite(id).for_each(|what| text += &format!("\n  judged by {what}\n"));
    let all = case::all();
    let cases: Vec<String> = (all.iter().filter(|case| case.judges.contains(&id)))
        .map(|case| format!("    {}\n", case.id()))
        .collect();
    if !cases.is_empty() {
        text += &format!("\n  judged by these cases\n{}", cases.concat());
    }
    if !promises::is_judged(id, &all) {
        text += "\n  not observable: nothing here judges it yet\n";
    }
    text
}

/// Every rule, with whom it binds.
fn rules() -> impl Iterator<Item = (&'static str, &'static Rule)> {
    let manager = manager::RULES.iter().map(|rule| ("volume manager", *rule));
    driver::RULES.iter().map(|rule| ("driver", *rule)).chain(manager)
}

fn explain_need(need: Need) -> String {
    let who = match need.provider() {
        Provider::Driver => "asked of the driver",
        Provider::Host => "looked for on the machine",
    };
    let mut text = format!("{need}   {who}\n\n  {}\n\n  needed by\n", need.help());
    let all = case::all();
    all.iter()
        .filter(|case| case.needs().contains(&need))
        .for_each(|case| text += &format!("    {}\n", case.id()));
    text
}

fn unknown(name: &str) -> Exit {
    let known: Vec<CaseId> = (case::all().iter().map(|case| case.id()))
        .chain(Need::ALL.iter().map(|need| CaseId::new(need.name())))
        .chain(rules().map(|(_, rule)| CaseId::new(rule.id)))
        .chain(promise::all().map(|promise| CaseId::new(promise.id)))
        .collect();
    let nearest = select::nearest(name, &known);
    let lines = nearest.iter().map(|id| format!("nearest: {id}"));
    Exit::new(exit_code::NOTHING_RAN, format!("nothing here is called `{name}`")).details(lines)
}
