//! Files and directories of a run: their owner's alone, with any umask, and never written through a link.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

/// Makes a directory and those above it that are missing.
///
/// # Errors
/// When one cannot be made.
pub fn directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).recursive(true).create(path)
}

/// Replaces the file or link at a path by a new file.
///
/// # Errors
/// When the old one cannot be removed, or another process makes a new one at once.
pub fn create(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// Opens a file to read it and to append to it, and makes it if need be. A link is refused.
///
/// # Errors
/// When it cannot be opened.
pub fn append(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).append(true).read(true).mode(0o600).custom_flags(libc::O_NOFOLLOW).open(path)
}

/// Replaces the file or link at a path by a new file with this text.
///
/// # Errors
/// When it cannot be made or written.
pub fn write(path: &Path, text: impl AsRef<[u8]>) -> io::Result<()> {
    create(path)?.write_all(text.as_ref())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn link_in_the_place_of_a_file_is_replaced_or_refused() {
        let directory = tempfile::tempdir().unwrap();
        let (precious, link) = (directory.path().join("precious"), directory.path().join("results.json"));
        fs::write(&precious, "precious").unwrap();
        symlink(&precious, &link).unwrap();
        assert!(append(&link).is_err());
        write(&link, "results").unwrap();
        assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
        assert_eq!(fs::read_to_string(&link).unwrap(), "results");
        append(&link).unwrap().write_all(b", more").unwrap();
        assert_eq!(fs::read_to_string(&link).unwrap(), "results, more");
    }

    #[test]
    fn modes_keep_others_out() {
        let top = tempfile::tempdir().unwrap();
        let (made, file) = (top.path().join("a/b"), top.path().join("a/b/file"));
        directory(&made).unwrap();
        write(&file, "x").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&top.path().join("a")), mode(&made), mode(&file)), (0o700, 0o700, 0o600));
    }
}
