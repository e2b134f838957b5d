//! The remains of a volume: files that have its name in their path or backed its device, and open descriptors of
//! such files. Reads directories and links only.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

/// The names that identify a volume: a name of digits alone may be part of any path.
pub(super) fn identifying<'a>(names: impl IntoIterator<Item = &'a String>) -> Vec<&'a str> {
    let is_number = |name: &str| name.bytes().all(|byte| byte.is_ascii_digit());
    names.into_iter().map(String::as_str).filter(|name| !is_number(name)).collect()
}

/// The files and directories below `top` that have one of `names` in their file name, without the content of such a
/// directory, and the `backings` that exist below `top`.
pub(super) fn files(top: &Path, names: &[&str], backings: &BTreeSet<PathBuf>) -> Vec<String> {
    let exists_below = |path: &&PathBuf| path.starts_with(top) && path.symlink_metadata().is_ok();
    let mut found: Vec<_> =
        backings.iter().filter(exists_below).map(|path| format!("`{}`", path.display())).collect();
    let mut todo = vec![top.to_owned()];
    while let Some(directory) = todo.pop() {
        // An entry that is removed meanwhile does not count.
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            if contains_name(&entry.file_name(), names) {
                found.push(format!("`{}`", entry.path().display()));
            } else if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                todo.push(entry.path());
            }
        }
    }
    found.sort();
    found.dedup();
    found
}

/// The files below `top` that a process has open, and that have one of `names` in their path or are `backings`.
pub(super) fn open(pid: i32, top: &Path, names: &[&str], backings: &BTreeSet<PathBuf>) -> Vec<PathBuf> {
    let links = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = links.filter_map(|link| fs::read_link(link.path()).ok()).collect();
    // The kernel appends ` (deleted)` to the link of a file that was removed.
    let is_backing = |path: &Path| {
        let text = path.to_string_lossy();
        backings.contains(Path::new(text.strip_suffix(" (deleted)").unwrap_or(&text)))
    };
    found.retain(|path| {
        path.strip_prefix(top).is_ok_and(|below| is_backing(path) || contains_name(below.as_os_str(), names))
    });
    found.sort();
    found.dedup();
    found
}

/// Whether a text contains one of the names as a whole word.
fn contains_name(text: &OsStr, names: &[&str]) -> bool {
    let text = text.to_string_lossy();
    let is_word = |(at, name): (usize, &str)| {
        let (before, after) = (text[..at].chars().next_back(), text[at + name.len()..].chars().next());
        [before, after].into_iter().flatten().all(|letter| !letter.is_alphanumeric())
    };
    names.iter().any(|name| text.match_indices(name).any(is_word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topmost_file_and_open_file_of_a_volume_are_found() {
        let ground = tempfile::tempdir().unwrap();
        let volume = ground.path().join("volumes/vol-0123456");
        fs::create_dir_all(&volume).unwrap();
        fs::write(volume.join("vol-0123456.img"), "").unwrap();
        fs::write(ground.path().join("journal"), "vol-0123456").unwrap();
        let (names, none) = (["vol-0123456"], BTreeSet::new());
        let backings = BTreeSet::from([volume.join("vol-0123456.img"), ground.path().join("gone")]);
        assert_eq!(files(&volume, &[], &backings).len(), 1);
        assert_eq!(files(ground.path(), &names, &none), [format!("`{}`", volume.display())]);
        let image = fs::File::open(volume.join("vol-0123456.img")).unwrap();
        fs::remove_dir_all(&volume).unwrap();
        assert_eq!(files(ground.path(), &names, &none), Vec::<String>::new());
        let pid = i32::try_from(std::process::id()).unwrap();
        let held = open(pid, ground.path(), &names, &none);
        assert_eq!(open(pid, ground.path(), &[], &backings), held);
        assert!(held.len() == 1 && held[0].to_string_lossy().ends_with(" (deleted)"), "{held:?}");
        drop(image);
        assert!(
            contains_name(OsStr::new("v0.img"), &["v0"]) && !contains_name(OsStr::new("v01-xv0"), &["v0"])
        );
        assert_eq!(identifying(&["17".to_owned(), "v0".to_owned()]), ["v0"]);
        assert_eq!(open(pid, ground.path(), &names, &none), Vec::<PathBuf>::new());
    }
}
