//! The cache of packages and built guests.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

/// The directory of this product below the user's cache.
#[derive(Debug, Clone)]
pub struct Cache {
    root: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// Neither `XDG_CACHE_HOME` nor `HOME` names a place.
    #[error("there is no directory for the cache: neither XDG_CACHE_HOME nor HOME is set")]
    NoHome,
    /// A directory or file of the cache could not be used.
    #[error("cannot use `{path}`")]
    Io {
        /// The file or directory.
        path: PathBuf,
        source: io::Error,
    },
    /// Another user could have put a program there, which would be started.
    #[error(
        "cannot use the cache `{path}`: it belongs to another user; set XDG_CACHE_HOME, or call sudo without -E"
    )]
    Foreign { path: PathBuf },
    /// A package is not the one that was asked for.
    #[error("`{path}` has checksum {found}, expected {expected}")]
    Checksum {
        path: PathBuf,
        found: String,
        /// The one in `images.toml`.
        expected: String,
    },
}

impl Cache {
    /// The user's cache: `$XDG_CACHE_HOME/volproof`, else `~/.cache/volproof`.
    pub fn of_user() -> Result<Self, CacheError> {
        let base = match (std::env::var_os("XDG_CACHE_HOME"), std::env::var_os("HOME")) {
            (Some(cache), _) if !cache.is_empty() => PathBuf::from(cache),
            (_, Some(home)) if !home.is_empty() => Path::new(&home).join(".cache"),
            _ => return Err(CacheError::NoHome),
        };
        let cache = Self::at(base.join("volproof"));
        cache.check_owner(nix::unistd::geteuid().as_raw())?;
        Ok(cache)
    }

    /// Refuses a cache that is another user's: kernels, snapshots and programs in it are started.
    fn check_owner(&self, user: u32) -> Result<(), CacheError> {
        // If the cache does not exist yet, the owner of its parent counts.
        for path in self.root.ancestors().take(2) {
            match fs::symlink_metadata(path) {
                Ok(found) if found.uid() != user => {
                    return Err(CacheError::Foreign { path: path.to_owned() });
                }
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(source) => return Err(CacheError::Io { path: path.to_owned(), source }),
            }
        }
        Ok(())
    }

    /// A cache at a place of the caller's choice.
    pub fn at(root: PathBuf) -> Self {
        Self { root }
    }

    /// The path of a directory of the cache.
    pub fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// A directory of the cache, made if it is missing.
    pub fn dir(&self, name: &str) -> Result<PathBuf, CacheError> {
        let path = self.path(name);
        fs::create_dir_all(&path).map_err(|source| CacheError::Io { path: path.clone(), source })?;
        Ok(path)
    }

    /// The package of that name, if it is here and its checksum is right. A file with another checksum is
    /// removed: it would be refused for ever.
    pub fn package(&self, file_name: &str, sha256: &str) -> Result<Option<PathBuf>, CacheError> {
        let path = self.dir("debs")?.join(file_name);
        match verify(&path, sha256) {
            Ok(()) => Ok(Some(path)),
            Err(CacheError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(CacheError::Checksum { .. }) => {
                fs::remove_file(&path).map_err(|source| CacheError::Io { path, source })?;
                Ok(None)
            }
            Err(other) => Err(other),
        }
    }
}

/// Holds a file to its checksum.
pub fn verify(path: &Path, sha256: &str) -> Result<(), CacheError> {
    let found = checksum(path).map_err(|source| CacheError::Io { path: path.to_owned(), source })?;
    if found == sha256 {
        return Ok(());
    }
    Err(CacheError::Checksum { path: path.to_owned(), found, expected: sha256.to_owned() })
}

/// SHA-256 of a file, in hex.
pub fn checksum(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            return Ok(hex(&hash.finalize()));
        }
        hash.update(&buffer[..read]);
    }
}

/// Bytes in lowercase hex.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn a_package_with_another_checksum_is_thrown_away() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::at(dir.path().to_owned());
        let path = cache.dir("debs").unwrap().join("a.deb");
        fs::write(&path, "").unwrap();
        assert_eq!(cache.package("a.deb", EMPTY).unwrap(), Some(path.clone()));
        fs::write(&path, "broken off").unwrap();
        assert_eq!(cache.package("a.deb", EMPTY).unwrap(), None);
        assert!(!path.exists());
    }

    #[test]
    fn cache_of_another_user_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let own = fs::metadata(dir.path()).unwrap().uid();
        for root in [dir.path().to_owned(), dir.path().join("volproof")] {
            let cache = Cache::at(root);
            assert!(cache.check_owner(own).is_ok());
            assert!(matches!(cache.check_owner(own + 1), Err(CacheError::Foreign { .. })));
        }
    }
}
