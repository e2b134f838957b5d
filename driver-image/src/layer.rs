//! One layer of an image: an archive whose entries add, replace and hide what the layers below have.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use tar::{Entry, EntryType};

use crate::budget::Budget;
use crate::headers::Headers;
use crate::root::{Attributes, Root};

/// What a file's name begins with that hides another one in lower layers.
const WHITEOUT: &[u8] = b".wh.";

/// The name of a file that hides all that lower layers have in its directory.
const OPAQUE: &[u8] = b".wh..wh..opq";

/// The beginning of names that are of no file of the image.
const RESERVED: &[u8] = b".wh..wh.";

/// Why a layer cannot be unpacked.
#[derive(Debug)]
pub(crate) enum LayerError {
    Leaves { entry: String },
    Entry { entry: String, source: io::Error },
}

/// Unpacks a layer over those that are there.
pub(crate) fn unpack(data: impl Read, root: &Root, budget: &Budget<'_>) -> Result<(), LayerError> {
    let headers = Headers::default();
    let mut archive = tar::Archive::new(headers.reader(data));
    let mut layer = Layer { root, own: BTreeSet::new() };
    let failed = |source| LayerError::Entry { entry: "an entry".to_owned(), source };
    let mut entries = archive.entries().map_err(failed)?;
    while let Some(entry) = headers.limited(|| entries.next()) {
        let mut entry = entry.map_err(failed)?;
        let name = entry.path_bytes().into_owned();
        let shown = String::from_utf8_lossy(&name).into_owned();
        let path = inside(&name).ok_or_else(|| LayerError::Leaves { entry: shown.clone() })?;
        let placed = budget.take_entry(entry.size()).and_then(|()| layer.place(&path, &mut entry));
        match placed {
            Ok(Placed::Inside) => {}
            Ok(Placed::Outside) => return Err(LayerError::Leaves { entry: shown }),
            Err(source) => return Err(LayerError::Entry { entry: shown, source }),
        }
        // What was not needed of it would count as headers of the next one.
        io::copy(&mut entry, &mut io::sink()).map_err(failed)?;
    }
    Ok(())
}

/// A path of an archive below the root; `None` if it leaves that. An absolute one begins at the root.
fn inside(name: &[u8]) -> Option<PathBuf> {
    let mut path = PathBuf::new();
    for part in Path::new(OsStr::from_bytes(name)).components() {
        match part {
            Component::Normal(part) => path.push(part),
            Component::ParentDir => return None,
            _ => {}
        }
    }
    Some(path)
}

/// Whether an entry names only what is below the root.
enum Placed {
    Inside,
    Outside,
}

struct Layer<'a> {
    root: &'a Root,
    /// Paths of this layer with the directories above them, which it does not hide.
    own: BTreeSet<PathBuf>,
}

impl Layer<'_> {
    fn place(&mut self, path: &Path, entry: &mut Entry<'_, impl Read>) -> io::Result<Placed> {
        let name = path.file_name().map_or(&[][..], OsStr::as_bytes);
        if let Some(hidden) = name.strip_prefix(WHITEOUT) {
            return self.hide(path, name, hidden);
        }
        let attributes = attributes(entry)?;
        match entry.header().entry_type() {
            EntryType::Directory => self.root.make_directory(path, attributes)?,
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                self.root.write_file(path, attributes, entry.size(), entry)?;
            }
            EntryType::Symlink => {
                let target = entry.link_name()?.ok_or(io::ErrorKind::InvalidData)?;
                self.root.make_link(path, &target, attributes)?;
            }
            EntryType::Link => {
                let target = entry.link_name_bytes().ok_or(io::ErrorKind::InvalidData)?;
                let Some(target) = inside(&target) else { return Ok(Placed::Outside) };
                self.root.make_name(path, &target)?;
            }
            EntryType::Fifo => self.root.make_pipe(path, attributes)?,
            // A driver has the machine's devices, and an image has no business with others.
            _ => return Ok(Placed::Inside),
        }
        self.own.extend(path.ancestors().map(Path::to_owned));
        Ok(Placed::Inside)
    }

    /// Removes what a whiteout hides.
    fn hide(&self, path: &Path, name: &[u8], hidden: &[u8]) -> io::Result<Placed> {
        let directory = path.parent().unwrap_or(Path::new(""));
        if name == OPAQUE {
            self.hide_all(directory)?;
        } else if matches!(hidden, b"" | b"." | b"..") {
            return Ok(Placed::Outside);
        } else if !name.starts_with(RESERVED) {
            self.root.remove(&directory.join(OsStr::from_bytes(hidden)))?;
        }
        Ok(Placed::Inside)
    }

    /// Removes what lower layers have in a directory.
    fn hide_all(&self, directory: &Path) -> io::Result<()> {
        for (path, is_directory) in self.root.entries(directory)? {
            match (self.own.contains(&path), is_directory) {
                (false, _) => self.root.remove(&path)?,
                (true, true) => self.hide_all(&path)?,
                (true, false) => {}
            }
        }
        Ok(())
    }
}

fn attributes(entry: &Entry<'_, impl Read>) -> io::Result<Attributes> {
    let header = entry.header();
    // A field without a number is read as zero by other programs, too.
    let number =
        |number: io::Result<u64>| number.ok().and_then(|number| u32::try_from(number).ok()).unwrap_or(0);
    Ok(Attributes {
        mode: header.mode()?,
        user: number(header.uid()),
        group: number(header.gid()),
        modified: header.mtime().unwrap_or(0),
    })
}
