//! Uses of files beside reading and writing: each is tried once, in one directory.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

use nix::fcntl::{Flock, FlockArg};

/// A use of files that does not work as on a node's own file systems, with its result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) action: &'static str,
    pub(crate) outcome: String,
}

/// The number of tries to start a program that another process has open for writing: a fork of this one may, for a moment.
const BUSY: usize = 50;

type Try = fn(&Path) -> io::Result<bool>;

const TRIES: [(&str, Try); 9] = [
    ("creating a file exclusively twice", exclusive),
    ("executing a file", execute),
    ("keeping the setgid bit of a directory for what is made in it", inherit_group),
    ("renaming over a file that is open", rename_over_open),
    ("reading back through a hard link", hard_link),
    ("following a symbolic link", symbolic_link),
    ("names of 255 bytes", long_name),
    ("listing a directory of 300 files", many_names),
    ("syncing a directory", sync_directory),
];

/// Tries each, in a directory of this name that is made and removed. What a file system does not have at all is not
/// in the answer.
pub(crate) fn refused(root: &Path, name: &str) -> io::Result<Vec<Refused>> {
    let place = root.join(name);
    fs::create_dir(&place)?;
    let mut refused = Vec::new();
    for (action, works) in TRIES {
        let outcome = match works(&place) {
            Ok(true) => continue,
            Ok(false) => "it has another result".to_owned(),
            Err(error) if super::is_unsupported(&error) => continue,
            Err(error) => error.to_string(),
        };
        refused.push(Refused { action, outcome });
    }
    fs::remove_dir_all(&place)?;
    Ok(refused)
}

/// Whether a lock that is held through one path is seen through another path of the same volume.
pub(crate) fn lock_is_seen(one: &Path, two: &Path) -> io::Result<bool> {
    let open =
        |path: &Path| OpenOptions::new().write(true).create(true).truncate(false).open(path.join("lock"));
    let held = Flock::lock(open(one)?, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| errno)?;
    let is_refused = Flock::lock(open(two)?, FlockArg::LockExclusiveNonblock).is_err();
    drop(held);
    let is_free = Flock::lock(open(two)?, FlockArg::LockExclusiveNonblock).is_ok();
    Ok(is_refused && is_free)
}

fn exclusive(place: &Path) -> io::Result<bool> {
    let create = || OpenOptions::new().write(true).create_new(true).open(place.join("once"));
    create()?;
    Ok(create().is_err_and(|error| error.kind() == ErrorKind::AlreadyExists))
}

fn execute(place: &Path) -> io::Result<bool> {
    let program = place.join("program");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o755).open(&program)?;
    file.write_all(b"#!/bin/sh\nexit 7\n")?;
    drop(file);
    for _ in 0..BUSY {
        match Command::new(&program).status() {
            Err(error) if error.kind() == ErrorKind::ExecutableFileBusy => std::thread::yield_now(),
            done => return Ok(done?.code() == Some(7)),
        }
    }
    Err(ErrorKind::ExecutableFileBusy.into())
}

fn inherit_group(place: &Path) -> io::Result<bool> {
    let directory = place.join("group");
    fs::create_dir(&directory)?;
    // If the group cannot be changed, as in a user namespace, there is no other group to inherit.
    if std::os::unix::fs::chown(&directory, None, Some(4242)).is_err() {
        return Ok(true);
    }
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o2775))?;
    File::create(directory.join("file"))?;
    Ok(fs::metadata(directory.join("file"))?.gid() == 4242)
}

fn rename_over_open(place: &Path) -> io::Result<bool> {
    let (old, new) = (place.join("old"), place.join("new"));
    fs::write(&old, "old")?;
    fs::write(&new, "new")?;
    let mut open = File::open(&old)?;
    fs::rename(&new, &old)?;
    let mut text = String::new();
    open.read_to_string(&mut text)?;
    Ok(text == "old" && fs::read_to_string(&old)? == "new" && !new.exists())
}

fn hard_link(place: &Path) -> io::Result<bool> {
    let (one, two) = (place.join("one"), place.join("two"));
    fs::write(&one, "before")?;
    match fs::hard_link(&one, &two) {
        // Some file systems without links answer EPERM.
        Err(error) if error.kind() == ErrorKind::PermissionDenied => return Ok(true),
        linked => linked?,
    }
    fs::write(&one, "after")?;
    Ok(fs::read_to_string(&two)? == "after" && fs::metadata(&two)?.nlink() == 2)
}

fn symbolic_link(place: &Path) -> io::Result<bool> {
    fs::write(place.join("end"), "end")?;
    std::os::unix::fs::symlink("end", place.join("link"))?;
    Ok(fs::read_to_string(place.join("link"))? == "end")
}

fn long_name(place: &Path) -> io::Result<bool> {
    let path = place.join("n".repeat(255));
    fs::write(&path, "long")?;
    Ok(fs::read_to_string(&path)? == "long")
}

fn many_names(place: &Path) -> io::Result<bool> {
    const MANY: usize = 300;
    let directory = place.join("many");
    fs::create_dir(&directory)?;
    for number in 0..MANY {
        File::create(directory.join(format!("file-{number}")))?;
    }
    Ok(fs::read_dir(&directory)?.count() == MANY)
}

fn sync_directory(place: &Path) -> io::Result<bool> {
    File::open(place)?.sync_all().map(|()| true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_system_of_this_machine_refuses_nothing_and_shows_locks() {
        let root = std::env::temp_dir().join(format!("volproof-uses-{}", std::process::id()));
        fs::create_dir_all(&root).unwrap();
        assert_eq!(refused(&root, "tried").unwrap(), []);
        assert!(lock_is_seen(&root, &root).unwrap());
        fs::create_dir(root.join("other")).unwrap();
        assert!(!lock_is_seen(&root, &root.join("other")).unwrap(), "a lock of another file is not seen");
        fs::remove_dir_all(&root).unwrap();
    }
}
