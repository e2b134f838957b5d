//! Finds trouble of the kernel in its log.

use std::fmt;

/// Texts that a sound kernel does not log, their meaning, and whether the guest can go on after them.
const MARKS: &[(&str, &str, bool)] = &[
    ("Kernel panic", "panic", true),
    ("BUG: soft lockup", "soft lockup", true),
    ("BUG: ", "bug", true),
    ("Oops", "oops", true),
    ("general protection fault", "oops", true),
    ("possible circular locking dependency", "lockdep", true),
    ("possible recursive locking", "lockdep", true),
    ("inconsistent lock state", "lockdep", true),
    // An emulated guest stands still while its machine does other work, and goes on.
    ("self-detected stall", "RCU stall", false),
    ("detected stalls on CPUs", "RCU stall", false),
    ("blocked for more than", "hung task", true),
    ("Out of memory: Killed process", "out of memory", false),
    ("WARNING: CPU", "warning", false),
];

/// A line that names trouble.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelTrouble {
    /// Its kind, in one or two words.
    pub kind: &'static str,
    pub line: String,
}

impl fmt::Display for KernelTrouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind, self.line.trim())
    }
}

/// The first line of a log that names trouble a guest does not recover from.
pub fn trouble_in(log: &str) -> Option<KernelTrouble> {
    named(log, true).next()
}

/// The lines of a log that name trouble a guest lives on with.
pub fn complaints_in(log: &str) -> Vec<KernelTrouble> {
    named(log, false).collect()
}

fn named(log: &str, ends: bool) -> impl Iterator<Item = KernelTrouble> {
    log.lines().filter_map(move |line| {
        let (_, kind, is_end) = MARKS.iter().find(|(mark, ..)| line.contains(mark))?;
        (*is_end == ends).then(|| KernelTrouble { kind, line: line.to_owned() })
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

    #[test]
    fn fatal_kernel_messages_are_distinguished_from_harmless_ones() {
        for (line, kind) in [
            ("[9.1] INFO: task mount:77 blocked for more than 30 seconds.", "hung task"),
            ("[9.1] WARNING: possible circular locking dependency detected", "lockdep"),
            ("[9.1] BUG: kernel NULL pointer dereference, address: 0", "bug"),
            ("[9.1] watchdog: BUG: soft lockup - CPU#0 stuck for 22s!", "soft lockup"),
        ] {
            assert_eq!(trouble_in(line).map(|trouble| trouble.kind), Some(kind), "{line}");
        }
        for (line, kind) in [
            ("[9.1] Out of memory: Killed process 88 (driver)", "out of memory"),
            ("[9.1] rcu: INFO: rcu_sched self-detected stall on CPU", "RCU stall"),
        ] {
            assert_eq!(trouble_in(line), None, "{line}");
            assert_eq!(complaints_in(line)[0].kind, kind, "{line}");
        }
    }
}
