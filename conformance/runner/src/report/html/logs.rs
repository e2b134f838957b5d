//! What the directory of a case shows: its timeline, the changes of the mount table, and the ends of its logs.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use maud::{Markup, PreEscaped, html};

use super::list;
use super::timeline::{CHANGES, MOST, Timeline};
use crate::event::CaseReport;
use crate::logs::moments;

/// The bytes at the end of a log that are shown.
const TAIL: u64 = 16 << 10;

pub(super) fn section(case: &CaseReport, logs: &Path, room: &mut usize) -> Markup {
    let most = MOST.min(*room);
    let timeline = Timeline::of(&logs.join("trace.jsonl"), most);
    let timeline = timeline.map(|timeline| timeline.with_logs(&moments::read(logs), most));
    *room -= timeline.as_ref().map_or(0, Timeline::marks);
    html! {
        @if let Some(timeline) = &timeline {
            (drawing(case.id.as_str(), timeline))
            (changes(timeline))
            (timeline.mounts.difference())
        }
        @for name in case.log_files.iter().filter(|name| *name != "trace.jsonl") {
            (log(logs, name))
        }
    }
}

fn changes(timeline: &Timeline) -> Markup {
    let title = match timeline.earlier {
        0 => "what the kernel showed: each change of the mount table (+ mounted, ~ changed, - unmounted)"
            .to_owned(),
        earlier => format!(
            "what the kernel showed: the last {CHANGES} changes of the mount table (journal.txt has {earlier} before them)"
        ),
    };
    list(&title, &timeline.kernel)
}

/// The data of a timeline, and the element in which the page's script draws it.
fn drawing(id: &str, timeline: &Timeline) -> Markup {
    let marks = timeline.marks();
    if marks == 0 {
        return html! {
            p.quiet {
                "no timeline: this page has as many events as it can draw, and trace.jsonl has those of this case"
            }
        };
    }
    html! {
        details.timeline {
            summary {
                "timeline"
                @if timeline.is_cut { ": the first " (marks) " events, trace.jsonl has all" }
            }
            div.filters {
                button data-zoom="2" { "zoom in" }
                button data-zoom="0.5" { "zoom out" }
                button data-zoom="fit" { "whole case" }
            }
            div.chart tabindex="0" role="region" aria-label={ "timeline of " (id) } {}
            div.detail aria-live="polite" { "Point at an event, or go to it with Tab." }
            script type="application/json" { (PreEscaped(timeline.json())) }
        }
    }
}

/// The end of a log; the whole log is in the directory of the case.
fn log(logs: &Path, name: &str) -> Markup {
    let (text, is_cut) = tail(&logs.join(name)).unwrap_or_default();
    html! {
        @if !text.is_empty() {
            details {
                summary { code { (name) } @if is_cut { " (its last " (TAIL >> 10) " KiB)" } }
                pre tabindex="0" { (text) }
            }
        }
    }
}

fn tail(path: &Path) -> std::io::Result<(String, bool)> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL)))?;
    let mut bytes = Vec::new();
    file.take(TAIL).read_to_end(&mut bytes)?;
    Ok((String::from_utf8_lossy(&bytes).into_owned(), length > TAIL))
}
