//! One case of the page: its sentence, its findings, the commands that run it again, and what its logs show.

use maud::{Markup, html};

use super::{breakage, command, list, logs, prose};
use crate::event::CaseReport;
use crate::program;
use crate::report::line::label;

/// A section that folds; of a case that did not pass it is open and has a timeline.
/// Of its events as many are drawn as there is room for on the page.
pub(super) fn section(case: &CaseReport, room: &mut usize) -> Markup {
    let bad = case.status.is_bad();
    html! {
        details.case #(case.id) data-status=(case.status) data-words=(searched(case)) open[bad] {
            summary {
                span class={ "status " (case.status) } { (label(case.status)) }
                span.time { @if !case.status.is_skip() { (format!("{:.2} s", case.seconds)) } }
                code { (case.id) }
            }
            div {
                @for paragraph in case.proves.split("\n\n") { p { (prose(paragraph)) } }
                @if !case.reasons.is_empty() { p.quiet { (prose(&case.reasons.join("; "))) } }
                @if bad {
                    (failure(case, room))
                } @else if !case.findings.is_empty() {
                    // What a case that passed has noticed beside it: its logs say more, and are many.
                    (findings(case))
                    (again(case))
                }
            }
        }
    }
}

/// The text that the page's search looks at.
fn searched(case: &CaseReport) -> String {
    let promises = case.findings.iter().map(|finding| finding.contract.as_str());
    let words: Vec<&str> = [case.id.as_str(), &case.proves].into_iter().chain(promises).collect();
    words.join(" ").to_lowercase()
}

fn failure(case: &CaseReport, room: &mut usize) -> Markup {
    let before: Vec<String> = case.after.iter().map(ToString::to_string).collect();
    html! {
        @if let Some(broken) = &case.breakage { (breakage::section(case, broken)) }
        (findings(case))
        (list("passes when it runs alone, and breaks on the same driver after", &before))
        (list("left behind", &case.left_behind))
        (list("the kernel said", &case.kernel))
        (list("not checked", &case.unchecked))
        (again(case))
        @if case.look.is_some() {
            // The page outlives a sandbox that was kept: the case has to run again.
            p.quiet { "look around in it: keep it, and enter it from another terminal" }
            (command(&format!("{} --keep", case.again)))
            (command(&format!("{} enter {}", program::name(), case.id)))
        }
        @if let Some(logs) = &case.logs { (logs::section(case, logs, room)) }
    }
}

fn findings(case: &CaseReport) -> Markup {
    html! {
        @for finding in &case.findings {
            p { b { (prose(&finding.sentence)) } br; span.quiet { (prose(&finding.cites)) } }
        }
    }
}

/// The command that runs the case again.
fn again(case: &CaseReport) -> Markup {
    html! { p.quiet { "again" } (command(&case.again)) }
}
