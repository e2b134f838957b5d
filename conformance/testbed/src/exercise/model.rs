//! The expected names and contents of files, and their comparison with a file system.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use super::Difference;
use super::act::Act;
use super::perform::attribute;

#[derive(Debug, Clone, Default)]
pub(super) struct Model {
    names: BTreeMap<String, Entry>,
    files: BTreeMap<usize, Inode>,
    last: usize,
    steps: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Entry {
    File(usize),
    /// A symbolic link, and where it leads.
    Link(String),
}

#[derive(Debug, Clone, Default)]
struct Inode {
    bytes: Vec<u8>,
    mode: Option<u32>,
    /// The modification time, if it was set after the last write.
    seconds: Option<i64>,
    attributes: BTreeMap<String, Vec<u8>>,
    /// The steps that changed its bytes, oldest first.
    history: Vec<String>,
}

/// The number of entries of a file's history that are shown with a difference.
const SHOWN: usize = 3;

impl Model {
    pub(super) fn next_step(&mut self) -> u64 {
        self.steps += 1;
        self.steps
    }

    /// All names except symbolic links.
    pub(super) fn files(&self) -> Vec<String> {
        self.names.keys().filter(|name| !self.is_link(name)).cloned().collect()
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.names.contains_key(name)
    }

    pub(super) fn is_link(&self, name: &str) -> bool {
        matches!(self.names.get(name), Some(Entry::Link(_)))
    }

    #[cfg(test)]
    pub(super) fn largest(&self) -> Option<String> {
        let length = |name: &String| match &self.names[name] {
            Entry::File(number) => self.files[number].bytes.len(),
            Entry::Link(_) => 0,
        };
        self.files().into_iter().max_by_key(length)
    }

    /// The file of a name; creates it if there is none.
    fn file(&mut self, name: &str) -> &mut Inode {
        let number = match self.names.get(name) {
            Some(Entry::File(number)) => *number,
            _ => {
                self.last += 1;
                self.names.insert(name.to_owned(), Entry::File(self.last));
                self.last
            }
        };
        self.files.entry(number).or_default()
    }

    pub(super) fn apply(&mut self, act: &Act, bytes: &[u8]) {
        let line = format!("step {}: {act}", self.steps);
        match act {
            Act::Write { name, at, .. } => self.file(name).put(*at, bytes, line),
            Act::Append { name, .. } => {
                let end = self.file(name).bytes.len() as u64;
                self.file(name).put(end, bytes, line);
            }
            Act::Cut { name, length } => {
                let file = self.file(name);
                file.bytes.resize(index(*length), 0);
                file.changed(line);
            }
            Act::Punch { name, at, length } => {
                let file = self.file(name);
                let (start, end) = file.part(*at, *length);
                file.bytes[start..end].fill(0);
                file.changed(line);
            }
            Act::Copy { from, to, at, length } => {
                let source = self.file(from);
                let (start, end) = source.part(*at, *length);
                let part = source.bytes[start..end].to_vec();
                // The copy creates its target even if it copies no byte.
                let target = self.file(to);
                if !part.is_empty() && from != to {
                    target.put(start as u64, &part, line);
                }
            }
            Act::Rename { from, to } => self.rename(from, to),
            Act::Link { from, to } => {
                if let Some(entry) = self.names.get(from).cloned() {
                    self.names.insert(to.clone(), entry);
                }
            }
            Act::Symlink { name, target } => {
                self.names.insert(name.clone(), Entry::Link(target.clone()));
            }
            Act::Unlink { name } => drop(self.names.remove(name)),
            Act::Mode { name, mode } => self.file(name).mode = Some(*mode),
            Act::Time { name, seconds } => self.file(name).seconds = Some(*seconds),
            Act::Attribute { name, key, .. } => {
                self.file(name).attributes.insert(key.clone(), bytes.to_vec());
            }
        }
    }

    /// Does nothing if both are names of the same file, as POSIX asks.
    fn rename(&mut self, from: &str, to: &str) {
        if self.names.get(from) != self.names.get(to)
            && let Some(entry) = self.names.remove(from)
        {
            self.names.insert(to.to_owned(), entry);
        }
    }

    /// The first difference between the expected files and those below `root`.
    pub(super) fn difference(&self, root: &Path) -> io::Result<Option<Difference>> {
        for name in self.names.keys() {
            if let Some(difference) = self.difference_of(root, name)? {
                return Ok(Some(difference));
            }
        }
        let found = names_below(root, "")?;
        let more = found.into_iter().find(|name| !self.names.contains_key(name));
        Ok(more.map(|name| Difference::Content(format!("`{name}` is there, and was removed or never made"))))
    }

    pub(super) fn difference_of(&self, root: &Path, name: &str) -> io::Result<Option<Difference>> {
        let path = root.join(name);
        let metadata = match fs::symlink_metadata(&path) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let gone = self.has(name).then(|| Difference::Content(format!("`{name}` is not there")));
                return Ok(gone);
            }
            Err(error) => return Err(error),
        };
        match self.names.get(name) {
            None => Ok(Some(Difference::Content(format!("`{name}` is there, and was removed")))),
            Some(Entry::Link(target)) => Ok(link_difference(&path, name, target)),
            Some(Entry::File(number)) => {
                let Some(inode) = self.files.get(number) else { return Ok(None) };
                if let Some(said) = inode.content_difference(&path, name)? {
                    return Ok(Some(Difference::Content(said)));
                }
                let names = self.names.values().filter(|entry| **entry == Entry::File(*number)).count();
                Ok(inode
                    .attribute_difference(&path, name, &metadata, names as u64)?
                    .map(Difference::Attribute))
            }
        }
    }
}

impl Inode {
    fn put(&mut self, at: u64, bytes: &[u8], line: String) {
        let (start, end) = (index(at), index(at) + bytes.len());
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[start..end].copy_from_slice(bytes);
        self.changed(line);
    }

    fn changed(&mut self, line: String) {
        self.seconds = None;
        self.history.push(line);
    }

    /// Start and end of a range, cut at the end of the file.
    fn part(&self, at: u64, length: u64) -> (usize, usize) {
        let end = self.bytes.len();
        (index(at).min(end), index(at.saturating_add(length)).min(end))
    }

    fn content_difference(&self, path: &Path, name: &str) -> io::Result<Option<String>> {
        let mut found = Vec::with_capacity(self.bytes.len() + 1);
        // One byte more than expected shows that the file is longer: the file of a wrong volume may be of any size.
        File::open(path)?.take(self.bytes.len() as u64 + 1).read_to_end(&mut found)?;
        if found == self.bytes {
            return Ok(None);
        }
        let history = self.history.iter().rev().take(SHOWN).cloned().collect::<Vec<_>>().join("; ");
        let differs = self.bytes.iter().zip(&found).position(|(expected, seen)| expected != seen);
        if let Some(at) = differs {
            return Ok(Some(format!(
                "`{name}` at offset {at}: expected {:02x}, seen {:02x} (last: {history})",
                self.bytes[at], found[at]
            )));
        }
        let is = if found.len() > self.bytes.len() { "longer".to_owned() } else { found.len().to_string() };
        let expected = self.bytes.len();
        Ok(Some(format!("`{name}` should be {expected} bytes long, and is {is} (last: {history})")))
    }

    fn attribute_difference(
        &self,
        path: &Path,
        name: &str,
        metadata: &fs::Metadata,
        names: u64,
    ) -> io::Result<Option<String>> {
        let mode = metadata.permissions().mode() & 0o7777;
        if let Some(expected) = self.mode.filter(|expected| *expected != mode) {
            return Ok(Some(format!("the mode of `{name}`: expected {expected:o}, seen {mode:o}")));
        }
        if let Some(expected) = self.seconds.filter(|expected| *expected != metadata.mtime()) {
            let seen = metadata.mtime();
            return Ok(Some(format!("the time of `{name}`: expected {expected} s, seen {seen} s")));
        }
        if metadata.nlink() != names {
            let seen = metadata.nlink();
            return Ok(Some(format!("the names of `{name}`: expected {names}, seen {seen}")));
        }
        for (key, expected) in &self.attributes {
            let seen = attribute(path, key)?;
            if seen.as_ref() != Some(expected) {
                let seen = match seen {
                    None => "it has no such attribute".to_owned(),
                    Some(seen) => format!("seen {} bytes that differ", seen.len()),
                };
                let expected = expected.len();
                return Ok(Some(format!(
                    "the attribute `{key}` of `{name}`: expected {expected} bytes, {seen}"
                )));
            }
        }
        Ok(None)
    }
}

fn link_difference(path: &Path, name: &str, target: &str) -> Option<Difference> {
    let found = fs::read_link(path).map(|found| found.to_string_lossy().into_owned());
    match found {
        Ok(found) if found == target => None,
        Ok(found) => {
            let said = format!("the link `{name}`: expected `{target}`, seen `{found}`");
            Some(Difference::Content(said))
        }
        Err(_) => Some(Difference::Content(format!("`{name}` should be a symbolic link, and is none"))),
    }
}

/// The paths of all files below a directory, relative to it.
fn names_below(root: &Path, below: &str) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root.join(below))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let name = if below.is_empty() { name } else { format!("{below}/{name}") };
        match entry.file_type()?.is_dir() {
            true => found.extend(names_below(root, &name)?),
            false => found.push(name),
        }
    }
    Ok(found)
}

fn index(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
