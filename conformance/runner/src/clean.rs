//! Removes secrets, and characters that a terminal acts on, from a worker's messages.
//!
//! Every text of a case passes here before it is written or shown outside of its sandbox.

use harness::driver::WrongAnswer;
use harness::masks::Masks;
use harness::printable::printable;
use testbed::failure::Breakage;
use testbed::message::{Abilities, Progress, Refusal};

use crate::finding::Finding;
use crate::message::{Outcome, Played, Said};

/// Cleans every text of a message that a user reads. Identifiers that programs compare stay as they are.
pub(crate) fn clean(message: &mut Said, masks: &[Masks]) {
    let cleaner = Cleaner(masks);
    match message {
        Said::Progress(Progress::Step(step)) => cleaner.text(step),
        // An expectation is written into the suite's source unchanged.
        Said::Progress(Progress::Expectation(_) | Progress::CutPower)
        | Said::Ready
        | Said::Exited(_)
        | Said::Begun(_)
        | Said::DriverEnded(None)
        | Said::Kept => {}
        Said::Abilities(abilities) => cleaner.abilities(abilities),
        Said::Refused(Refusal { chain, hint, log, driver_has_ended: _ }) => {
            cleaner.texts(chain);
            cleaner.texts(hint);
            cleaner.texts(log);
        }
        Said::Told(line) => cleaner.text(line),
        Said::Found(finding) => cleaner.finding(finding),
        Said::Played(Played { failures, left }) => {
            cleaner.texts(failures);
            cleaner.texts(left);
        }
        Said::Outcome(outcome) | Said::DriverEnded(Some(outcome)) => cleaner.outcome(outcome),
    }
}

struct Cleaner<'a>(&'a [Masks]);

impl Cleaner<'_> {
    fn text(&self, text: &mut String) {
        self.0.iter().for_each(|masks| masks.hide_in(text));
        if let std::borrow::Cow::Owned(safe) = printable(text) {
            *text = safe;
        }
    }

    fn texts<'a>(&self, texts: impl IntoIterator<Item = &'a mut String>) {
        texts.into_iter().for_each(|text| self.text(text));
    }

    fn abilities(&self, abilities: &mut Abilities) {
        // `says` holds names that cases compare; code that shows them cleans them.
        let Abilities {
            says: _,
            no_block,
            no_filesystem,
            no_shared,
            no_shared_by_nodes,
            wrong,
            odd,
            last_words,
            bounds: _,
            disks_limited: _,
            outlives_sigterm: _,
        } = abilities;
        self.texts([no_block, no_filesystem, no_shared, no_shared_by_nodes].into_iter().flatten());
        for WrongAnswer { method: _, promise: _, cause, detail, is_fatal: _ } in wrong {
            self.texts([cause, detail]);
        }
        self.texts(odd);
        self.texts(last_words);
    }

    fn finding(&self, finding: &mut Finding) {
        let Finding { contract: _, method: _, party: _, strength: _, consequence_of: _, .. } = finding;
        self.texts([&mut finding.cause, &mut finding.sentence, &mut finding.cites]);
    }

    fn outcome(&self, outcome: &mut Outcome) {
        // Dead ends are only compared with each other, never shown.
        let Outcome {
            status: _,
            seconds: _,
            breakage,
            findings,
            judged: _,
            left_behind,
            kernel,
            unchecked,
            dead_ends: _,
            samples: _,
        } = outcome;
        if let Some(Breakage { after, at: _, expected, actual, cause, event }) = breakage {
            self.text(after);
            self.texts(expected);
            self.texts(actual);
            self.texts(cause);
            self.texts(event);
        }
        findings.iter_mut().for_each(|finding| self.finding(finding));
        self.texts(left_behind);
        self.texts(kernel);
        self.texts(unchecked);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cleaned_and_names_stay() {
        let masks = Masks::default();
        ["hunter2", "failed"].iter().for_each(|secret| masks.add("key", secret));
        let chain = vec!["hunter2 \u{1b}[2J failed".to_owned()];
        let mut message =
            Said::Refused(Refusal { chain: chain.clone(), hint: None, log: chain, driver_has_ended: true });
        clean(&mut message, std::slice::from_ref(&masks));
        let Said::Refused(Refusal { chain, log, .. }) = message else { panic!("{message:?}") };
        assert_eq!(chain, [r"*** \u{1b}[2J ***"]);
        assert_eq!(chain, log);

        let outcome = Outcome {
            status: crate::event::Status::Failed,
            seconds: 1.0,
            breakage: None,
            findings: vec![crate::judge::promise_broken("DRV-094", "NodeStageVolume", "it says hunter2")],
            judged: crate::promises::Judged::default(),
            left_behind: vec!["volume hunter2".to_owned()],
            kernel: vec![],
            unchecked: vec![],
            dead_ends: std::collections::BTreeSet::new(),
            samples: vec![],
        };
        let mut message = Said::Outcome(Box::new(outcome));
        clean(&mut message, &[masks]);
        let text = serde_json::to_string(&message).unwrap();
        assert!(text.contains(r#""status":"failed""#) && text.contains("it says ***"), "{text}");
        assert!(!text.contains("hunter2"), "{text}");
    }

    #[test]
    fn answers_to_the_first_questions_are_cleaned() {
        let masks = Masks::default();
        masks.add("key", "hunter2");
        let text = || "it says hunter2 \u{1b}[2J".to_owned();
        let wrong = WrongAnswer {
            method: "CreateVolume".to_owned(),
            promise: None,
            cause: text(),
            detail: text(),
            is_fatal: false,
        };
        let abilities = Abilities {
            no_block: Some(text()),
            no_filesystem: Some(text()),
            no_shared: Some(text()),
            no_shared_by_nodes: Some(text()),
            wrong: vec![wrong],
            odd: vec![text()],
            last_words: vec![text()],
            ..Abilities::default()
        };
        let mut message = Said::Abilities(Box::new(abilities));
        clean(&mut message, &[masks]);
        let json = serde_json::to_string(&message).unwrap();
        assert_eq!(json.matches("it says ***").count(), 8, "{json}");
        assert!(!json.contains("hunter2") && !json.contains("\\u001b"), "{json}");
    }
}
