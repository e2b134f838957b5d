//! The step at which the story of a case broke, with the difference between the expected and the actual story.

use maud::{Markup, html};
use similar::{ChangeTag, TextDiff};
use testbed::failure::Breakage;

use super::prose;
use crate::event::CaseReport;

pub(super) fn section(case: &CaseReport, broken: &Breakage) -> Markup {
    html! {
        p {
            code { @if broken.after.is_empty() { "at the beginning" } @else { "after " (broken.after) } } " "
            span.quiet { (broken.at) }
        }
        (stories(broken))
        @for cause in causes(case, broken) { p { (prose(cause)) } }
        @if let Some(event) = &broken.event { p { "The first event of a pod: " code { (event) } } }
    }
}

fn stories(broken: &Breakage) -> Markup {
    match (&broken.expected, &broken.actual) {
        (Some(expected), Some(actual)) => html! {
            p.quiet { "The expected story, with what was missing (-) and what came (+):" }
            (difference(expected, actual))
        },
        (_, Some(seen)) if !seen.is_empty() => html! {
            p.quiet { "Seen until then:" }
            pre tabindex="0" { (seen) }
        },
        _ => html! {},
    }
}

fn difference(expected: &str, actual: &str) -> Markup {
    html! {
        pre.diff tabindex="0" {
            @for change in TextDiff::from_lines(expected, actual).iter_all_changes() {
                @let line = change.value().trim_end();
                @match change.tag() {
                    ChangeTag::Equal => { "  " (line) },
                    ChangeTag::Delete => { span.gone { "- " (line) } },
                    ChangeTag::Insert => { span.new { "+ " (line) } },
                }
                "\n"
            }
        }
    }
}

/// The causes that no finding says: the findings follow, and a case that judged a promise broke at one of them.
fn causes<'a>(case: &'a CaseReport, broken: &'a Breakage) -> impl Iterator<Item = &'a String> {
    let are_shown = broken.expected.is_none() || case.findings.is_empty();
    let is_finding = |cause: &String| case.findings.iter().any(|finding| finding.sentence == *cause);
    broken.cause.iter().filter(move |cause| are_shown && !is_finding(cause))
}
