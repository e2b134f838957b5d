//! Failures of a driver that are known: why each is, and until when.

use std::fmt;
use std::time::{Duration, SystemTime};

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// Why a case fails. After the last day its failure is one like any other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ExpectedFailure {
    /// Such as the issue that will mend it.
    pub reason: String,
    /// The last day on which it may fail, by UTC: `2027-03-31`. Without it there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Day>,
}

/// A day, written `2027-03-31`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct Day(String);

impl ExpectedFailure {
    /// Whether the failure is still excused on a day.
    pub fn holds_on(&self, day: &Day) -> bool {
        self.until.as_ref().is_none_or(|last| day <= last)
    }
}

impl Day {
    /// The day at a time, by UTC.
    pub fn of(time: SystemTime) -> Self {
        let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let mut days = since.as_secs() / 86_400;
        let mut year = 1970;
        while days >= days_in_year(year) {
            days -= days_in_year(year);
            year += 1;
        }
        let mut month = 1;
        while days >= days_in_month(year, month) {
            days -= days_in_month(year, month);
            month += 1;
        }
        Self(format!("{year:04}-{month:02}-{:02}", days + 1))
    }
}

impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for Day {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let is_day = || {
            let [year, month, day] = text.split('-').collect::<Vec<_>>().try_into().ok()?;
            let lengths = [year, month, day].map(str::len) == [4, 2, 2];
            let (year, month, day): (u64, u64, u64) =
                (year.parse().ok()?, month.parse().ok()?, day.parse().ok()?);
            let exists = (1..=12).contains(&month) && (1..=days_in_month(year, month)).contains(&day);
            (lengths && exists).then_some(())
        };
        match is_day() {
            Some(()) => Ok(Self(text)),
            None => Err(format!("`{text}` is no day; write it like `2027-03-31`")),
        }
    }
}

fn days_in_year(year: u64) -> u64 {
    if days_in_month(year, 2) == 29 { 366 } else { 365 }
}

fn days_in_month(year: u64, month: u64) -> u64 {
    match month {
        2 if year.is_multiple_of(400) || (year.is_multiple_of(4) && !year.is_multiple_of(100)) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// `"the reason"`, or a table with `reason` and `until`.
impl<'de> Deserialize<'de> for ExpectedFailure {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Table {
            reason: String,
            until: Option<Day>,
        }

        struct ReasonOrTable;

        impl<'de> Visitor<'de> for ReasonOrTable {
            type Value = ExpectedFailure;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a reason such as \"issue 41\", or a table with `reason` and `until`")
            }

            fn visit_str<E: Error>(self, reason: &str) -> Result<Self::Value, E> {
                Ok(ExpectedFailure { reason: reason.to_owned(), until: None })
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                let Table { reason, until } = Table::deserialize(MapAccessDeserializer::new(map))?;
                Ok(ExpectedFailure { reason, until })
            }
        }

        deserializer.deserialize_any(ReasonOrTable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn day(text: &str) -> Day {
        Day::try_from(text.to_owned()).unwrap()
    }

    #[test]
    fn seconds_become_days_in_leap_years_and_others() {
        for (seconds, expected) in [
            (0, "1970-01-01"),
            (951_782_400, "2000-02-29"),
            (1_709_251_199, "2024-02-29"),
            (1_709_251_200, "2024-03-01"),
            (4_107_542_399, "2100-02-28"),
            (4_107_542_400, "2100-03-01"),
            (1_798_761_599, "2026-12-31"),
        ] {
            assert_eq!(Day::of(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)), day(expected));
        }
    }

    #[test]
    fn text_that_is_no_day_is_refused() {
        for text in ["", "2027-3-1", "2027-02-29", "2027-13-01", "2027-00-10", "31.03.2027", "2027-03-31x"] {
            assert!(Day::try_from(text.to_owned()).is_err(), "{text}");
        }
        assert!(Day::try_from("2028-02-29".to_owned()).is_ok());
    }

    #[test]
    fn failure_is_excused_up_to_its_last_day() {
        let known = |until: Option<&str>| ExpectedFailure { reason: "x".to_owned(), until: until.map(day) };
        let today = day("2027-03-31");
        assert!(known(None).holds_on(&today));
        assert!(known(Some("2027-03-31")).holds_on(&today));
        assert!(!known(Some("2027-03-30")).holds_on(&today));
    }
}
