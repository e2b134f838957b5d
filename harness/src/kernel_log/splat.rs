//! Finds defects of the kernel among its messages, with the devices that they name.

use std::collections::BTreeSet;
use std::fmt;

use super::Message;

/// A defect of the kernel that it reported itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Splat {
    pub kind: SplatKind,
    pub text: String,
    /// Block devices that the defect or its trace names: `loop3`, `dm-0`.
    pub devices: BTreeSet<String>,
}

impl fmt::Display for Splat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind.name(), self.text)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SplatKind {
    /// A crash of the kernel or of one of its threads.
    Bug,
    /// `WARN_ON`.
    Warning,
    /// A lock order that can deadlock.
    Lockdep,
    /// A task that waits for too long.
    HungTask,
    /// A processor that does not make progress.
    Stall,
    /// An invalid use of memory.
    Memory,
}

impl SplatKind {
    fn name(self) -> &'static str {
        match self {
            SplatKind::Bug => "kernel bug",
            SplatKind::Warning => "kernel warning",
            SplatKind::Lockdep => "kernel lock order",
            SplatKind::HungTask => "hung task",
            SplatKind::Stall => "kernel stall",
            SplatKind::Memory => "kernel memory error",
        }
    }
}

/// The beginning of each kind's first line. The first match counts.
const MARKS: [(&str, SplatKind); 17] = [
    ("BUG: KASAN", SplatKind::Memory),
    ("BUG: KFENCE", SplatKind::Memory),
    ("UBSAN:", SplatKind::Memory),
    ("BUG: soft lockup", SplatKind::Stall),
    ("watchdog: BUG: soft lockup", SplatKind::Stall),
    ("rcu: INFO: rcu_", SplatKind::Stall),
    ("INFO: rcu_", SplatKind::Stall),
    ("WARNING: possible circular locking", SplatKind::Lockdep),
    ("WARNING: possible recursive locking", SplatKind::Lockdep),
    ("WARNING: inconsistent lock state", SplatKind::Lockdep),
    ("WARNING: suspicious RCU usage", SplatKind::Lockdep),
    ("INFO: task ", SplatKind::HungTask),
    ("BUG: ", SplatKind::Bug),
    ("kernel BUG at ", SplatKind::Bug),
    ("Oops", SplatKind::Bug),
    ("general protection fault", SplatKind::Bug),
    ("WARNING: ", SplatKind::Warning),
];

/// The defects among these messages. The lines of a defect's trace, up to its end mark, only add devices to it.
pub fn splats(messages: &[Message]) -> Vec<Splat> {
    let mut found: Vec<Splat> = Vec::new();
    let mut inside = false;
    for message in messages {
        let ended = message.text.contains("---[ end trace");
        if inside {
            if let Some(splat) = found.last_mut() {
                splat.devices.extend(devices_named(&message.text));
            }
            inside = !ended;
        } else if let Some(kind) = kind_of(&message.text) {
            let devices = devices_named(&message.text);
            found.push(Splat { kind, text: message.text.clone(), devices });
            // Only these kinds print a trace with an end mark.
            inside = matches!(kind, SplatKind::Warning | SplatKind::Bug);
        }
    }
    found
}

fn kind_of(text: &str) -> Option<SplatKind> {
    // `------------[ cut here ]------------` or the processor's number may stand before it.
    let text = text.trim_start_matches(['-', '[', ' ']);
    MARKS.iter().find(|(mark, _)| text.starts_with(mark)).map(|(_, kind)| *kind)
}

/// Block devices that a message names: loop devices and device-mapper devices, the ones that tests make.
pub fn devices_named(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
    let is_device = |word: &&str| {
        ["loop", "dm-"].iter().any(|prefix| {
            let number = word.strip_prefix(prefix);
            number.is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
        })
    };
    words.map(|word| word.trim_matches('-')).filter(is_device).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(texts: &[&str]) -> Vec<Message> {
        let message = |text: &&str| Message { sequence: 0, micros: 0, level: 4, text: (*text).to_owned() };
        texts.iter().map(message).collect()
    }

    #[test]
    fn errors_of_a_device_are_no_defects() {
        let log = messages(&[
            "I/O error, dev loop3, sector 8 op 0x1:(WRITE)",
            "EXT4-fs error (device loop3): ext4_journal_check_start:83: Detected aborted journal",
        ]);
        assert_eq!(splats(&log), []);
        assert_eq!(devices_named(&log[0].text), BTreeSet::from(["loop3".to_owned()]));
        assert_eq!(devices_named(&log[1].text), BTreeSet::from(["loop3".to_owned()]));
    }

    #[test]
    fn warning_is_one_defect_with_the_devices_of_its_trace() {
        let log = messages(&[
            "WARNING: CPU: 0 PID: 812 at fs/ext4/inode.c:3210 ext4_da_release_space+0x11/0x90",
            "Workqueue: loop3 loop_rootcg_workfn",
            "WARNING: this line belongs to the trace",
            "---[ end trace 0000000000000000 ]---",
            "BUG: kernel NULL pointer dereference, address: 0000000000000008",
        ]);
        let found = splats(&log);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].devices, BTreeSet::from(["loop3".to_owned()]));
        assert_eq!((found[0].kind, found[1].kind), (SplatKind::Warning, SplatKind::Bug));
    }

    #[test]
    fn each_kind_is_recognised() {
        let kinds = [
            ("INFO: task mount:812 blocked for more than 120 seconds.", SplatKind::HungTask),
            ("rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:", SplatKind::Stall),
            ("WARNING: possible circular locking dependency detected", SplatKind::Lockdep),
            ("BUG: KASAN: use-after-free in loop_queue_rq", SplatKind::Memory),
            ("Oops: 0000 [#1] PREEMPT SMP", SplatKind::Bug),
        ];
        for (text, kind) in kinds {
            assert_eq!(splats(&messages(&[text])).first().map(|splat| splat.kind), Some(kind), "{text}");
        }
    }

    #[test]
    fn word_that_contains_loop_is_no_device() {
        assert_eq!(devices_named("loopback loop- loop dm-x xloop3 in the loop"), BTreeSet::new());
    }
}
