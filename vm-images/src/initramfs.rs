//! The root file system of a guest, as one archive that the kernel unpacks into memory.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use cpio::newc::{self, ModeFileType};

use crate::elf::{ElfError, libraries};
use crate::modules::{Module, ModuleError, Modules};

/// The modules that carry the talk with the host, needed by every guest.
pub const TRANSPORT: &[&str] = &["virtio_pci", "virtio_console"];

/// The guest's directory of modules, the file with the loading order of those that it boots with, and the directory with
/// such a file for each module that the kernel loads on demand.
pub(crate) const MODULE_DIR: &str = "/usr/lib/modules";
pub(crate) const MODULE_ORDER: &str = "/usr/lib/modules/order";
pub(crate) const ON_DEMAND: &str = "/usr/lib/modules/on-demand";

/// Directories that are there before PID 1 mounts anything.
const DIRECTORIES: &[&str] = &[
    "dev",
    "etc",
    "mnt",
    "proc",
    "root",
    "run",
    "sys",
    "tmp",
    "usr/bin",
    "usr/sbin",
    "usr/lib",
    "usr/lib64",
    "var/lib",
];

/// Directories that are links into `/usr` now.
const MERGED: &[&str] = &["bin", "sbin", "lib", "lib64"];

/// An error while a guest's root is built.
#[derive(Debug, thiserror::Error)]
pub enum InitramfsError {
    /// A file that is to go into the guest could not be read.
    #[error("cannot put `{path}` into the guest")]
    Read { path: PathBuf, source: io::Error },
    /// A program's libraries could not be found.
    #[error(transparent)]
    Elf(#[from] ElfError),
    /// A module could not be found.
    #[error(transparent)]
    Module(#[from] ModuleError),
    /// The archive could not be written.
    #[error("cannot write the guest's root")]
    Write(#[source] io::Error),
}

/// A root under construction. Every directory is written before what is in it, and every path once.
pub struct Initramfs {
    archive: Vec<u8>,
    written: BTreeSet<PathBuf>,
    next_inode: u32,
}

impl Initramfs {
    /// A root with nothing but directories and the two devices that PID 1 needs to speak.
    pub fn new() -> Result<Self, InitramfsError> {
        let mut root = Self { archive: Vec::new(), written: BTreeSet::new(), next_inode: 1 };
        for directory in DIRECTORIES {
            root.directory(Path::new(directory))?;
        }
        for name in MERGED {
            root.link(Path::new(name), &format!("usr/{name}"))?;
        }
        root.device("dev/console", (5, 1))?;
        root.device("dev/null", (1, 3))?;
        Ok(root)
    }

    /// Puts a program there, with all libraries it needs; a script brings the program that reads it.
    pub fn program(&mut self, from: &Path, to: &Path) -> Result<&mut Self, InitramfsError> {
        if let Some(interpreter) = interpreter(from) {
            for (place, content) in libraries(&interpreter)? {
                self.file(&place, &content, 0o755)?;
            }
            self.copy(&interpreter, &interpreter)?;
        }
        for (place, content) in libraries(from)? {
            self.file(&place, &content, 0o755)?;
        }
        self.copy(from, to)
    }

    /// Puts a file of this machine there, with its mode.
    pub fn copy(&mut self, from: &Path, to: &Path) -> Result<&mut Self, InitramfsError> {
        let read = |source| InitramfsError::Read { path: from.to_owned(), source };
        let mode = fs::metadata(from).map_err(read)?.permissions().mode() & 0o7777;
        let content = fs::read(from).map_err(read)?;
        self.file(to, &content, mode)
    }

    /// Puts a directory of this machine there, with all files in it.
    pub fn tree(&mut self, from: &Path, to: &Path) -> Result<&mut Self, InitramfsError> {
        if !from.is_dir() {
            return self.program(from, to);
        }
        let read = |source| InitramfsError::Read { path: from.to_owned(), source };
        let mut entries: Vec<_> =
            fs::read_dir(from).map_err(read)?.flatten().map(|e| e.file_name()).collect();
        entries.sort();
        for name in entries {
            self.tree(&from.join(&name), &to.join(&name))?;
        }
        Ok(self)
    }

    /// Puts a symbolic link there.
    pub fn link(&mut self, at: &Path, to: &str) -> Result<&mut Self, InitramfsError> {
        let at = settled(at);
        if let Some(parent) = at.parent() {
            self.directory(parent)?;
        }
        self.record(&at, |e| e.mode(0o777).set_mode_file_type(ModeFileType::Symlink), to.as_bytes())?;
        Ok(self)
    }

    /// Puts the named modules there, and all they depend on, to be loaded when the guest comes up.
    pub fn modules(&mut self, all: &Modules, names: &[&str]) -> Result<&mut Self, InitramfsError> {
        self.module_files(all, names, Path::new(MODULE_ORDER))
    }

    /// Puts a module there, and all it depends on, to be loaded when the kernel asks for it.
    pub fn module_on_demand(&mut self, all: &Modules, name: &str) -> Result<&mut Self, InitramfsError> {
        self.module_files(all, &[name], &Path::new(ON_DEMAND).join(name.replace('-', "_")))
    }

    fn module_files(
        &mut self,
        all: &Modules,
        names: &[&str],
        list: &Path,
    ) -> Result<&mut Self, InitramfsError> {
        let order = all.order(names)?;
        for Module { name, object } in &order {
            self.file(&Path::new(MODULE_DIR).join(format!("{name}.ko")), object, 0o644)?;
        }
        let listed: String = order.iter().map(|module| format!("{}\n", module.name)).collect();
        self.file(list, listed.as_bytes(), 0o644)
    }

    /// Adds a file with this content, unless the path exists already.
    pub fn file(&mut self, to: &Path, content: &[u8], mode: u32) -> Result<&mut Self, InitramfsError> {
        let to = settled(to);
        if let Some(parent) = to.parent() {
            self.directory(parent)?;
        }
        self.record(&to, |entry| entry.mode(mode).set_mode_file_type(ModeFileType::Regular), content)?;
        Ok(self)
    }

    pub fn finish(self) -> Result<Vec<u8>, InitramfsError> {
        newc::trailer(self.archive).map_err(InitramfsError::Write)
    }

    fn directory(&mut self, path: &Path) -> Result<(), InitramfsError> {
        let mut so_far = PathBuf::new();
        for part in path.components() {
            so_far.push(part);
            self.record(&so_far, |e| e.mode(0o755).set_mode_file_type(ModeFileType::Directory), b"")?;
        }
        Ok(())
    }

    fn device(&mut self, path: &str, (major, minor): (u32, u32)) -> Result<(), InitramfsError> {
        let device = |entry: newc::Builder| {
            entry.mode(0o600).set_mode_file_type(ModeFileType::Char).rdev_major(major).rdev_minor(minor)
        };
        self.record(Path::new(path), device, b"")
    }

    fn record(
        &mut self,
        path: &Path,
        kind: impl FnOnce(newc::Builder) -> newc::Builder,
        content: &[u8],
    ) -> Result<(), InitramfsError> {
        if path.as_os_str().is_empty() || !self.written.insert(path.to_owned()) {
            return Ok(());
        }
        let entry = kind(newc::Builder::new(&path.to_string_lossy()).ino(self.next_inode).nlink(1));
        self.next_inode += 1;
        let too_big =
            |_| InitramfsError::Write(io::Error::other("a file is larger than an archive can hold"));
        let mut writer = entry.write(&mut self.archive, u32::try_from(content.len()).map_err(too_big)?);
        writer.write_all(content).map_err(InitramfsError::Write)?;
        writer.finish().map_err(InitramfsError::Write)?;
        Ok(())
    }
}

/// The interpreter of a script, from its first line.
fn interpreter(script: &Path) -> Option<PathBuf> {
    let mut start = [0; 256];
    let read = fs::File::open(script).and_then(|mut file| io::Read::read(&mut file, &mut start)).ok()?;
    let line = String::from_utf8_lossy(start[..read].strip_prefix(b"#!")?).into_owned();
    let word = line.lines().next()?.split_whitespace().next()?.to_owned();
    Some(PathBuf::from(word)).filter(|path| path.is_file())
}

/// A path without its root, below `/usr` where the first directory is a link to there.
fn settled(path: &Path) -> PathBuf {
    let path = path.strip_prefix("/").unwrap_or(path);
    let merged = path.components().count() > 1 && MERGED.iter().any(|name| path.starts_with(name));
    if merged { Path::new("usr").join(path) } else { path.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(archive: &[u8]) -> Vec<String> {
        let mut names = Vec::new();
        let mut rest = archive;
        loop {
            let reader = newc::Reader::new(rest).expect("a sound archive");
            if reader.entry().is_trailer() {
                return names;
            }
            names.push(reader.entry().name().to_owned());
            rest = reader.finish().expect("a sound archive");
        }
    }

    #[test]
    fn a_directory_comes_before_what_is_in_it() {
        let mut root = Initramfs::new().unwrap();
        root.file(Path::new("/opt/a/b"), b"x", 0o644).unwrap();
        root.file(Path::new("/opt/a/b"), b"again", 0o644).unwrap();
        root.file(Path::new("/lib/x/y.so"), b"x", 0o644).unwrap();
        root.file(Path::new("/usr/lib/x/y.so"), b"x", 0o644).unwrap();
        let names = names(&root.finish().unwrap());
        let at = |name: &str| names.iter().position(|n| n == name).expect(name);
        assert!(at("opt") < at("opt/a") && at("opt/a") < at("opt/a/b"));
        for once in ["opt/a/b", "usr/lib/x/y.so"] {
            assert_eq!(names.iter().filter(|name| *name == once).count(), 1, "{once}");
        }
    }
}
