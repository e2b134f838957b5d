//! Looking around inside a container, as its user. Reads; asks the kernel about writing without doing it.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD};

use super::view::{Content, Kind, MountSight, Sight};
use crate::observe::{self, Device, Mount};

/// More than any volume of a case holds, and few enough to be read.
const MOST: usize = 300;

/// Everything below these paths.
pub(super) fn look(paths: &[PathBuf]) -> io::Result<Vec<Sight>> {
    let table = fs::read("/proc/self/mountinfo")?;
    let table = observe::parse_mountinfo(&table).map_err(io::Error::other)?;
    let mut seen = Vec::new();
    for path in paths {
        add(path, 0, &table, &mut seen);
    }
    Ok(seen)
}

fn add(path: &Path, depth: usize, table: &[Mount], seen: &mut Vec<Sight>) {
    if seen.len() >= MOST {
        return;
    }
    let mount = table.iter().rfind(|mount| mount.target == path);
    // A device has no mount of its own here, even if it was bound.
    let sight = match fs::symlink_metadata(path) {
        Ok(found) => Sight {
            path: path.to_owned(),
            depth,
            kind: kind(path, &found),
            mode: found.permissions().mode() & 0o7777,
            uid: found.uid(),
            gid: found.gid(),
            mount: mount.map(|mount| of_mount(path, mount)),
        },
        Err(error) => unseen(path, depth, &error),
    };
    let is_dir = sight.kind == Kind::Directory;
    seen.push(sight);
    if is_dir {
        add_children(path, depth, table, seen);
    }
}

fn add_children(path: &Path, depth: usize, table: &[Mount], seen: &mut Vec<Sight>) {
    let children = fs::read_dir(path).and_then(|entries| {
        let paths = entries.map(|entry| entry.map(|entry| entry.path()));
        paths.collect::<io::Result<Vec<PathBuf>>>()
    });
    match children {
        Ok(mut children) => {
            children.sort();
            // Every new ext file system has one; it is not content of the volume.
            children.retain(|child| !child.ends_with("lost+found"));
            for child in children {
                add(&child, depth + 1, table, seen);
            }
        }
        Err(error) => seen.push(unseen(&path.join("…"), depth + 1, &error)),
    }
}

fn kind(path: &Path, found: &fs::Metadata) -> Kind {
    let kind = found.file_type();
    let device = || Device::from_raw(found.rdev()).to_string();
    if kind.is_dir() {
        Kind::Directory
    } else if kind.is_symlink() {
        Kind::Link(fs::read_link(path).unwrap_or_default())
    } else if kind.is_block_device() {
        Kind::Block(device())
    } else if kind.is_char_device() {
        Kind::Char(device())
    } else if kind.is_socket() {
        Kind::Socket
    } else if kind.is_fifo() {
        Kind::Fifo
    } else {
        Kind::File(content(path, found.len()))
    }
}

fn content(path: &Path, length: u64) -> Content {
    if length > 64 {
        return Content::Bytes(length);
    }
    let mut text = String::new();
    match File::open(path).and_then(|file| file.take(64).read_to_string(&mut text)) {
        Ok(_) => Content::Text(text),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Content::Bytes(length),
        Err(error) => Content::Unreadable(word(&error)),
    }
}

fn of_mount(path: &Path, mount: &Mount) -> MountSight {
    // For the effective user, as for an open: EROFS comes before EACCES.
    let access = match rustix::fs::accessat(CWD, path, Access::WRITE_OK, AtFlags::EACCESS) {
        Ok(()) => "rw".to_owned(),
        Err(rustix::io::Errno::ROFS) => "ro".to_owned(),
        Err(error) => word(&error.into()),
    };
    let whole = mount.root == Path::new("/") && ["tmpfs", "hugetlbfs"].contains(&mount.fstype.as_str());
    let telling = |option: &&str| ["size=", "pagesize="].iter().any(|name| option.starts_with(name));
    let options: String = mount.super_opts.split(',').filter(telling).map(|o| format!(" {o}")).collect();
    let tags: Vec<&str> = mount.propagation.split(' ').collect();
    let has = |kind: &str| tags.iter().any(|tag| tag.starts_with(kind));
    let propagation = match (has("shared:"), has("master:")) {
        (true, _) => "shared",
        (false, true) => "slave",
        (false, false) => "",
    };
    MountSight {
        access,
        memory: whole.then(|| format!("{}{options}", mount.fstype)),
        propagation: propagation.to_owned(),
    }
}

fn unseen(path: &Path, depth: usize, error: &io::Error) -> Sight {
    let kind = Kind::Unseen(word(error));
    Sight { path: path.to_owned(), depth, kind, mode: 0, uid: 0, gid: 0, mount: None }
}

/// `EACCES` and the like.
fn word(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(number) => format!("{:?}", nix::errno::Errno::from_raw(number)),
        None => error.to_string(),
    }
}
