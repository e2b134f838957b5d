//! The words of reports with their meanings, and the needs that a capability of CSI satisfies.

use harness::facts::Fact;
use testbed::need::Need;

use super::explain_need;

/// The words, each with its meaning.
const WORDS: &[(&str, &str)] = &[
    (
        "asked",
        "The capabilities in the head of a report are the driver's own answers, asked before the first case.",
    ),
    (
        "lanes",
        "Cases run beside each other, one in each lane; --jobs says how many lanes there are, otherwise three for two \
         processors.",
    ),
    ("odd", "An answer of the driver that breaks no promise and is worth a look."),
    ("limit", "What cannot be checked in this run, and why."),
    ("machine", "What of this machine the driver can change, and what it cannot."),
    ("driver", "The driver, its version, and those of its capabilities that cases need."),
    ("host", "This machine: its kernel, the user's rights, and what cases need of it or do not find."),
    ("guest", "A virtual machine with a kernel of its own, for cases that this machine cannot run."),
    (
        "tier",
        "The place where cases run: `host` on this machine, `vm` in guests, `auto` here or in a guest, if KVM is there.",
    ),
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
    ("must", "CSI demands it. A broken MUST fails the case and the run."),
    ("should", "CSI recommends it. It is a finding, and fails no case."),
    ("recommended", "CSI says SHOULD. It is a finding, and fails no case."),
    ("advice", "CSI does not ask for it, and callers are better off. It fails no case."),
    ("stray", "A mount came, changed or went that no call and no announcement explains."),
    ("phantom", "A step was announced, and the kernel does not show it."),
    ("after", "The step of the case at which its story broke, with its line in the source."),
    (
        "story",
        "The calls, mounts and changes of a case in their order: `-` was expected and is missing, `+` came and was not expected.",
    ),
    ("first event", "The first failure that the pod's events have, as `kubectl describe pod` would show it."),
    ("left behind", "The mounts, files, devices, processes and volumes that are there after the case."),
    ("not checked", "The checks that were not possible in this case, with the reasons."),
    ("log", "The directory of the case, with its files; journal.txt has everything in one order."),
    ("again", "The command that runs this case alone, after those cases that its failure needs."),
    ("look", "The commands that keep the case's sandbox and open a shell in it."),
    ("promise", "A numbered duty of the driver (DRV), with its basis in CSI. `volproof explain` lists all."),
    (
        "invariant",
        "A numbered duty of the volume manager or of the controllers (INV). It is not the driver's.",
    ),
    ("crash point", "A moment at which driver, node or machine are killed; --thorough tries all of them."),
    ("new", "A finding that the earlier run of --since does not have."),
    ("mended", "A finding of the earlier run of --since that its cases do not show any more."),
    ("slower", "A case that takes much longer than in the earlier run of --since."),
    ("still there", "A finding that both runs of --since have."),
    ("kernel", "Defects that the kernel reported itself, such as a warning or a stall; they fail the run."),
    ("broken", "A promise that a case has seen broken."),
    ("kept", "A promise that a case had an occasion to see broken, and did not."),
    ("not tried", "A promise that no case that ran had an occasion to see broken."),
    ("not observable", "A promise that no case that ran could have seen broken: a witness is missing."),
];

/// The words, to be listed.
pub(super) fn all() -> impl Iterator<Item = &'static str> {
    WORDS.iter().map(|(word, _)| *word)
}

/// The meaning of a word, or the needs behind a capability.
pub(super) fn explain(name: &str) -> Option<String> {
    let name = name.trim_start_matches("no ").replace(['-', '_'], " ");
    // Singular and plural are the same word.
    let is_it = |word: &str| word.trim_end_matches('s').eq_ignore_ascii_case(name.trim_end_matches('s'));
    let word = WORDS.iter().find(|(word, _)| is_it(word));
    word.map(|(word, meaning)| format!("{word}   a word in reports\n\n  {meaning}"))
        .or_else(|| capability(&name))
        .or_else(|| fact(&name))
}

/// Something about the machine, such as `nfsd`, with the needs that depend on it.
fn fact(name: &str) -> Option<String> {
    let fact = Fact::ALL.into_iter().find(|fact| fact.name().replace('-', " ").eq_ignore_ascii_case(name))?;
    let needs = Need::ALL.iter().filter(|need| need.fact() == Some(fact));
    let needs: String = needs.map(|need| format!("\n\n{}", explain_need(*need))).collect();
    let doctor = "`volproof doctor` says whether this machine has it, and how it gets it.";
    Some(format!("{fact}   looked for on the machine\n\n  {doctor}{needs}"))
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
