//! The findings of the run, each once with its cases.

use contracts::promise::Strength;
use maud::{Markup, html};

use super::{link, prose};
use crate::finding::{Finding, RunFinding};
use crate::report::line::count;

pub(super) fn section(findings: &[RunFinding]) -> Markup {
    html! {
        h2 { "Findings" }
        @for found in findings { (entry(found)) }
    }
}

fn entry(RunFinding { finding, case, also_in, .. }: &RunFinding) -> Markup {
    html! {
        div.box {
            b { (prose(&finding.sentence)) } br;
            (kind(finding)) " " code { (finding.contract) } " " (finding.method) br;
            span.quiet { (prose(&finding.cites)) }
            details {
                summary { (count(1 + also_in.len(), "case")) }
                (link(case.as_str()))
                @for other in also_in { br; (link(other.as_str())) }
            }
        }
    }
}

/// The strength of the promise, or the finding that explains this one.
fn kind(finding: &Finding) -> Markup {
    let class = match (finding.strength, finding.consequence_of.is_empty()) {
        (_, false) => "quiet",
        (Some(Strength::Should), _) => "should",
        (Some(Strength::Advice), _) => "advice",
        (Some(Strength::Must) | None, _) => "must",
    };
    html! {
        span class=(class) {
            @if !finding.consequence_of.is_empty() { "consequence of " (finding.consequence_of) }
            @else if let Some(strength) = finding.strength { (strength) }
        }
    }
}
