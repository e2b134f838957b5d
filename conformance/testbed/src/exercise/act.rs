//! Random operations on files. Chooses them, and does not carry them out.

use std::fmt;

use super::dice::{self, Dice};
use super::model::Model;

/// The names of files: few, so that the same file meets many acts.
const NAMES: [&str; 6] = ["a", "b", "c", "deep/d", "deep/e", "deep/\u{fc}ber/f"];

/// The greatest offset in a file.
const REACH: u64 = 320 << 10;

/// The length of the longest write, in bytes.
const LENGTH: u64 = 48 << 10;

/// The alignment of direct I/O: no file system asks for more.
const ALIGNED: u64 = 4096;

/// An operation. Files are named by their paths below the root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Act {
    Write {
        name: String,
        at: u64,
        length: u64,
        how: How,
    },
    Append {
        name: String,
        length: u64,
    },
    /// Gives a file this length, with zeros where it had nothing.
    Cut {
        name: String,
        length: u64,
    },
    Punch {
        name: String,
        at: u64,
        length: u64,
    },
    Copy {
        from: String,
        to: String,
        at: u64,
        length: u64,
    },
    Rename {
        from: String,
        to: String,
    },
    Link {
        from: String,
        to: String,
    },
    Symlink {
        name: String,
        target: String,
    },
    /// Removes a name; the file is read once more through a descriptor that was opened before.
    Unlink {
        name: String,
    },
    Mode {
        name: String,
        mode: u32,
    },
    Time {
        name: String,
        seconds: i64,
    },
    Attribute {
        name: String,
        key: String,
        length: u64,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    Plain,
    Sync,
    Direct,
    Mapped,
}

impl Act {
    pub(super) fn choose(dice: &mut Dice, model: &Model) -> Self {
        let files = model.files();
        let Some(name) = dice.pick(&files).cloned() else { return written(dice, NAMES[0].to_owned()) };
        let other = dice.pick(&NAMES).copied().unwrap_or(NAMES[0]).to_owned();
        let (at, length) = (dice.within(0..REACH), dice.within(1..LENGTH));
        match dice.within(0..24) {
            0..=7 => written(dice, if model.is_link(&other) { name } else { other }),
            8..=10 => Self::Append { name, length },
            11 | 12 => Self::Cut { name, length: at },
            13 | 14 => Self::Punch { name, at, length },
            15 if !model.is_link(&other) => Self::Copy { from: name, to: other, at, length },
            16 | 17 if other != name => Self::Rename { from: name, to: other },
            18 if !model.has(&other) => Self::Link { from: name, to: other },
            19 if !model.has(&other) => Self::Symlink { name: other, target: format!("nowhere/{at}") },
            20 if files.len() > 2 => Self::Unlink { name: if model.is_link(&other) { other } else { name } },
            21 => Self::Mode { name, mode: 0o600 | u32::try_from(at & 0o177).unwrap_or(0) },
            22 => Self::Time { name, seconds: i64::try_from(1_000_000_000 + at * 977).unwrap_or(0) },
            23 => Self::Attribute { name, key: format!("user.key{}", at % 3), length: length % 64 },
            _ => written(dice, name),
        }
    }

    /// The bytes that it writes.
    pub(super) fn bytes(&self, seed: u64, step: u64) -> Vec<u8> {
        let length = match self {
            Self::Write { length, .. } | Self::Append { length, .. } | Self::Attribute { length, .. } => {
                *length
            }
            _ => 0,
        };
        dice::bytes(seed ^ step.rotate_left(40), usize::try_from(length).unwrap_or(0))
    }

    /// The file that is looked at afterwards.
    pub(super) fn file(&self) -> &str {
        match self {
            Self::Copy { to, .. } | Self::Rename { to, .. } | Self::Link { to, .. } => to,
            Self::Write { name, .. }
            | Self::Append { name, .. }
            | Self::Cut { name, .. }
            | Self::Punch { name, .. }
            | Self::Symlink { name, .. }
            | Self::Unlink { name }
            | Self::Mode { name, .. }
            | Self::Time { name, .. }
            | Self::Attribute { name, .. } => name,
        }
    }

    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Write { how: How::Plain, .. } => "write",
            Self::Write { how: How::Sync, .. } => "O_SYNC",
            Self::Write { how: How::Direct, .. } => "O_DIRECT",
            Self::Write { how: How::Mapped, .. } => "mmap",
            Self::Append { .. } => "append",
            Self::Cut { .. } => "truncate",
            Self::Punch { .. } => "punch a hole",
            Self::Copy { .. } => "copy a range",
            Self::Rename { .. } => "rename",
            Self::Link { .. } => "hard link",
            Self::Symlink { .. } => "symbolic link",
            Self::Unlink { .. } => "unlink while open",
            Self::Mode { .. } => "chmod",
            Self::Time { .. } => "set the time",
            Self::Attribute { .. } => "set an attribute",
        }
    }
}

fn written(dice: &mut Dice, name: String) -> Act {
    let hows = [How::Plain, How::Plain, How::Sync, How::Direct, How::Mapped];
    let how = dice.pick(&hows).copied().unwrap_or(How::Plain);
    let (at, length) = (dice.within(0..REACH), dice.within(1..LENGTH));
    let down = |number: u64| number / ALIGNED * ALIGNED;
    match how {
        How::Direct => Act::Write { name, at: down(at), length: down(length) + ALIGNED, how },
        _ => Act::Write { name, at, length, how },
    }
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.kind();
        match self {
            Self::Write { name, at, length, .. } | Self::Punch { name, at, length } => {
                write!(f, "{kind} of {length} bytes at {at} of `{name}`")
            }
            Self::Append { name, length } => write!(f, "{kind} of {length} bytes to `{name}`"),
            Self::Cut { name, length } => write!(f, "{kind} of `{name}` to {length} bytes"),
            Self::Copy { from, to, at, length } => {
                write!(f, "{kind} of {length} bytes at {at} from `{from}` to `{to}`")
            }
            Self::Rename { from, to } | Self::Link { from, to } => write!(f, "{kind} of `{from}` as `{to}`"),
            Self::Symlink { name, .. } | Self::Unlink { name } => write!(f, "{kind} `{name}`"),
            Self::Mode { name, mode } => write!(f, "{kind} of `{name}` to {mode:o}"),
            Self::Time { name, .. } | Self::Attribute { name, .. } => write!(f, "{kind} of `{name}`"),
        }
    }
}
