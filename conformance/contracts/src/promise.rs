//! The catalogue of what a driver promises: every `DRV-…`, with where the promise comes from.
//!
//! A promise is a sentence somebody may rely on. Its source is the CSI specification where that says it, and else the
//! issue of somebody who was hurt when it was broken, or our own reasoning, marked `ours`. The catalogue is complete
//! whether or not a promise is judged anywhere: [`crate::driver::RULES`] holds those that show in a trace, cases prove
//! others, and for each there is a sabotage of fake-csi that breaks it.
//!
//! Numbers go by subject: 00x identity, 01x create, 02x delete and list, 03x attach and snapshots, 04x stage, 05x
//! publish, 06x unpublish, 07x unstage, 08x size and statistics, 09x behaviour as a whole.

mod behaviour;
mod identity;
mod publish;
mod size;
mod snapshots;
mod stage;
mod volumes;

/// Something a driver promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Promise {
    /// `DRV-…`.
    pub id: &'static str,
    /// The promise in one sentence.
    pub sentence: &'static str,
    /// Where it comes from.
    pub sources: &'static [&'static str],
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
];

/// All promises, by number.
pub fn all() -> impl Iterator<Item = &'static Promise> {
    CHAPTERS.iter().flat_map(|chapter| chapter.iter())
}

/// The promise of an id such as `DRV-060`.
pub fn find(id: &str) -> Option<&'static Promise> {
    all().find(|promise| promise.id == id)
}

const fn promise(id: &'static str, sentence: &'static str, sources: &'static [&'static str]) -> Promise {
    Promise { id, sentence, sources }
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
    fn every_promise_says_what_and_whence() {
        for promise in all() {
            assert!(!promise.sources.is_empty(), "{} has no source", promise.id);
            assert!(!promise.sentence.ends_with('.'), "{}: a sentence is a fragment in reports", promise.id);
            assert!(promise.sentence.starts_with(|first: char| !first.is_uppercase()), "{}", promise.id);
        }
    }

    #[test]
    fn every_rule_of_the_driver_is_a_promise() {
        for rule in crate::driver::RULES {
            assert!(find(rule.id).is_some(), "{} is judged, and promised nowhere", rule.id);
        }
    }
}
