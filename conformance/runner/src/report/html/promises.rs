//! Every promise with its standing, those of the driver first.

use contracts::promise::Strength;
use maud::{Markup, html};

use super::prose;
use crate::finding::Party;
use crate::promises::{Counts, PromiseRecord, Standing};
use crate::report::line::count;

pub(super) fn section(promises: &[PromiseRecord]) -> Markup {
    let parties =
        [(Party::Driver, "of the driver"), (Party::Manager, "of the volume manager and the controllers")];
    html! {
        h2 { "Promises" }
        p { "Of the driver: " (Counts(promises)) }
        @for (party, title) in parties {
            details {
                summary { (title) }
                dl { @for record in promises.iter().filter(|record| record.binds == party) { (entry(record)) } }
            }
        }
    }
}

fn entry(record: &PromiseRecord) -> Markup {
    let binds = record.strength.is_none_or(|strength| strength == Strength::Must);
    let class = match record.standing {
        Standing::Broken if !binds => "should",
        Standing::Broken => "failed",
        Standing::Kept => "passed",
        Standing::NotTried | Standing::NotObservable => "quiet",
    };
    html! {
        dt {
            span class={ "status " (class) } {
                @if class == "should" { "not followed" } @else { (record.standing) }
            }
            code { (record.id) }
        }
        dd {
            @if let Some(strength) = record.strength { (strength) ": " }
            (prose(&record.sentence)) " "
            @if record.judged_in > 0 { span.quiet { "judged in " (count(record.judged_in, "case")) } }
        }
    }
}
