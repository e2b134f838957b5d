//! Operations that run on the real and on the fake kernel, and random sequences of them.

use std::fmt;

use host::Propagation;

use crate::random::Random;

/// Paths are relative to the root of the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Operation {
    /// A new tmpfs with the usual tree in it.
    Tmpfs(String),
    Bind {
        from: String,
        to: String,
        recursive: bool,
    },
    Move {
        from: String,
        to: String,
    },
    Propagate {
        path: String,
        kind: Propagation,
        recursive: bool,
    },
    Unmount {
        path: String,
        lazy: bool,
    },
    ReadOnly(String),
    /// Opens a path and keeps it open.
    Hold(String),
    /// Closes the path that was opened first.
    Release,
    MakeDir(String),
    RemoveDir(String),
    RemoveFile(String),
    Rename {
        from: String,
        to: String,
    },
}

/// The directories of every new file system, which also has a file `f`.
pub(crate) const DIRS: [&str; 6] = ["a", "a/a", "a/b", "b", "b/a", "b/b"];

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tmpfs(path) => write!(f, "tmpfs {path}"),
            Self::Bind { from, to, recursive: false } => write!(f, "bind {from} {to}"),
            Self::Bind { from, to, recursive: true } => write!(f, "rbind {from} {to}"),
            Self::Move { from, to } => write!(f, "move {from} {to}"),
            Self::Propagate { path, kind, recursive } => write!(f, "{} {path}", kind.word(*recursive)),
            Self::Unmount { path, lazy: false } => write!(f, "umount {path}"),
            Self::Unmount { path, lazy: true } => write!(f, "umount -l {path}"),
            Self::ReadOnly(path) => write!(f, "read-only {path}"),
            Self::Hold(path) => write!(f, "hold {path}"),
            Self::Release => write!(f, "release"),
            Self::MakeDir(path) => write!(f, "mkdir {path}"),
            Self::RemoveDir(path) => write!(f, "rmdir {path}"),
            Self::RemoveFile(path) => write!(f, "rm {path}"),
            Self::Rename { from, to } => write!(f, "mv {from} {to}"),
        }
    }
}

/// A sequence as text, one operation a line, for the message of a failed test.
pub(crate) fn script(operations: &[Operation]) -> String {
    operations.iter().map(|operation| format!("    {operation}\n")).collect()
}

/// A sequence that begins with mounts at the places that the other operations use.
pub(crate) fn sequence(random: &mut Random, length: usize) -> Vec<Operation> {
    let mut operations = vec![Operation::Tmpfs("a".to_owned())];
    if random.chance(2) {
        let kind = propagation(random);
        operations.push(Operation::Propagate { path: String::new(), kind, recursive: true });
    }
    operations.extend((0..length).map(|_| draw(random)));
    operations
}

fn draw(random: &mut Random) -> Operation {
    let coin = random.chance(2);
    match random.below(32) {
        0..=5 => Operation::Tmpfs(dir(random)),
        6..=12 => Operation::Bind { from: dir_or_file(random), to: dir_or_file(random), recursive: coin },
        13..=15 => Operation::Move { from: dir_or_file(random), to: dir_or_file(random) },
        16..=22 => {
            Operation::Propagate { path: dir_or_root(random), kind: propagation(random), recursive: coin }
        }
        23..=24 => Operation::Unmount { path: dir_or_file(random), lazy: false },
        25 => Operation::Unmount { path: dir_or_file(random), lazy: true },
        26 => Operation::ReadOnly(dir_or_file(random)),
        27 => Operation::Hold(dir_or_file(random)),
        28 => Operation::Release,
        29 => Operation::MakeDir(dir(random)),
        30 if coin => Operation::RemoveDir(dir_or_file(random)),
        30 => Operation::RemoveFile(dir_or_file(random)),
        _ => Operation::Rename { from: dir_or_file(random), to: dir_or_file(random) },
    }
}

fn propagation(random: &mut Random) -> Propagation {
    match random.below(8) {
        0..=3 => Propagation::Shared,
        4 => Propagation::Private,
        5..=6 => Propagation::Slave,
        _ => Propagation::Unbindable,
    }
}

fn dir(random: &mut Random) -> String {
    let depth = 1 + random.below(4);
    let names: Vec<&str> = (0..depth).map(|_| if random.chance(2) { "a" } else { "b" }).collect();
    names.join("/")
}

fn dir_or_root(random: &mut Random) -> String {
    if random.chance(8) { String::new() } else { dir(random) }
}

fn dir_or_file(random: &mut Random) -> String {
    let dir = dir_or_root(random);
    match (random.chance(10), dir.is_empty()) {
        (true, true) => "f".to_owned(),
        (true, false) => format!("{dir}/f"),
        // The root itself is not drawn.
        (false, true) => "a".to_owned(),
        (false, false) => dir,
    }
}
