//! The catalogue of a driver's promises: every `DRV-…`, with its basis in CSI or our reason.
//!
//! A promise is a sentence that callers rely on. Its [`Strength`] is how far CSI 1.12 obliges the plugin: a promise without
//! a basis in CSI is advice, with our reason. [`crate::driver::RULES`] judge promises in a trace, cases judge others, and
//! each has a sabotage of fake-csi that breaks it.
//!
//! Numbers go by subject: 00x identity, 01x create, 02x delete and list, 03x attach and snapshots, 04x stage, 05x
//! publish, 06x unpublish, 07x unstage, 08x size and statistics, 09x behaviour as a whole, 10x repeated calls, 11x names
//! and lists, 12x what a workload sees, 13x the resources of a running driver, 14x and 15x copies and sizes, 16x what is
//! in a volume, 17x what stands in answers, 18x requests that do not fit what there is.

use std::fmt;

use serde::{Deserialize, Serialize};

mod answers;
mod behaviour;
mod copies;
mod data;
mod identity;
mod mounts;
mod names;
mod process;
mod publish;
mod repeat;
mod requests;
mod size;
mod snapshots;
mod stage;
mod volumes;

/// A sentence that callers of a driver rely on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Promise {
    /// `DRV-…`.
    pub id: &'static str,
    /// The promise in one sentence.
    pub sentence: &'static str,
    pub strength: Strength,
    pub harm: Harm,
    pub basis: Basis,
    /// Issues of drivers that broke it and of callers that suffered, and suites that test it.
    pub seen_in: &'static [&'static str],
}

/// The strength of a promise. Only a broken `Must` fails a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Strength {
    /// CSI obliges the plugin: MUST, SHALL, REQUIRED, or the code of an error table.
    Must,
    /// CSI recommends it to the plugin.
    Should,
    /// CSI does not ask it of the plugin.
    Advice,
}

/// The harm that a broken promise does; the worst is the least.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Harm {
    /// A user's data are lost.
    Loss,
    /// A user's data are shown as another volume's, missing in a copy, or written where nothing may be written.
    Data,
    /// The plugin ends, or gives a secret away.
    Plugin,
    /// A pod never starts or never ends.
    Pod,
    /// None of them.
    Other,
}

/// The reason for a promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Basis {
    /// CSI 1.12 states the promise.
    Csi {
        /// The RPC or message, and the part of it.
        section: &'static str,
        /// The quotation; ` ... ` marks an omission.
        words: &'static str,
    },
    /// Our own reason, with the nearest sentence of CSI.
    Ours(&'static str),
}

/// The promises of one subject, by number.
type Chapter = &'static [Promise];

const CHAPTERS: &[Chapter] = &[
    identity::PROMISES,
    volumes::PROMISES,
    snapshots::PROMISES,
    stage::PROMISES,
    publish::PROMISES,
    size::PROMISES,
    behaviour::PROMISES,
    repeat::PROMISES,
    names::PROMISES,
    mounts::PROMISES,
    process::PROMISES,
    copies::PROMISES,
    data::PROMISES,
    answers::PROMISES,
    requests::PROMISES,
];

/// All promises, by number.
pub fn all() -> impl Iterator<Item = &'static Promise> {
    CHAPTERS.iter().flat_map(|chapter| chapter.iter())
}

/// The promise of an id such as `DRV-060`.
pub fn find(id: &str) -> Option<&'static Promise> {
    all().find(|promise| promise.id == id)
}

const fn must(id: &'static str, sentence: &'static str, basis: Basis, seen_in: SeenIn) -> Promise {
    Promise { id, sentence, strength: Strength::Must, harm: Harm::Other, basis, seen_in }
}

const fn should(id: &'static str, sentence: &'static str, basis: Basis, seen_in: SeenIn) -> Promise {
    Promise { id, sentence, strength: Strength::Should, harm: Harm::Other, basis, seen_in }
}

const fn advice(id: &'static str, sentence: &'static str, reason: &'static str, seen_in: SeenIn) -> Promise {
    let basis = Basis::Ours(reason);
    Promise { id, sentence, strength: Strength::Advice, harm: Harm::Other, basis, seen_in }
}

impl Harm {
    /// Why findings about it stand before others of their strength.
    pub fn reason(self) -> Option<&'static str> {
        match self {
            Self::Loss | Self::Data => {
                Some("it can cost a user data, and so stands first among the findings of its strength")
            }
            Self::Plugin => {
                Some("it can end the plugin or give a secret away, and stands before others of its strength")
            }
            Self::Pod => {
                Some("it can keep a pod from starting or ending, and stands before others of its strength")
            }
            Self::Other => None,
        }
    }
}

impl Promise {
    const fn costs(self, harm: Harm) -> Self {
        Self { harm, ..self }
    }
}

const fn csi(section: &'static str, words: &'static str) -> Basis {
    Basis::Csi { section, words }
}

type SeenIn = &'static [&'static str];

/// The word of the specification, or `advice`.
impl fmt::Display for Strength {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Strength::Must => "MUST",
            Strength::Should => "SHOULD",
            Strength::Advice => "advice",
        })
    }
}

/// The quotation with its section, or the reason.
impl fmt::Display for Basis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Basis::Csi { section, words } => write!(f, "CSI 1.12, {section}: \"{words}\""),
            Basis::Ours(reason) => f.write_str(reason),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_ascend_without_repetition() {
        let ids: Vec<_> = all().map(|promise| promise.id).collect();
        assert!(ids.windows(2).all(|pair| pair[0] < pair[1]), "{ids:?}");
        assert!(ids.iter().all(|id| id.len() == 7 && id.starts_with("DRV-")));
    }

    #[test]
    fn sentences_are_fragments() {
        for promise in all() {
            assert!(!promise.sentence.ends_with('.'), "{}: a sentence is a fragment in reports", promise.id);
            assert!(promise.sentence.starts_with(|first: char| !first.is_uppercase()), "{}", promise.id);
        }
    }

    /// A row of an error table names the code that "the plugin MUST return".
    fn is_row_of_an_error_table(words: &str) -> bool {
        let Some((_, code)) = words.rsplit_once(" | ") else { return false };
        code.starts_with(|first: char| first.is_ascii_digit())
    }

    #[test]
    fn strength_matches_the_quoted_word() {
        for promise in all() {
            let says = |words: &str, any: &[&str]| any.iter().any(|word| words.contains(word));
            let fits = match (promise.strength, promise.basis) {
                (Strength::Must, Basis::Csi { words, .. }) => {
                    says(words, &["MUST", "SHALL", "REQUIRED"]) || is_row_of_an_error_table(words)
                }
                (Strength::Should, Basis::Csi { words, .. }) => says(words, &["SHOULD"]),
                (Strength::Advice, Basis::Ours(reason)) => !reason.is_empty(),
                _ => false,
            };
            assert!(fits, "{}: {} by {}", promise.id, promise.strength, promise.basis);
        }
    }

    #[test]
    fn lost_data_is_worse_than_a_plugin_that_ends() {
        let harm = |id| find(id).map(|promise| promise.harm);
        assert_eq!(harm("DRV-042"), Some(Harm::Loss));
        assert_eq!(harm("DRV-050"), Some(Harm::Data));
        assert_eq!(harm("DRV-097"), Some(Harm::Plugin));
        assert_eq!(harm("DRV-101"), Some(Harm::Pod));
        assert_eq!(harm("DRV-017"), Some(Harm::Other));
        let ranks = [Harm::Loss, Harm::Data, Harm::Plugin, Harm::Pod, Harm::Other];
        assert!(ranks.is_sorted_by(|worse, better| worse < better));
    }

    /// A plugin cannot break a duty of its caller.
    #[test]
    fn duties_of_the_caller_are_advice_to_the_plugin() {
        for id in ["DRV-048", "DRV-054", "DRV-075"] {
            assert_eq!(find(id).map(|promise| promise.strength), Some(Strength::Advice), "{id}");
        }
    }

    #[test]
    fn every_rule_of_the_driver_is_a_promise() {
        for rule in crate::driver::RULES {
            assert!(find(rule.id).is_some(), "{} is judged, but not in the catalogue", rule.id);
        }
    }
}
