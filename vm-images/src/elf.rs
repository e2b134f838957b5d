//! The shared libraries a program needs, found without running it.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use goblin::elf::Elf;

/// The loader's default directories on this architecture.
const LIBRARY_DIRS: &[&str] = &[
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
    "/usr/local/lib",
];

/// An error while a program's libraries are looked for.
#[derive(Debug, thiserror::Error)]
pub enum ElfError {
    /// A file could not be read.
    #[error("cannot read `{path}`")]
    Io {
        /// The program or library.
        path: PathBuf,
        source: io::Error,
    },
    /// The file is a damaged ELF file.
    #[error("`{path}` is not a sound program")]
    Damaged {
        /// The program or library.
        path: PathBuf,
        source: goblin::error::Error,
    },
    /// A library is nowhere.
    #[error("`{path}` needs `{library}`, which is in no library directory")]
    NoLibrary {
        /// The program or library that needs it.
        path: PathBuf,
        library: String,
    },
}

/// The loader and every library that a program needs, directly or not: where it must be in the guest, and
/// its content. A script, or a program linked statically, needs nothing.
pub fn libraries(program: &Path) -> Result<BTreeMap<PathBuf, Vec<u8>>, ElfError> {
    let mut found = BTreeMap::new();
    let mut todo = vec![program.to_owned()];
    while let Some(path) = todo.pop() {
        let bytes = read(&path)?;
        if !bytes.starts_with(b"\x7fELF") {
            continue;
        }
        let elf = Elf::parse(&bytes).map_err(|source| ElfError::Damaged { path: path.clone(), source })?;
        if let Some(loader) = elf.interpreter {
            add(&mut found, Path::new(loader), &mut todo)?;
        }
        let origin = path.parent().unwrap_or(Path::new("/")).display().to_string();
        let own: Vec<String> = elf
            .runpaths
            .iter()
            .chain(&elf.rpaths)
            .flat_map(|paths| paths.split(':'))
            .map(|dir| dir.replace("${ORIGIN}", &origin).replace("$ORIGIN", &origin))
            .collect();
        for library in &elf.libraries {
            let place = own
                .iter()
                .map(String::as_str)
                .chain(LIBRARY_DIRS.iter().copied())
                .map(|dir| Path::new(dir).join(library))
                .find(|place| place.exists())
                .ok_or_else(|| ElfError::NoLibrary { path: path.clone(), library: (*library).to_owned() })?;
            add(&mut found, &place, &mut todo)?;
        }
    }
    Ok(found)
}

/// The program without symbols and line tables, which are behind all loaded parts. Any other file than a 64-bit program
/// stays as it is.
pub fn stripped(mut program: Vec<u8>) -> Vec<u8> {
    const SECTIONS_AT: std::ops::Range<usize> = 0x28..0x30;
    const SECTIONS_COUNT: std::ops::Range<usize> = 0x3c..0x40;
    let loaded = match Elf::parse(&program) {
        Ok(elf) if elf.is_64 => {
            elf.program_headers.iter().map(|part| part.p_offset.saturating_add(part.p_filesz)).max()
        }
        _ => None,
    };
    if let Some(loaded) = loaded.and_then(|loaded| usize::try_from(loaded).ok())
        && (SECTIONS_COUNT.end..program.len()).contains(&loaded)
    {
        program.truncate(loaded);
        program[SECTIONS_AT].fill(0);
        program[SECTIONS_COUNT].fill(0);
    }
    program
}

fn add(
    found: &mut BTreeMap<PathBuf, Vec<u8>>,
    place: &Path,
    todo: &mut Vec<PathBuf>,
) -> Result<(), ElfError> {
    if !found.contains_key(place) {
        found.insert(place.to_owned(), read(place)?);
        todo.push(place.to_owned());
    }
    Ok(())
}

fn read(path: &Path) -> Result<Vec<u8>, ElfError> {
    fs::read(path).map_err(|source| ElfError::Io { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_needs_its_loader_and_the_c_library() {
        let found = libraries(&std::env::current_exe().unwrap()).unwrap();
        let names: Vec<_> = found.keys().map(|path| path.display().to_string()).collect();
        assert!(names.iter().any(|name| name.contains("/ld-linux")), "{names:?}");
        assert!(names.iter().any(|name| name.contains("/libc.so.6")), "{names:?}");
    }

    #[test]
    fn a_program_runs_without_its_symbols() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let me = std::env::current_exe().unwrap();
        let whole = fs::read(&me).unwrap();
        let (size, less) = (whole.len(), stripped(whole));
        assert!(less.len() < size);
        let copy = dir.path().join("copy");
        fs::write(&copy, less).unwrap();
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).unwrap();
        let listed = std::process::Command::new(&copy).arg("--list").output().unwrap();
        assert!(String::from_utf8_lossy(&listed.stdout).contains("a_program_runs_without_its_symbols"));
        assert_eq!(stripped(b"#!/bin/sh".to_vec()), b"#!/bin/sh");
    }

    #[test]
    fn a_script_needs_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("run");
        fs::write(&script, "#!/bin/sh\n").unwrap();
        assert!(libraries(&script).unwrap().is_empty());
    }
}
