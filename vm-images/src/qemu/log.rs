//! What a kernel log says when the kernel is in trouble.

use std::fmt;

/// Words that a sound kernel does not say, and what they mean.
const MARKS: &[(&str, &str)] = &[
    ("Kernel panic", "panic"),
    ("BUG: soft lockup", "soft lockup"),
    ("BUG: ", "bug"),
    ("Oops", "oops"),
    ("general protection fault", "oops"),
    ("possible circular locking dependency", "lockdep"),
    ("possible recursive locking", "lockdep"),
    ("self-detected stall", "RCU stall"),
    ("detected stalls on CPUs", "RCU stall"),
    ("blocked for more than", "hung task"),
    ("Out of memory: Killed process", "out of memory"),
    ("WARNING: CPU", "warning"),
];

/// A line that names trouble.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelTrouble {
    /// Its kind, in one or two words.
    pub kind: &'static str,
    /// The line.
    pub line: String,
}

impl fmt::Display for KernelTrouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind, self.line.trim())
    }
}

/// The first line of a log that names trouble.
pub fn trouble_in(log: &str) -> Option<KernelTrouble> {
    log.lines().find_map(|line| {
        let (_, kind) = MARKS.iter().find(|(mark, _)| line.contains(mark))?;
        Some(KernelTrouble { kind, line: line.to_owned() })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_named_and_ordinary_talk_is_not() {
        let log = "[ 1.0] loop: module loaded\n[ 2.0] Kernel panic - not syncing: sysrq\n[ 2.1] BUG: after\n";
        assert_eq!(trouble_in(log).unwrap().kind, "panic");
        assert_eq!(trouble_in("[ 1.0] EXT4-fs (loop0): mounted filesystem\n"), None);
    }
}
