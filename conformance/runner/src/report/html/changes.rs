//! The difference from an earlier run.

use maud::{Markup, html};

use super::{link, prose};
use crate::since::{Since, Slower};

pub(super) fn section(since: &Since) -> Markup {
    html! {
        h2 { "Changes" }
        p { "Since " code { (since.run) } ": " (since.tally()) "." }
        @for (word, faults) in since.lists().into_iter().filter(|(_, faults)| !faults.is_empty()) {
            details open[word == "new"] {
                summary { (faults.len()) ": " (word) }
                ul {
                    @for fault in faults {
                        li { code { (fault.contract) } " " (prose(&fault.sentence)) " " (link(fault.case.as_str())) }
                    }
                }
            }
        }
        @if !since.slower.is_empty() {
            details { summary { (since.slower.len()) ": slower" } ul { @for case in &since.slower { (slower(case)) } } }
        }
    }
}

fn slower(Slower { case, before, now }: &Slower) -> Markup {
    html! { li { (link(case.as_str())) (format!(" {now:.1} s, and {before:.1} s before")) } }
}
