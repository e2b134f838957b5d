//! What the node has made and not removed since: directories, records and links. No other process has a reason to
//! remove or replace them while no call is under way.
//!
//! Reads the directories in which they lie, and nothing at their paths, which may be mounts that do not answer.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use contracts::event::{Effect, Meddling};

use crate::listing::{Listed, list};

/// The kind and the inode of a directory's entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    is_link: bool,
    inode: u64,
}

/// The node's own entries, as they were when a call had last been answered.
#[derive(Debug, Default)]
pub(super) struct Own {
    entries: BTreeMap<PathBuf, Entry>,
    /// Changed by another process between two calls. The node may still announce the change as its own.
    suspects: BTreeMap<PathBuf, Change>,
}

#[derive(Debug, Clone, Copy)]
struct Change {
    how: Meddling,
    seen: Instant,
    /// Whether the node cannot say any more that it was its own doing.
    is_sure: bool,
}

/// So long the node may take to say what it did: a moment, on a machine that lets it run at all.
pub(super) const SOON: Duration = Duration::from_secs(3);

impl Own {
    /// Takes note of what the node says it did. What has become of it before is compared, if it `is_suspicious`; the rest
    /// is, when the next call starts.
    pub(super) fn announced(&mut self, effect: &Effect, root: &Path, is_suspicious: impl Fn(&Path) -> bool) {
        let path = Path::new(&effect.path);
        match effect.effect.as_str() {
            "mkdir" | "link" => self.made(path, root, is_suspicious),
            "write" => {
                self.made(path, root, is_suspicious);
                // It says each thing before it does the next: had it removed the record itself, it had said so by now.
                self.suspects.get_mut(path).into_iter().for_each(|change| change.is_sure = true);
            }
            // A tree is announced by its top.
            "rmdir" | "remove" | "unlink" => self.forget(path),
            "rename" => {
                self.forget(path);
                if let Some(to) = effect.fields.get("to") {
                    self.forget(Path::new(to));
                    self.made(Path::new(to), root, is_suspicious);
                }
            }
            _ => {}
        }
    }

    fn made(&mut self, path: &Path, root: &Path, is_suspicious: impl Fn(&Path) -> bool) {
        let is_own = path.strip_prefix(root).is_ok_and(is_of_a_driver);
        let entry = path.file_name().filter(|_| is_own).and_then(|name| listed(path.parent()?).remove(name));
        if let Some(before) = self.entries.get(path)
            && let Some(how) = change(before, entry.as_ref())
            && is_suspicious(path)
        {
            self.suspect(path.to_owned(), how);
        }
        match entry {
            Some(entry) => drop(self.entries.insert(path.to_owned(), entry)),
            None => drop(self.entries.remove(path)),
        }
    }

    fn forget(&mut self, top: &Path) {
        self.entries.retain(|path, _| !path.starts_with(top));
        self.suspects.retain(|path, change| change.is_sure || !path.starts_with(top));
    }

    /// Suspects all changes since the last call was answered, except at the `excused` paths and below them.
    pub(super) fn compare<'a>(&mut self, excused: impl Iterator<Item = &'a Path> + Clone) {
        for (path, how) in self.changes() {
            self.entries.remove(&path);
            if !excused.clone().any(|excused| path.starts_with(excused)) {
                self.suspect(path, how);
            }
        }
    }

    fn suspect(&mut self, path: PathBuf, how: Meddling) {
        let is_reported = self.suspects.get(&path).is_some_and(|change| change.is_sure);
        if !is_reported {
            self.suspects.insert(path, Change { how, seen: Instant::now(), is_sure: false });
        }
    }

    /// Takes what there is now as it is: what a call has done is judged with the call, and what a case does is its own.
    /// Returns the changes since the last call was answered.
    pub(super) fn accept(&mut self) -> Vec<(PathBuf, Meddling)> {
        let changes = self.changes();
        for (path, _) in &changes {
            self.entries.remove(path);
        }
        changes
    }

    pub(super) fn has_suspects(&self) -> bool {
        self.suspects.values().any(|change| !change.is_sure)
    }

    /// A node that has ended may not have announced its last changes.
    pub(super) fn forget_suspects(&mut self) {
        self.suspects.retain(|_, change| change.is_sure);
    }

    /// The unannounced changes, the topmost only. A node that `is_at_work` may still announce them, if they are new.
    pub(super) fn take_suspects(&mut self, is_at_work: bool) -> Vec<(Meddling, String)> {
        let is_due =
            |_: &PathBuf, change: &mut Change| !is_at_work || change.is_sure || change.seen.elapsed() > SOON;
        let due = self.suspects.extract_if(.., is_due).map(|(path, change)| (path, change.how));
        topmost(due).into_iter().map(|(path, how)| (how, path.display().to_string())).collect()
    }

    fn changes(&self) -> Vec<(PathBuf, Meddling)> {
        let mut directories: BTreeMap<&Path, BTreeMap<OsString, Entry>> = BTreeMap::new();
        let mut changes = Vec::new();
        for (path, before) in &self.entries {
            let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { continue };
            let now = directories.entry(parent).or_insert_with(|| listed(parent)).get(name);
            changes.extend(change(before, now).map(|how| (path.clone(), how)));
        }
        changes
    }
}

fn change(before: &Entry, now: Option<&Entry>) -> Option<Meddling> {
    match now {
        None => Some(Meddling::Remove),
        Some(now) if now.is_link && !before.is_link => Some(Meddling::Link),
        Some(now) if now != before => Some(Meddling::Replace),
        Some(_) => None,
    }
}

/// The changes that are not below another one. A directory comes before what is in it.
pub(super) fn topmost(changes: impl IntoIterator<Item = (PathBuf, Meddling)>) -> Vec<(PathBuf, Meddling)> {
    let mut kept: Vec<(PathBuf, Meddling)> = Vec::new();
    for (path, how) in changes {
        if !kept.iter().any(|(top, _)| path.starts_with(top)) {
            kept.push((path, how));
        }
    }
    kept
}

/// Whether a path below the node's root is one that the node makes for the volumes of a driver, outside of all volumes:
/// what is in them belongs to pods.
fn is_of_a_driver(below: &Path) -> bool {
    let Some(parts) = below.iter().map(|part| part.to_str()).collect::<Option<Vec<_>>>() else {
        return false;
    };
    match parts.as_slice() {
        ["pods", _] | ["pods", _, "volumes" | "volumeDevices"] => true,
        ["pods", _, "volumes" | "volumeDevices", "kubernetes.io~csi", rest @ ..] => rest.len() <= 2,
        ["plugins", "kubernetes.io", "csi", "volumeDevices", rest @ ..] => rest.len() <= 3,
        ["plugins", "kubernetes.io", "csi", rest @ ..] => rest.len() <= 3,
        _ => false,
    }
}

fn listed(directory: &Path) -> BTreeMap<OsString, Entry> {
    let entry = |entry: Listed| (entry.name, Entry { is_link: entry.kind.is_symlink(), inode: entry.inode });
    list(directory).into_iter().map(entry).collect()
}
