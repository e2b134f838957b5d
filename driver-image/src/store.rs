//! The files of an image: a directory, or an archive that is read where it lies.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;

use crate::budget::Budget;
use crate::compression::{decompressed, is_compressed};
use crate::headers::Headers;

/// Without waiting for the writer of a pipe.
const READ: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

/// The most bytes of a document. Documents are read into memory.
const DOCUMENT: u64 = 8 << 20;

/// The most links that are followed from one name.
const LINKS: usize = 8;

#[derive(Debug)]
pub(crate) enum Store {
    Directory(OwnedFd),
    Archive(Archive),
}

/// An archive without compression, and the places of its files.
#[derive(Debug)]
pub(crate) struct Archive {
    file: File,
    members: BTreeMap<String, Member>,
}

#[derive(Debug)]
enum Member {
    File {
        offset: u64,
        size: u64,
    },
    /// The name that a symbolic link leads to.
    Link(String),
}

impl Store {
    pub(crate) fn directory(path: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self::Directory(openat(CWD, path, flags, Mode::empty())?))
    }

    /// Opens a file as an archive. A compressed one is decompressed into a file without a name.
    pub(crate) fn archive(path: &Path, budget: &Budget<'_>) -> io::Result<Self> {
        let mut file = regular(openat(CWD, path, READ, Mode::empty())?)?;
        let mut begin = [0; 8];
        let read = file.read_at(&mut begin, 0)?;
        if is_compressed(&begin[..read]) {
            let mut whole = tempfile::tempfile()?;
            io::copy(&mut budget.reader(decompressed(file)?), &mut whole)?;
            whole.seek(SeekFrom::Start(0))?;
            file = whole;
        }
        Ok(Self::Archive(Archive { members: members(&file, budget)?, file }))
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        match self {
            Self::Directory(directory) => matches!(below(directory, name), Ok(Some(_))),
            Self::Archive(archive) => archive.members.contains_key(name),
        }
    }

    /// Whether there is nothing in it.
    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, Self::Archive(archive) if archive.members.is_empty())
    }

    /// A file of the image; `None` if there is none of that name.
    pub(crate) fn open(&self, name: &str) -> io::Result<Option<Box<dyn Read + '_>>> {
        match self {
            Self::Directory(directory) => {
                Ok(below(directory, name)?.map(|file| -> Box<dyn Read + '_> { Box::new(file) }))
            }
            Self::Archive(archive) => {
                Ok(archive.open(name).map(|part| -> Box<dyn Read + '_> { Box::new(part) }))
            }
        }
    }

    /// A document of the image as bytes.
    pub(crate) fn document(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        let Some(data) = self.open(name)? else { return Ok(None) };
        let mut bytes = Vec::new();
        data.take(DOCUMENT + 1).read_to_end(&mut bytes)?;
        match bytes.len() as u64 > DOCUMENT {
            true => Err(io::Error::other(format!("it has more than {DOCUMENT} bytes"))),
            false => Ok(Some(bytes)),
        }
    }

    /// The whole archive, for an image that is one layer.
    pub(crate) fn whole(&self) -> Option<Box<dyn Read + '_>> {
        match self {
            Self::Directory(_) => None,
            Self::Archive(archive) => Some(Box::new(Part { file: &archive.file, at: 0, end: u64::MAX })),
        }
    }
}

impl Archive {
    fn open(&self, name: &str) -> Option<Part<'_>> {
        let mut name = name.to_owned();
        for _ in 0..LINKS {
            match self.members.get(&name)? {
                Member::File { offset, size } => {
                    return Some(Part { file: &self.file, at: *offset, end: offset + size });
                }
                Member::Link(target) => name.clone_from(target),
            }
        }
        None
    }
}

/// Opens a file of a directory. No link leads out of that.
fn below(directory: &OwnedFd, name: &str) -> io::Result<Option<File>> {
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    match openat2(directory, name, READ, Mode::empty(), resolve) {
        Err(Errno::NOENT) => Ok(None),
        opened => regular(opened?).map(Some),
    }
}

fn regular(file: OwnedFd) -> io::Result<File> {
    let file = File::from(file);
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(io::ErrorKind::Unsupported, "it is not a regular file")),
    }
}

fn members(mut file: &File, budget: &Budget<'_>) -> io::Result<BTreeMap<String, Member>> {
    let mut members = BTreeMap::new();
    let headers = Headers::default();
    let mut archive = tar::Archive::new(headers.reader(&mut file));
    let mut entries = archive.entries_with_seek()?;
    while let Some(entry) = headers.limited(|| entries.next()) {
        let entry = entry?;
        budget.take_entry(0)?;
        let kind = entry.header().entry_type();
        let name = plain(&entry.path()?);
        if kind.is_symlink() {
            // Older archives of `docker save` name a layer that is there twice by a link.
            let target = entry.link_name()?.map(|target| plain(&Path::new(&name).join("..").join(target)));
            members.extend(target.map(|target| (name, Member::Link(target))));
        } else {
            members.insert(name, Member::File { offset: entry.raw_file_position(), size: entry.size() });
        }
    }
    Ok(members)
}

/// A name in an archive without `.` and `..`.
fn plain(path: &Path) -> String {
    let mut parts = Vec::new();
    for part in path.components() {
        match part {
            std::path::Component::Normal(part) => parts.push(part.to_string_lossy().into_owned()),
            std::path::Component::ParentDir => drop(parts.pop()),
            _ => {}
        }
    }
    parts.join("/")
}

/// A part of a file as a reader of its own.
struct Part<'a> {
    file: &'a File,
    at: u64,
    end: u64,
}

impl Read for Part<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.end - self.at).unwrap_or(usize::MAX);
        let length = buffer.len().min(left);
        let read = self.file.read_at(&mut buffer[..length], self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}
