//! Who began a run, and when: shown to a user before he undoes it or looks into it.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// The longest command line that is shown.
const LENGTH: usize = 120;

/// The process that began a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Author {
    pub user: u32,
    pub pid: u32,
    pub command: String,
    /// When it began the run, in seconds since 1970.
    pub began: u64,
}

impl Author {
    /// The process that asks.
    pub(super) fn mine() -> Author {
        let words: Vec<String> =
            std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
        let mut command = words.join(" ");
        if let Some((end, _)) = command.char_indices().nth(LENGTH) {
            command.truncate(end);
            command.push('…');
        }
        Author { user: nix::unistd::geteuid().as_raw(), pid: std::process::id(), command, began: now() }
    }

    /// The time since the run began, as `4 min`.
    pub fn age(&self) -> String {
        age(Duration::from_secs(now().saturating_sub(self.began)))
    }
}

impl fmt::Display for Author {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = nix::unistd::User::from_uid(self.user.into()).ok().flatten();
        let user = known.map_or_else(|| format!("user {}", self.user), |user| user.name);
        write!(f, "of {user}, pid {}, begun {} ago: {}", self.pid, self.age(), self.command)
    }
}

/// A time that has passed, in its largest unit.
pub fn age(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7_200 => format!("{} min", seconds / 60),
        seconds @ 7_200..172_800 => format!("{} h", seconds / 3_600),
        seconds => format!("{} days", seconds / 86_400),
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn age_has_one_unit() {
        let ages = [5, 119, 120, 7_199, 7_200, 172_800].map(|seconds| age(Duration::from_secs(seconds)));
        assert_eq!(ages, ["5 s", "119 s", "2 min", "119 min", "2 h", "2 days"]);
    }
}
