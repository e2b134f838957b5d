//! Lists a directory with few system calls: journals do so around each call. Reads directories.

use std::ffi::{OsStr, OsString};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir};

/// What a directory says of an entry. It is what lies there under a mount, too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) name: OsString,
    pub(crate) kind: FileType,
    pub(crate) inode: u64,
}

/// The entries of a directory; none if it cannot be read.
pub(crate) fn list(directory: &Path) -> Vec<Listed> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(directory) = rustix::fs::open(directory, flags, Mode::empty()) else { return Vec::new() };
    let mut buffer = [MaybeUninit::uninit(); 8 << 10];
    let mut entries = RawDir::new(&directory, &mut buffer);
    let mut listed = Vec::new();
    while let Some(Ok(entry)) = entries.next() {
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let kind = match entry.file_type() {
            FileType::Unknown => rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW)
                .map_or(FileType::Unknown, |stat| FileType::from_raw_mode(stat.st_mode)),
            kind => kind,
        };
        let name = OsStr::from_bytes(name.to_bytes()).to_owned();
        listed.push(Listed { name, kind, inode: entry.ino() });
    }
    listed
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, symlink};

    use super::*;

    #[test]
    fn directory_of_many_entries_is_listed_whole() {
        let scratch = tempfile::tempdir().unwrap();
        let path = |name: &str| scratch.path().join(name);
        fs::create_dir(path("directory")).unwrap();
        symlink("nowhere", path("link")).unwrap();
        let files: Vec<String> = (0..1000).map(|number| format!("file-{number:04}")).collect();
        files.iter().for_each(|name| fs::write(path(name), "").unwrap());
        let mut listed = list(scratch.path());
        listed.sort_by(|one, other| one.name.cmp(&other.name));
        let kinds: Vec<FileType> = listed.iter().map(|entry| entry.kind).collect();
        assert_eq!(kinds[..2], [FileType::Directory, FileType::RegularFile]);
        assert_eq!(kinds[1001], FileType::Symlink);
        assert!(listed[1..1001].iter().map(|entry| entry.name.to_str().unwrap()).eq(&files));
        let inode = |entry: &Listed| fs::symlink_metadata(scratch.path().join(&entry.name)).unwrap().ino();
        assert!(listed.iter().all(|entry| entry.inode == inode(entry)));
        assert_eq!(list(&path("missing")), []);
        assert_eq!(list(&path("file-0000")), []);
    }
}
