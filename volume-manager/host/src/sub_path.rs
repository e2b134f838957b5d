//! Relative paths that have to stay below a directory. Touches nothing.

use std::ffi::OsStr;
use std::io;
use std::path::{Component, Path};

use crate::errno;
use crate::error::{Action, HostError, Result};

/// The names of a relative path. A path with `..` or from the root is refused without looking where it leads:
/// there is no reason to write one.
pub(crate) fn names<'a>(base: &Path, sub: &'a Path) -> Result<Vec<&'a OsStr>> {
    let mut names = Vec::new();
    for component in sub.components() {
        match component {
            Component::Normal(name) => names.push(name),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                return Err(refusal(base, sub, io::Error::from_raw_os_error(errno::EXDEV)));
            }
        }
    }
    Ok(names)
}

/// The error for a failed bounded resolution: [`HostError::Escape`] if the path left `base`.
pub(crate) fn refusal(base: &Path, sub: &Path, error: impl Into<io::Error>) -> HostError {
    let source = error.into();
    match source.raw_os_error() {
        Some(errno::EXDEV | errno::ELOOP) => {
            HostError::Escape { base: base.to_owned(), sub: sub.to_owned(), source }
        }
        _ => HostError::os(Action::Open, base.join(sub), source),
    }
}
