//! The words of reports with their meanings, and the needs that a capability of CSI satisfies.

use testbed::need::Need;

use super::explain_need;

/// The words, each with its meaning.
const WORDS: &[(&str, &str)] = &[
    (
        "asked",
        "The capabilities in the head of a report are the driver's own answers, asked before the first case.",
    ),
    ("lanes", "Cases run beside each other, one in each lane; --jobs says how many lanes there are."),
    ("odd", "An answer of the driver that breaks no promise and is worth a look."),
    ("limit", "What cannot be checked in this run, and why."),
    ("machine", "What of this machine the driver can change, and what it cannot."),
    ("pass", "The case came to its end, and no promise was broken in it."),
    ("fail", "The driver broke a promise, or the case's own story did not come true."),
    ("leak", "Something is left behind: a mount, a device, a process, a file or a volume."),
    ("error", "The suite or the machine could not do its part; the driver is not to blame."),
    ("driver exit", "The driver ended by itself in the middle of the case."),
    ("skip", "The case did not run: the driver does not report what it needs, or this machine lacks it."),
    ("xfail", "The case fails as the manifest's `expected_failures` say."),
    ("xpass", "The case passes, and the manifest's `expected_failures` say that it fails: take it out."),
    (
        "finding",
        "A broken MUST, or a case whose story did not come true. It is listed once, with all of its cases.",
    ),
    ("consequence", "What followed from another finding: mend that one first."),
    ("recommended", "CSI says SHOULD. It is a finding, and fails no case."),
    ("advice", "CSI does not ask for it, and callers are better off. It fails no case."),
    ("broken", "A promise that a case has seen broken."),
    ("kept", "A promise that a case had an occasion to see broken, and did not."),
    ("not tried", "A promise that no case that ran had an occasion to see broken."),
    ("not observable", "A promise that no case that ran could have seen broken: a witness is missing."),
];

/// The meaning of a word, or the needs behind a capability.
pub(super) fn explain(name: &str) -> Option<String> {
    let name = name.trim_start_matches("no ").replace(['-', '_'], " ");
    // Singular and plural are the same word.
    let is_it = |word: &str| word.trim_end_matches('s').eq_ignore_ascii_case(name.trim_end_matches('s'));
    let word = WORDS.iter().find(|(word, _)| is_it(word));
    word.map(|(word, meaning)| format!("{word}   a word in reports\n\n  {meaning}"))
        .or_else(|| capability(&name))
}

fn capability(name: &str) -> Option<String> {
    let capability = name.replace(' ', "_").to_ascii_uppercase();
    let is_capability = capability.contains('_') && capability.len() > 4;
    let behind = Need::ALL.iter().filter(|need| need.help().contains(&capability));
    let behind: Vec<String> = behind.map(|need| explain_need(*need)).collect();
    (is_capability && !behind.is_empty()).then(|| {
        format!(
            "{capability}   a capability of CSI, which the driver is asked for\n\n{}",
            behind.join("\n\n")
        )
    })
}
