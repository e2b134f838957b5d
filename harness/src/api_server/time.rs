//! Wall time as the API writes it. Reads the system's clock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Now, in RFC 3339 and UTC.
pub(crate) fn now() -> String {
    after(Duration::ZERO)
}

/// The moment that comes so much later.
pub(super) fn after(wait: Duration) -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default() + wait;
    format(since.as_secs())
}

/// A moment before or after 1970; before it there is none that an object could have.
pub(super) fn of(seconds: i64) -> String {
    format(seconds.try_into().unwrap_or_default())
}

/// A time with microseconds, as in leases and events.
pub(super) fn of_micros(seconds: i64, micros: i64) -> String {
    let second = of(seconds);
    format!("{}.{:06}Z", second.trim_end_matches('Z'), micros.clamp(0, 999_999))
}

fn format(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// The date a number of days after 1970-01-01. Years are counted from March, so that a leap day is the last.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let (month, next_year) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year_of_era + next_year, month, day)
}

#[cfg(test)]
mod tests {
    use super::format;

    #[test]
    fn moments_are_written_as_dates() {
        assert_eq!(format(0), "1970-01-01T00:00:00Z");
        assert_eq!(format(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(super::of_micros(0, 1_200), "1970-01-01T00:00:00.001200Z");
        assert_eq!(format(1_795_219_199), "2026-11-20T23:59:59Z");
    }
}
