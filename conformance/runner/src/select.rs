//! Selects cases by filters, subject and shard.
//!
//! A filter is a substring of an id or, with `*` or `?` in it, a glob over the whole id. A filter that
//! matches no case is an error with the nearest ids: a typing mistake must not shrink a run unnoticed.

use std::fmt;
use std::str::FromStr;

use testbed::case::{About, Case, CaseId};
use testbed::need::{Missing, Provider};

use crate::event::Status;

/// The selection of a command line.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    /// Cases that match one of these; empty for all cases.
    pub filters: Vec<String>,
    /// Cases that match one of these are left out.
    pub exclude: Vec<String>,
    /// Only cases with this subject; `None` for all.
    pub about: Option<About>,
    pub shard: Option<Shard>,
}

/// One of `of` equal parts, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    pub part: usize,
    /// The number of parts.
    pub of: usize,
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = text.split_once('/').and_then(|(part, of)| Some((part.parse().ok()?, of.parse().ok()?)));
        match parsed {
            Some((part, of)) if (1..=of).contains(&part) => Ok(Self { part, of }),
            _ => Err("expected I/N with 1 ≤ I ≤ N, such as 2/4".to_owned()),
        }
    }
}

/// Filters that match no case.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct NoMatch {
    /// Each filter with the nearest ids.
    pub filters: Vec<(String, Vec<CaseId>)>,
}

impl fmt::Display for NoMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, (filter, nearest)) in self.filters.iter().enumerate() {
            if position > 0 {
                writeln!(f)?;
            }
            write!(f, "no case matches `{filter}`")?;
            for (position, id) in nearest.iter().enumerate() {
                let lead = if position == 0 { "nearest:" } else { "        " };
                write!(f, "\n  {lead} {id}")?;
            }
        }
        Ok(())
    }
}

impl Selection {
    /// The selected cases of `all`, in the order of the filters; those of one filter are in the order of `all`.
    ///
    /// The shard is cut after filtering, by position, so that the shards of one command line are disjoint
    /// and together complete.
    pub fn choose(&self, all: &[&'static Case]) -> Result<Vec<&'static Case>, NoMatch> {
        let ids: Vec<CaseId> = all.iter().map(|case| case.id()).collect();
        let lost: Vec<_> = (self.filters.iter())
            .filter(|filter| !ids.iter().any(|id| matches(filter, id)))
            .map(|filter| (filter.clone(), nearest(filter, &ids)))
            .collect();
        if !lost.is_empty() {
            return Err(NoMatch { filters: lost });
        }
        let place = |id: &CaseId| match self.filters.is_empty() {
            true => Some(0),
            false => self.filters.iter().position(|filter| matches(filter, id)),
        };
        let unwanted = |id: &CaseId| self.exclude.iter().any(|filter| matches(filter, id));
        let is_about = |case: &Case| self.about.is_none_or(|about| case.about() == about);
        let meant = all.iter().zip(&ids).filter(|(case, id)| !unwanted(id) && is_about(case));
        let mut meant: Vec<_> = meant.filter_map(|(case, id)| Some((place(id)?, *case))).collect();
        meant.sort_by_key(|(place, _)| *place);
        let meant = meant.into_iter().map(|(_, case)| case);
        Ok(match self.shard {
            None => meant.collect(),
            Some(shard) => meant.skip(shard.part - 1).step_by(shard.of).collect(),
        })
    }
}

/// Whether a filter matches a case.
pub fn matches(filter: &str, id: &CaseId) -> bool {
    if filter.contains(['*', '?']) {
        glob(filter.as_bytes(), id.as_str().as_bytes())
    } else {
        id.as_str().contains(filter)
    }
}

/// Matches a glob: `*` is any sequence of characters, `?` any character.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    match (pattern.first(), text.first()) {
        (None, None) => true,
        (Some(b'*'), _) => glob(&pattern[1..], text) || (!text.is_empty() && glob(pattern, &text[1..])),
        (Some(b'?'), Some(_)) => glob(&pattern[1..], &text[1..]),
        (Some(expected), Some(found)) if expected == found => glob(&pattern[1..], &text[1..]),
        _ => false,
    }
}

/// The ids most similar to a mistyped one, best first; its similarity to whole ids and to their last parts counts.
pub fn nearest(typed: &str, ids: &[CaseId]) -> Vec<CaseId> {
    let likeness = |id: &CaseId| {
        let last = id.as_str().rsplit("::").next().unwrap_or_default();
        strsim::jaro_winkler(typed, id.as_str()).max(strsim::jaro_winkler(typed, last))
    };
    let mut ranked: Vec<(f64, &CaseId)> = ids.iter().map(|id| (likeness(id), id)).collect();
    ranked.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    ranked.into_iter().filter(|(likeness, _)| *likeness > 0.65).take(3).map(|(_, id)| id.clone()).collect()
}

/// The status and the reasons of a case that cannot run; none if it can.
///
/// The driver's reasons come first: a case that the driver cannot run is skipped on any machine. The machine's reasons
/// are listed as well, so that the list is complete.
pub fn skip(missing: &[Missing]) -> Option<(Status, Vec<String>)> {
    if missing.is_empty() {
        return None;
    }
    let drivers = missing.iter().any(|missing| missing.need.provider() == Provider::Driver);
    let status = if drivers { Status::SkippedDriver } else { Status::SkippedHost };
    let reason = |missing: &Missing| match (missing.need.provider(), drivers) {
        (Provider::Host, true) => format!("host: {}", missing.reason),
        _ => missing.reason.clone(),
    };
    let mut ordered: Vec<&Missing> = missing.iter().collect();
    ordered.sort_by_key(|missing| missing.need.provider());
    let mut reasons: Vec<String> = Vec::new();
    for reason in ordered.into_iter().map(reason) {
        // A driver without CreateVolume lacks several needs for the same reason.
        if !reasons.contains(&reason) {
            reasons.push(reason);
        }
    }
    Some((status, reasons))
}

/// A case for tests, which is never run.
#[cfg(test)]
pub(crate) const fn sample(name: &'static str) -> Case {
    Case {
        module: "cases::sample",
        name,
        variant: None,
        proves: "",
        file: "",
        line: 1,
        needs: &[],
        variant_needs: &[],
        judges: &[],
        shares_driver: false,
        serial: None,
        waits: None,
        xfail: None,
        run: |_| unreachable!("a sample is never run"),
    }
}

#[cfg(test)]
mod tests {
    use testbed::need::{Ground, Need};

    use super::*;

    fn id(text: &str) -> CaseId {
        CaseId::new(text)
    }

    #[test]
    fn a_filter_is_a_substring_or_a_glob_over_the_whole_id() {
        for (filter, case, expected) in [
            ("block", "csi::block::a", true),
            ("csi::block::a", "csi::block::a", true),
            ("blok", "csi::block::a", false),
            ("csi::*", "csi::block::a", true),
            ("block*", "csi::block::a", false),
            ("*::?", "csi::block::a", true),
            ("*[block]", "csi::expand::grows[block]", true),
        ] {
            assert_eq!(matches(filter, &id(case)), expected, "{filter} {case}");
        }
    }

    #[test]
    fn a_mistyped_name_finds_its_neighbour() {
        let ids = [
            id("csi::block::teardown_is_the_reverse_of_setup"),
            id("csi::publish::read_only_claim_cannot_be_written"),
        ];
        assert_eq!(nearest("raed_only", &ids), [ids[1].clone()]);
        assert_eq!(nearest("csi::blok::is_unmapped", &ids)[0], ids[0]);
        assert_eq!(nearest("zzz", &ids), []);
    }

    #[test]
    fn shards_are_counted_from_one() {
        assert_eq!("2/4".parse(), Ok(Shard { part: 2, of: 4 }));
        for wrong in ["0/4", "5/4", "4", "a/b", "1/0", ""] {
            assert!(wrong.parse::<Shard>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn shards_are_disjoint_and_complete() {
        let all = ["a", "b", "c", "d", "e", "f", "g", "h"].map(|name| &*Box::leak(Box::new(sample(name))));
        let mut seen: Vec<CaseId> = Vec::new();
        for part in 1..=3 {
            let selection = Selection { shard: Some(Shard { part, of: 3 }), ..Selection::default() };
            seen.extend(selection.choose(&all).expect("no filter").iter().map(|case| case.id()));
        }
        seen.sort();
        assert_eq!(seen, all.iter().map(|case| case.id()).collect::<Vec<_>>());
    }

    #[test]
    fn cases_come_in_the_order_of_the_filters() {
        let all = ["one", "two", "three"].map(|name| &*Box::leak(Box::new(sample(name))));
        let filters = ["three", "o"].map(str::to_owned).to_vec();
        let chosen = Selection { filters, ..Selection::default() }.choose(&all).expect("each matches");
        assert_eq!(chosen.iter().map(|case| case.name).collect::<Vec<_>>(), ["three", "one", "two"]);
    }

    #[test]
    fn every_reason_is_listed_and_the_driver_comes_first() {
        let mut ground = Ground::default();
        ground.lacks(Need::Loop, "`/dev/loop-control` is not there");
        ground.lacks(Need::Block, "does not create block volumes");
        assert_eq!(skip(&ground.missing(&[Need::StageUnstage])), None);
        assert_eq!(
            skip(&ground.missing(&[Need::Loop])),
            Some((Status::SkippedHost, vec!["`/dev/loop-control` is not there".to_owned()]))
        );
        assert_eq!(
            skip(&ground.missing(&[Need::Loop, Need::Block])),
            Some((
                Status::SkippedDriver,
                vec![
                    "does not create block volumes".to_owned(),
                    "host: `/dev/loop-control` is not there".to_owned()
                ]
            ))
        );
        ground.lacks(Need::Filesystem, "does not create block volumes");
        assert_eq!(
            skip(&ground.missing(&[Need::Block, Need::Filesystem])),
            Some((Status::SkippedDriver, vec!["does not create block volumes".to_owned()])),
            "one reason for two needs is reported once"
        );
    }
}
