//! Debian packages as archives: the members of their data part, one after the other.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::unpack::unpacked;

/// An error while a package is read.
#[derive(Debug, thiserror::Error)]
pub enum DebError {
    /// The file could not be read, or its archive is damaged.
    #[error("cannot read package `{path}`")]
    Io { path: PathBuf, source: io::Error },
    /// There is no data part of a kind we can read.
    #[error("`{path}` is not a Debian package: it has no data.tar, data.tar.xz or data.tar.zst")]
    NoData { path: PathBuf },
}

/// One regular file of a package.
#[derive(Debug)]
pub struct Member {
    /// Its path without a leading `./` or `/`.
    pub path: String,
    pub data: Vec<u8>,
}

/// Hands every regular file that `wanted` accepts to `each`.
pub fn read(
    package: &Path,
    wanted: impl Fn(&str) -> bool,
    mut each: impl FnMut(Member) -> io::Result<()>,
) -> Result<(), DebError> {
    let io = |source| DebError::Io { path: package.to_owned(), source };
    let mut archive = ar::Archive::new(File::open(package).map_err(io)?);
    while let Some(entry) = archive.next_entry() {
        let entry = entry.map_err(io)?;
        match entry.header().identifier() {
            b"data.tar" | b"data.tar.xz" | b"data.tar.zst" => {
                return unpacked(entry).and_then(|data| members(data, wanted, &mut each)).map_err(io);
            }
            _ => {}
        }
    }
    Err(DebError::NoData { path: package.to_owned() })
}

fn members(
    data: impl Read,
    wanted: impl Fn(&str) -> bool,
    each: &mut impl FnMut(Member) -> io::Result<()>,
) -> io::Result<()> {
    for entry in tar::Archive::new(data).entries()? {
        let mut entry = entry?;
        if !entry.header().entry_type().is_file() {
            continue;
        }
        let path =
            entry.path()?.to_string_lossy().trim_start_matches("./").trim_start_matches('/').to_owned();
        if !wanted(&path) {
            continue;
        }
        let mut data = Vec::with_capacity(usize::try_from(entry.size()).unwrap_or(0));
        entry.read_to_end(&mut data)?;
        each(Member { path, data })?;
    }
    Ok(())
}
