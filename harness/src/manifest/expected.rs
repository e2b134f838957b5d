//! Failures of a driver that are known: why each is, and until when.

use std::fmt;
use std::time::SystemTime;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Day(Date);

impl ExpectedFailure {
    /// Whether the failure is still excused on a day.
    pub fn holds_on(&self, day: &Day) -> bool {
        self.until.as_ref().is_none_or(|last| day <= last)
    }
}

impl Day {
    /// The day at a time, by UTC.
    pub fn of(time: SystemTime) -> Self {
        let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let time =
            i64::try_from(since.as_secs()).ok().and_then(|seconds| Timestamp::from_second(seconds).ok());
        Self(time.unwrap_or(Timestamp::MAX).to_zoned(TimeZone::UTC).date())
    }
}

impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl TryFrom<String> for Day {
    type Error = String;

    /// Only the one way to write a day: a date parser takes times and other separators too.
    fn try_from(text: String) -> Result<Self, String> {
        match text.parse::<Date>() {
            Ok(date) if date.to_string() == text => Ok(Self(date)),
            _ => Err(format!("`{text}` is no day; write it like `2027-03-31`")),
        }
    }
}

impl From<Day> for String {
    fn from(day: Day) -> Self {
        day.to_string()
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
    use std::time::Duration;

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
