//! Replaces the files of a volume all at once.
//!
//! The files are in a directory of their generation; `..data` is a symlink to the present one, and each visible
//! name a symlink through it. Renaming a new symlink over `..data` is the switch: a reader that opens files
//! through it gets all of the old generation or all of the new one. Touches one directory, which must exist.
//!
//! Differences to the kubelet's writer: a generation is named by a number and not by the time (the manager has
//! no time of day), the remains of a failed attempt are removed, and a symlink left by a crash is replaced
//! instead of failing every later write.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use api::Sensitive;
use host::{FileKind, Host, HostError, OwnershipChange, Removal, WalkProgress};

const DATA: &str = "..data";
const DATA_TMP: &str = "..data_tmp";
const GENERATION: &str = "..generation_";

const MAX_PATH: usize = 4096;
const MAX_NAME: usize = 255;

/// A file of the volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct File {
    /// The content, masked in logs: it may be a secret.
    pub(crate) content: Sensitive<Vec<u8>>,
    /// The permission bits.
    pub(crate) mode: u32,
    /// The owner; `None` keeps the manager's.
    pub(crate) owner: Option<u32>,
}

/// Files by their path below the volume's root.
pub(crate) type Payload = BTreeMap<String, File>;

/// Makes `dir` show exactly `payload`.
///
/// Nothing is written if names and contents are the same already; a change of modes or owners alone does not
/// count, as in the kubelet. With `ownership`, the whole directory is changed after the new files are written
/// and before they are shown.
pub(crate) async fn write(
    host: &dyn Host,
    dir: &Path,
    payload: &Payload,
    ownership: Option<OwnershipChange>,
) -> Result<(), WriteError> {
    let files = clean(payload)?;
    let writer = Writer { host, dir, files: &files };
    let old = writer.present().await?;
    let stale = match &old {
        Some(old) => writer.stale(old).await?,
        None => BTreeSet::new(),
    };
    let same = match &old {
        Some(old) => stale.is_empty() && writer.is_same(old).await?,
        None => false,
    };
    if !same {
        let new = writer.new_generation(old.as_deref()).await?;
        let switched = match writer.fill(&new, ownership).await {
            Ok(()) => writer.switch(&new).await,
            Err(error) => Err(error),
        };
        if let Err(error) = switched {
            // The first error is returned; remains that cannot be removed go with the volume.
            let _ = host.remove_tree(&dir.join(&new), Removal::OneFilesystem).await;
            return Err(error.into());
        }
    }
    writer.link().await?;
    if !same {
        writer.unlink(&stale).await?;
        if let Some(old) = old {
            host.remove_tree(&dir.join(old), Removal::OneFilesystem).await?;
        }
    }
    Ok(())
}

/// The payload with normalised paths; fails for an invalid path.
fn clean<'a>(payload: &'a Payload) -> Result<BTreeMap<PathBuf, &'a File>, WriteError> {
    let entry = |(path, file): (&'a String, &'a File)| Ok((clean_path(path)?, file));
    payload.iter().map(entry).collect()
}

fn clean_path(path: &str) -> Result<PathBuf, WriteError> {
    let bad = |defect| Err(WriteError::BadPath { path: path.to_owned(), defect });
    if path.is_empty() {
        return bad("must not be empty");
    }
    if path.starts_with('/') {
        return bad("must be relative path");
    }
    if path.len() > MAX_PATH {
        return bad("must be less than or equal to 4096 characters");
    }
    if path.contains('\0') {
        return bad("must not contain a zero byte");
    }
    let mut elements = path.split('/');
    if elements.clone().any(|element| element == "..") {
        return bad("must not contain '..'");
    }
    if elements.clone().any(|element| element.len() > MAX_NAME) {
        return bad("filenames must be less than or equal to 255 characters");
    }
    // Such names are the writer's own.
    if elements.next().is_some_and(|first| first.starts_with("..")) {
        return bad("must not start with '..'");
    }
    let cleaned: PathBuf = path.split('/').filter(|element| !matches!(*element, "" | ".")).collect();
    if cleaned.as_os_str().is_empty() {
        return bad("must not be empty");
    }
    Ok(cleaned)
}

struct Writer<'a> {
    host: &'a dyn Host,
    dir: &'a Path,
    files: &'a BTreeMap<PathBuf, &'a File>,
}

impl Writer<'_> {
    /// The name of the directory that `..data` leads to.
    async fn present(&self) -> Result<Option<PathBuf>, HostError> {
        match self.host.read_link(&self.dir.join(DATA)).await {
            Ok(target) => Ok(Some(target)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// All paths of the present generation that are not in the payload, neither as a file nor as a directory.
    async fn stale(&self, old: &Path) -> Result<BTreeSet<PathBuf>, HostError> {
        let wanted: BTreeSet<&Path> = self.files.keys().flat_map(|path| path.ancestors()).collect();
        let root = self.dir.join(old);
        let mut stale = BTreeSet::new();
        let mut unread = vec![PathBuf::new()];
        while let Some(below) = unread.pop() {
            let entries = match self.host.read_dir(&root.join(&below)).await {
                Ok(entries) => entries,
                // The symlink leads nowhere, so nothing is stale.
                Err(error) if error.is_not_found() => continue,
                Err(error) => return Err(error),
            };
            for entry in entries {
                let path = below.join(&entry.name);
                if entry.kind == FileKind::Directory {
                    unread.push(path.clone());
                }
                if !wanted.contains(path.as_path()) {
                    stale.insert(path);
                }
            }
        }
        Ok(stale)
    }

    async fn is_same(&self, old: &Path) -> Result<bool, HostError> {
        let root = self.dir.join(old);
        for (path, file) in self.files {
            match self.host.read_file(&root.join(path)).await {
                Ok(content) if content == *file.content.reveal() => {}
                Ok(_) => return Ok(false),
                Err(error) if error.is_not_found() => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Creates the directory of the next generation and returns its name.
    async fn new_generation(&self, old: Option<&Path>) -> Result<PathBuf, HostError> {
        let number = |name: &str| name.strip_prefix(GENERATION)?.parse::<u64>().ok();
        let mut next = old.and_then(|old| number(old.to_str()?)).map_or(1, |present| present + 1);
        loop {
            let name = PathBuf::from(format!("{GENERATION}{next:06}"));
            let path = self.dir.join(&name);
            match self.host.make_dir(&path, 0o755).await {
                Ok(()) => {
                    let changed = self.host.chmod(&path, 0o755).await;
                    if changed.is_err() {
                        let _ = self.host.remove_dir(&path).await;
                    }
                    return changed.map(|()| name);
                }
                // Left by a crash, perhaps while it was written.
                Err(error) if error.is_exists() => next += 1,
                Err(error) => return Err(error),
            }
        }
    }

    async fn fill(&self, new: &Path, ownership: Option<OwnershipChange>) -> Result<(), HostError> {
        let root = self.dir.join(new);
        for (path, file) in self.files {
            let full = root.join(path);
            if let Some(parent) = full.parent().filter(|parent| *parent != root) {
                self.host.make_dir_all(parent, 0o777).await?;
            }
            self.host.write_file(&full, file.content.reveal(), file.mode).await?;
            self.host.chmod(&full, file.mode).await?;
            if file.owner.is_some() {
                self.host.lchown(&full, file.owner, None).await?;
            }
        }
        match ownership {
            Some(change) => self.host.change_ownership(self.dir, change, &WalkProgress::new()).await,
            None => Ok(()),
        }
    }

    async fn switch(&self, new: &Path) -> Result<(), HostError> {
        let tmp = self.dir.join(DATA_TMP);
        match self.host.remove_file(&tmp).await {
            Err(error) if !error.is_not_found() => return Err(error),
            _ => {}
        }
        self.host.symlink(new, &tmp).await?;
        let renamed = self.host.rename(&tmp, &self.dir.join(DATA)).await;
        if renamed.is_err() {
            let _ = self.host.remove_file(&tmp).await;
        }
        renamed
    }

    /// Creates the visible names that are missing.
    async fn link(&self) -> Result<(), HostError> {
        let mut linked = BTreeSet::new();
        for (path, file) in self.files {
            let top = path.components().next().expect("a cleaned path has an element").as_os_str();
            if !linked.insert(top) {
                continue;
            }
            let link = self.dir.join(top);
            match self.host.symlink(&Path::new(DATA).join(top), &link).await {
                // The name exists already. If it is another file, that stays.
                Err(error) if error.is_exists() => continue,
                made => made?,
            }
            if file.owner.is_some() {
                self.host.lchown(&link, file.owner, None).await?;
            }
        }
        Ok(())
    }

    /// Removes the visible names that are no longer in the payload.
    async fn unlink(&self, stale: &BTreeSet<PathBuf>) -> Result<(), HostError> {
        for name in stale.iter().filter(|path| path.components().count() == 1) {
            match self.host.remove_file(&self.dir.join(name)).await {
                Err(error) if !error.is_not_found() => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}

/// Why the files could not be replaced. The old files are still shown.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteError {
    #[error("invalid path: {defect}: {path}")]
    BadPath { path: String, defect: &'static str },
    /// A file operation failed.
    #[error("cannot write the files of the volume")]
    Host(#[from] HostError),
}

impl fmt::Debug for Writer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").field("dir", &self.dir).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_stays_below_the_volume_and_out_of_the_writers_names() {
        let cleaned = |path: &str| clean_path(path).map_err(|error| error.to_string());
        for (path, short) in
            [("a", "a"), ("a/b", "a/b"), ("./a//b/", "a/b"), ("a/..b", "a/..b"), (".a", ".a")]
        {
            assert_eq!(cleaned(path).unwrap(), Path::new(short), "{path}");
        }
        let (long, deep) = ("x".repeat(256), "x/".repeat(2049));
        for path in ["", "/a", "..", "a/../b", "..data", "..a/b", ".", "./", "a\0", &long, &deep] {
            assert!(cleaned(path).is_err(), "{path:?}");
        }
    }
}
