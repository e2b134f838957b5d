//! One case of the page: its findings, the difference of the stories, its timeline and its logs.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use super::timeline::{CHANGES, MOST, Timeline};
use super::{command, escape, prose};
use crate::event::CaseReport;
use crate::logs::moments;
use crate::program;
use crate::report::line::label;

/// The bytes at the end of a log that are shown.
const TAIL: u64 = 16 << 10;

/// Writes a case as a section that folds; one that did not pass is open and has its timeline.
/// Of its events as many are drawn as there is room for on the page.
pub(super) fn write(page: &mut String, case: &CaseReport, room: &mut usize) {
    let id = escape(case.id.as_str());
    let bad = case.status.is_bad();
    let time = if case.status.is_skip() { String::new() } else { format!("{:.2} s", case.seconds) };
    let promises = case.findings.iter().map(|finding| finding.contract.as_str());
    let words: Vec<&str> = [case.id.as_str(), &case.proves].into_iter().chain(promises).collect();
    let _ = writeln!(
        page,
        "<details class=case id=\"{id}\" data-status={status} data-words=\"{words}\"{open}>\
         <summary><span class=\"status {status}\">{label}</span><span class=time>{time}</span><code>{id}</code></summary><div>",
        status = case.status,
        words = escape(&words.join(" ").to_lowercase()),
        open = if bad { " open" } else { "" },
        label = label(case.status),
    );
    let _ = writeln!(page, "<p>{}</p>", prose(&case.proves).replace("\n\n", "<br>"));
    if !case.reasons.is_empty() {
        let _ = writeln!(page, "<p class=quiet>{}</p>", prose(&case.reasons.join("; ")));
    }
    if bad {
        failure(page, case, room);
    } else if !case.findings.is_empty() {
        // What a case that passed has noticed beside it: its logs say more, and are many.
        findings(page, case);
        again(page, case);
    }
    *page += "</div></details>\n";
}

fn failure(page: &mut String, case: &CaseReport, room: &mut usize) {
    breakage(page, case);
    findings(page, case);
    let before: Vec<String> = case.after.iter().map(ToString::to_string).collect();
    list(page, "passes when it runs alone, and breaks on the same driver after", &before);
    list(page, "left behind", &case.left_behind);
    list(page, "the kernel said", &case.kernel);
    list(page, "not checked", &case.unchecked);
    again(page, case);
    if case.look.is_some() {
        // The page outlives a sandbox that was kept: the case has to run again.
        *page += "<p class=quiet>look around in it: keep it, and enter it from another terminal</p>";
        command(page, &format!("{} --keep", case.again));
        command(page, &format!("{} enter {}", program::name(), case.id));
    }
    if let Some(logs) = &case.logs {
        timeline(page, case.id.as_str(), logs, room);
        case.log_files.iter().filter(|file| *file != "trace.jsonl").for_each(|file| log(page, logs, file));
    }
}

fn findings(page: &mut String, case: &CaseReport) {
    for finding in &case.findings {
        let _ = writeln!(
            page,
            "<p><b>{}</b><br><span class=quiet>{}</span></p>",
            prose(&finding.sentence),
            prose(&finding.cites)
        );
    }
}

/// The command that runs the case again.
fn again(page: &mut String, case: &CaseReport) {
    *page += "<p class=quiet>again</p>";
    command(page, &case.again);
}

/// The step at which the story broke, with the difference between the expected and the actual story.
fn breakage(page: &mut String, case: &CaseReport) {
    let Some(broken) = &case.breakage else { return };
    let after = if broken.after.is_empty() {
        "at the beginning".to_owned()
    } else {
        format!("after {}", broken.after)
    };
    let _ = writeln!(page, "<p><code>{}</code> <span class=quiet>{}</span></p>", escape(&after), broken.at);
    match (&broken.expected, &broken.actual) {
        (Some(expected), Some(actual)) => {
            *page += "<p class=quiet>The expected story, with what was missing (-) and what came (+):</p><pre class=diff tabindex=0>";
            for change in similar::TextDiff::from_lines(expected, actual).iter_all_changes() {
                let (mark, class) = match change.tag() {
                    similar::ChangeTag::Equal => ("  ", ""),
                    similar::ChangeTag::Delete => ("- ", "gone"),
                    similar::ChangeTag::Insert => ("+ ", "new"),
                };
                let _ = writeln!(
                    page,
                    "<span class=\"{class}\">{mark}{}</span>",
                    escape(change.value().trim_end())
                );
            }
            *page += "</pre>";
        }
        (_, Some(seen)) if !seen.is_empty() => {
            let _ =
                writeln!(page, "<p class=quiet>Seen until then:</p><pre tabindex=0>{}</pre>", escape(seen));
        }
        _ => {}
    }
    if broken.expected.is_none() || case.findings.is_empty() {
        // The findings follow, and a case that judged a promise broke at one of them.
        let is_finding = |cause: &&String| case.findings.iter().any(|finding| finding.sentence == **cause);
        let causes = broken.cause.iter().filter(|cause| !is_finding(cause));
        causes.for_each(|cause| _ = writeln!(page, "<p>{}</p>", prose(cause)));
    }
    if let Some(event) = &broken.event {
        let _ = writeln!(page, "<p>The first event of a pod: <code>{}</code></p>", escape(event));
    }
}

fn list(page: &mut String, title: &str, lines: &[String]) {
    if !lines.is_empty() {
        let _ =
            writeln!(page, "<p class=quiet>{title}</p><pre tabindex=0>{}</pre>", escape(&lines.join("\n")));
    }
}

fn timeline(page: &mut String, id: &str, logs: &Path, room: &mut usize) {
    let most = MOST.min(*room);
    let Some(timeline) = Timeline::of(&logs.join("trace.jsonl"), most) else { return };
    let timeline = timeline.with_logs(&moments::read(logs), most);
    *room -= timeline.marks();
    drawing(page, id, &timeline);
    let title = match timeline.earlier {
        0 => "what the kernel showed: each change of the mount table (+ mounted, ~ changed, - unmounted)"
            .to_owned(),
        earlier => format!(
            "what the kernel showed: the last {CHANGES} changes of the mount table (journal.txt has {earlier} before them)"
        ),
    };
    list(page, &title, &timeline.kernel);
    let mounted = timeline
        .mounted
        .iter()
        .flat_map(|(path, shown)| shown.iter().map(move |shown| format!("+ {path}  =  {shown}")));
    list(
        page,
        "mounts that the case has more at its end than at its beginning",
        &mounted.collect::<Vec<_>>(),
    );
}

/// The data of a timeline, and the place where the page's script draws it.
fn drawing(page: &mut String, id: &str, timeline: &Timeline) {
    if timeline.marks() == 0 {
        *page += "<p class=quiet>no timeline: this page has as many events as it can draw, and trace.jsonl has those of \
                  this case</p>";
        return;
    }
    let cut = match timeline.is_cut {
        true => format!(": the first {} events, trace.jsonl has all", timeline.marks()),
        false => String::new(),
    };
    let _ = writeln!(
        page,
        "<details class=timeline><summary>timeline{cut}</summary>\
         <div class=filters><button data-zoom=2>zoom in</button><button data-zoom=0.5>zoom out</button>\
         <button data-zoom=fit>whole case</button></div><div class=chart tabindex=0 role=region aria-label=\"timeline of {id}\"></div>\
         <div class=detail aria-live=polite>Point at an event, or go to it with Tab.</div>\
         <script type=\"application/json\">{json}</script></details>",
        id = escape(id),
        json = timeline.json()
    );
}

/// The end of a log; the whole log is in the directory of the case.
fn log(page: &mut String, logs: &Path, name: &str) {
    let path = logs.join(name);
    let Ok((text, cut)) = tail(&path) else { return };
    if text.is_empty() {
        return;
    }
    let cut = if cut { format!(" (its last {} KiB)", TAIL >> 10) } else { String::new() };
    let _ = writeln!(
        page,
        "<details><summary><code>{}</code>{cut}</summary><pre tabindex=0>{}</pre></details>",
        escape(name),
        escape(&text)
    );
}

fn tail(path: &Path) -> std::io::Result<(String, bool)> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL)))?;
    let mut bytes = Vec::new();
    file.take(TAIL).read_to_end(&mut bytes)?;
    Ok((String::from_utf8_lossy(&bytes).into_owned(), length > TAIL))
}
