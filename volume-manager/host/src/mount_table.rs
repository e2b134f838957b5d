//! The mount table: parses mountinfo and finds mounts in it. Touches nothing.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::options::split_options;

/// All mounts of a mount namespace that are reachable from a root, in the kernel's order.
/// A clone shares the table and is cheap.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MountTable {
    entries: Arc<[MountEntry]>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountEntry {
    /// The kernel reuses the id after the mount is gone.
    pub id: u64,
    /// The id of the mount that this one is mounted on; a root mount has its own id here.
    pub parent: u64,
    /// The device of its file system.
    pub dev: DeviceNumber,
    /// The directory or file of the file system that the mount shows; `/` shows all of it.
    pub root: PathBuf,
    pub mount_point: PathBuf,
    pub options: Vec<String>,
    /// The peer group it shares mounts with (`shared:N`).
    pub shared: Option<u64>,
    /// The peer group it receives mounts from (`master:N`).
    pub master: Option<u64>,
    /// The nearest visible peer group that it receives from, if its `master` is not visible (`propagate_from:N`).
    pub propagate_from: Option<u64>,
    pub unbindable: bool,
    /// The type of the file system, with a subtype after a dot: `fuse.sshfs`.
    pub fs_type: String,
    /// As given to mount(2): a device path, `server:/path`, a word, or empty.
    pub source: OsString,
    /// Options of the file system.
    pub super_options: Vec<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceNumber {
    pub major: u32,
    pub minor: u32,
}

impl DeviceNumber {
    pub fn new(major: u32, minor: u32) -> Self {
        Self { major, minor }
    }
}

impl fmt::Display for DeviceNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

/// A line of mountinfo that cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot parse line {line} of mountinfo: {defect}: `{text}`")]
pub struct ParseError {
    /// Counted from 1.
    pub line: usize,
    pub defect: &'static str,
    pub text: String,
}

impl MountTable {
    pub fn new(entries: Vec<MountEntry>) -> Self {
        Self { entries: entries.into() }
    }

    /// Parses the text of `/proc/<pid>/mountinfo`. Empty lines are skipped; a line with fewer than ten fields,
    /// without `-`, or with a malformed number is an error.
    pub fn parse(text: &[u8]) -> Result<Self, ParseError> {
        let mut entries = Vec::with_capacity(text.len() / 160);
        for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
            if line.is_empty() {
                continue;
            }
            let entry = MountEntry::parse(line).map_err(|defect| ParseError {
                line: index + 1,
                defect,
                text: String::from_utf8_lossy(line).into_owned(),
            })?;
            entries.push(entry);
        }
        Ok(Self::new(entries))
    }

    /// All mounts in the kernel's order: of two mounts on one mount point, the newer comes later.
    pub fn entries(&self) -> &[MountEntry] {
        &self.entries
    }

    /// The topmost mount at exactly `path`, which must be free of links; if none is visible there, the latest
    /// hidden one.
    pub fn at(&self, path: &Path) -> Option<&MountEntry> {
        let hidden = || self.entries.iter().rev().find(|entry| entry.is_at(path));
        self.containing(path).filter(|entry| entry.is_at(path)).or_else(hidden)
    }

    /// The mount that shows `path`, which must be free of links: from the root downwards, at each step the
    /// mount that covers the next part of the path. `None` only if the root itself is not in the table.
    ///
    /// The kubelet takes the last line whose mount point is above the path. That is the same mount if lines
    /// stand in the order of mounting, and the wrong one after a move or a pivot of the root.
    pub fn containing(&self, path: &Path) -> Option<&MountEntry> {
        let above: Vec<&MountEntry> =
            self.entries.iter().filter(|entry| path.starts_with(entry.mount_point_alive())).collect();
        let is_listed = |id: u64| above.iter().any(|entry| entry.id == id);
        let is_root = |entry: &&MountEntry| entry.parent == entry.id || !is_listed(entry.parent);
        let nearest = |entry: &&MountEntry| entry.mount_point_alive().as_os_str().len();
        let mut here = above.iter().copied().filter(is_root).min_by_key(nearest)?;
        // The kernel has no cycles, but the table is only text: this bound ends one.
        for _ in 0..above.len() {
            let is_child = |entry: &&MountEntry| entry.parent == here.id && entry.id != here.id;
            match above.iter().copied().filter(is_child).min_by_key(nearest) {
                Some(next) => here = next,
                None => break,
            }
        }
        Some(here)
    }

    /// Number of mounts at exactly `path`.
    pub fn layers(&self, path: &Path) -> usize {
        self.entries.iter().filter(|entry| entry.is_at(path)).count()
    }

    /// All mounts at or below `path`, deepest and latest last.
    pub fn below<'a>(&'a self, path: &'a Path) -> impl Iterator<Item = &'a MountEntry> {
        self.entries.iter().filter(move |entry| entry.mount_point.starts_with(path))
    }

    /// Mount points of all other mounts of the directory or file that `path` shows (07 §8): those with the same
    /// root on the same device. `path` must be free of links.
    pub fn references(&self, path: &Path) -> Vec<PathBuf> {
        let Some(own) = self.containing(path) else { return Vec::new() };
        let root = part_shown(&own.root, &own.mount_point, path);
        let same = |entry: &&MountEntry| entry.id != own.id && entry.dev == own.dev && entry.root == root;
        self.entries.iter().filter(same).map(|entry| entry.mount_point.clone()).collect()
    }

    /// Source of the first mount at exactly `path`, and the number of mounts with that source (07 §8,
    /// `GetDeviceNameFromMount`).
    pub fn device_of(&self, path: &Path) -> Option<(&OsStr, usize)> {
        let source = self.entries.iter().find(|entry| entry.mount_point == path)?.source.as_os_str();
        let count = self.entries.iter().filter(|entry| entry.source == source).count();
        Some((source, count))
    }
}

impl MountEntry {
    /// Whether it is mounted at exactly `path`, also if the mount point has been deleted since.
    pub fn is_at(&self, path: &Path) -> bool {
        self.mount_point == path || self.mount_point_alive() == path
    }

    /// The value of `name=…` among the options of the mount or its file system, without quotes.
    pub fn option_value(&self, name: &str) -> Option<&str> {
        self.options.iter().chain(&self.super_options).find_map(|option| {
            let value = option.strip_prefix(name)?.strip_prefix('=')?;
            Some(value.trim_matches('"'))
        })
    }

    /// Looks among the options of the mount and of its file system.
    pub fn has_option(&self, option: &str) -> bool {
        self.options.iter().chain(&self.super_options).any(|have| have == option)
    }

    /// Value of the `context=` option.
    pub fn selinux_context(&self) -> Option<&str> {
        self.option_value("context")
    }

    /// The mount point without the suffix that the kernel adds when it is deleted.
    fn mount_point_alive(&self) -> &Path {
        alive(&self.mount_point)
    }

    fn parse(line: &[u8]) -> Result<Self, &'static str> {
        let mut fields = line.split(|byte| *byte == b' ');
        let mut next = |defect| fields.next().ok_or(defect);
        let id = number(next("it has no id")?)?;
        let parent = number(next("it has no parent")?)?;
        let dev = device(next("it has no device")?)?;
        let root = path(next("it has no root")?);
        let mount_point = path(next("it has no mount point")?);
        let options = options(next("it has no options")?);
        let mut entry = Self {
            id,
            parent,
            dev,
            root,
            mount_point,
            options,
            shared: None,
            master: None,
            propagate_from: None,
            unbindable: false,
            fs_type: String::new(),
            source: OsString::new(),
            super_options: Vec::new(),
        };
        loop {
            match next("it has no separator")? {
                b"-" => break,
                field => entry.take_optional(field)?,
            }
        }
        entry.fs_type = String::from_utf8_lossy(&unescape(next("it has no type")?)).into_owned();
        entry.source = OsString::from_vec(unescape(next("it has no source")?));
        entry.super_options = split_field(next("it has no file system options")?);
        Ok(entry)
    }

    /// Unknown optional fields are ignored, as the kernel's manual demands.
    fn take_optional(&mut self, field: &[u8]) -> Result<(), &'static str> {
        if let Some(group) = field.strip_prefix(b"shared:") {
            self.shared = Some(number(group)?);
        } else if let Some(group) = field.strip_prefix(b"master:") {
            self.master = Some(number(group)?);
        } else if let Some(group) = field.strip_prefix(b"propagate_from:") {
            self.propagate_from = Some(number(group)?);
        } else if field == b"unbindable" {
            self.unbindable = true;
        }
        Ok(())
    }
}

/// The path within the file system that `path` shows, if a mount shows `root` at `mount_point`.
pub(crate) fn part_shown(root: &Path, mount_point: &Path, path: &Path) -> PathBuf {
    let rest = path.strip_prefix(alive(mount_point)).unwrap_or(Path::new(""));
    // Joining an empty path would add a slash at the end.
    if rest.as_os_str().is_empty() { root.to_owned() } else { root.join(rest) }
}

/// A mount point without the kernel's suffix for a deleted one.
fn alive(mount_point: &Path) -> &Path {
    let bytes = mount_point.as_os_str().as_bytes();
    // `\040(deleted)`, or `//deleted` on newer kernels.
    let alive = bytes.strip_suffix(b" (deleted)").or_else(|| bytes.strip_suffix(b"//deleted"));
    alive.map_or(mount_point, |alive| Path::new(OsStr::from_bytes(alive)))
}

fn number(field: &[u8]) -> Result<u64, &'static str> {
    let text = std::str::from_utf8(field).map_err(|_| "a number is not UTF-8")?;
    text.parse().map_err(|_| "a field is not a number")
}

fn device(field: &[u8]) -> Result<DeviceNumber, &'static str> {
    const DEFECT: &str = "its device is not major:minor";
    let text = std::str::from_utf8(field).map_err(|_| DEFECT)?;
    let (major, minor) = text.split_once(':').ok_or(DEFECT)?;
    let parse = |part: &str| part.parse::<u32>().map_err(|_| DEFECT);
    Ok(DeviceNumber::new(parse(major)?, parse(minor)?))
}

fn path(field: &[u8]) -> PathBuf {
    PathBuf::from(OsString::from_vec(unescape(field)))
}

fn options(field: &[u8]) -> Vec<String> {
    split_field(field)
}

fn split_field(field: &[u8]) -> Vec<String> {
    split_options(&String::from_utf8_lossy(&unescape(field)))
}

/// Undoes the kernel's octal escapes (`\040` for a blank, `\011`, `\012`, `\134`, `\043`).
///
/// A backslash without three octal digits stands for itself: file systems print their own backslashes unescaped.
fn unescape(field: &[u8]) -> Vec<u8> {
    if !field.contains(&b'\\') {
        return field.to_vec();
    }
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, tail)) = rest.split_first() {
        let octal = if first == b'\\' { tail.get(..3).and_then(octal_byte) } else { None };
        plain.push(octal.unwrap_or(first));
        rest = if octal.is_some() { &tail[3..] } else { tail };
    }
    plain
}

fn octal_byte(digits: &[u8]) -> Option<u8> {
    let value = digits.iter().try_fold(0u32, |value, digit| {
        (b'0'..=b'7').contains(digit).then(|| value * 8 + u32::from(digit - b'0'))
    })?;
    u8::try_from(value).ok()
}

#[cfg(test)]
mod tests;
