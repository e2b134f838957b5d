//! An image: opened from a file or a directory, and unpacked layer by layer.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::budget::{Budget, Limits};
use crate::compression::decompressed;
use crate::digest::Digest;
use crate::error::ImageError;
use crate::files::{Contents, Files, Layer};
use crate::layer::{self, LayerError};
use crate::root::Root;
use crate::store::Store;
use crate::{layout, saved};

/// An image that was found to be one. Its layers are checked when they are unpacked.
pub struct Image {
    path: PathBuf,
    store: Store,
    contents: Contents,
    limits: Limits,
}

/// How an image says that it is started.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Start {
    /// The program with its first arguments, which a caller's arguments follow.
    pub entrypoint: Vec<String>,
    /// Arguments in place of which a caller may give others; the whole command line if there is no entrypoint.
    pub arguments: Vec<String>,
    pub env: BTreeMap<String, String>,
    pub directory: Option<String>,
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Image")
            .field("path", &self.path)
            .field("id", &self.contents.id)
            .finish_non_exhaustive()
    }
}

impl Image {
    /// Opens an image, unless `is_unwanted` becomes true.
    ///
    /// # Errors
    /// When there is none, or it is not for this machine, or a document of it is missing or damaged.
    pub fn open(path: &Path, limits: Limits, is_unwanted: &dyn Fn() -> bool) -> Result<Self, ImageError> {
        let budget = Budget::new(limits, is_unwanted);
        let store = store(path, &budget)?;
        let files = Files { path, store: &store };
        let contents = if store.has(layout::INDEX) && (store.has("oci-layout") || !store.has(saved::MANIFEST))
        {
            layout::contents(&files)?
        } else if store.has(saved::MANIFEST) {
            saved::contents(&files)?
        } else {
            tarball(&files)?
        };
        Ok(Self { path: path.to_owned(), store, contents, limits })
    }

    /// A name for its content: images of the same content have the same.
    pub fn id(&self) -> &str {
        &self.contents.id
    }

    pub fn start(&self) -> Start {
        let Some(config) = self.contents.config.as_ref().and_then(|config| config.config().as_ref()) else {
            return Start::default();
        };
        let words = |words: &Option<Vec<String>>| words.clone().unwrap_or_default();
        let env = words(config.env());
        let variable =
            |text: String| text.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
        Start {
            entrypoint: words(config.entrypoint()),
            arguments: words(config.cmd()),
            env: env.into_iter().filter_map(variable).collect(),
            directory: config.working_dir().clone().filter(|directory| !directory.is_empty()),
        }
    }

    /// Unpacks it into an empty directory, unless `is_unwanted` becomes true.
    ///
    /// # Errors
    /// When a layer is missing or damaged, or cannot be written. What was unpacked by then stays in the directory.
    pub fn unpack(&self, into: &Path, is_unwanted: &dyn Fn() -> bool) -> Result<(), ImageError> {
        let budget = Budget::new(self.limits, is_unwanted);
        let root = Root::open(into).map_err(|source| self.files().read_error(source))?;
        if self.contents.config.is_none() {
            let data = self.store.whole().ok_or_else(|| self.files().unknown())?;
            return self.unpack_layer(data, &root, into, &budget);
        }
        for layer in &self.contents.layers {
            self.check(layer, &budget)?;
            let data = self.files().blob(&layer.name)?;
            self.unpack_layer(data, &root, into, &budget)?;
        }
        match self.start().directory {
            // As runtimes do.
            Some(directory) => root
                .directory(Path::new(&directory))
                .map(drop)
                .map_err(|source| ImageError::Entry { image: self.path.clone(), entry: directory, source }),
            None => Ok(()),
        }
    }

    /// Compares a layer with its digest.
    fn check(&self, layer: &Layer, budget: &Budget<'_>) -> Result<(), ImageError> {
        let files = self.files();
        let data = files.blob(&layer.name)?;
        let (found, expected) = match (&layer.of_blob, &layer.of_content) {
            (Some(expected), _) => (Digest::of(budget.reader(data)), expected),
            (None, Some(expected)) => {
                let content = decompressed(data).map(|content| budget.reader(content));
                (content.and_then(Digest::of), expected)
            }
            (None, None) => return Ok(()),
        };
        match found {
            Ok(found) if found == *expected => Ok(()),
            Err(_) if budget.is_unwanted() => Err(ImageError::Unwanted { image: self.path.clone() }),
            Err(_) if budget.is_exhausted() => Err(self.too_large()),
            // A compressed layer that is damaged cannot be decompressed.
            Ok(_) | Err(_) => Err(files.damaged(&layer.name, expected)),
        }
    }

    fn unpack_layer(
        &self,
        data: Box<dyn Read + '_>,
        root: &Root,
        into: &Path,
        budget: &Budget<'_>,
    ) -> Result<(), ImageError> {
        let image = self.path.clone();
        let data = decompressed(data).map_err(|source| self.files().read_error(source))?;
        layer::unpack(budget.reader(data), root, budget).map_err(|error| match error {
            LayerError::Leaves { entry } => ImageError::Leaves { image, entry },
            LayerError::Entry { .. } if budget.is_unwanted() => ImageError::Unwanted { image },
            LayerError::Entry { .. } if budget.is_exhausted() => self.too_large(),
            LayerError::Entry { source, .. }
                if matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) =>
            {
                ImageError::Full { image, place: into.to_owned() }
            }
            LayerError::Entry { entry, source } => ImageError::Entry { image, entry, source },
        })
    }

    fn too_large(&self) -> ImageError {
        ImageError::TooLarge { image: self.path.clone(), limit: self.limits.words() }
    }

    fn files(&self) -> Files<'_> {
        Files { path: &self.path, store: &self.store }
    }
}

fn store(path: &Path, budget: &Budget<'_>) -> Result<Store, ImageError> {
    let image = || path.to_owned();
    if path.is_dir() {
        let store = Store::Directory(path.to_owned());
        return if store.has(layout::INDEX) {
            Ok(store)
        } else {
            Err(ImageError::NoLayout { image: image() })
        };
    }
    match Store::archive(path, budget) {
        Ok(store) if store.is_empty() => Err(ImageError::Unknown { image: image() }),
        Ok(store) => Ok(store),
        Err(_) if budget.is_unwanted() => Err(ImageError::Unwanted { image: image() }),
        Err(_) if budget.is_exhausted() => {
            Err(ImageError::TooLarge { image: image(), limit: budget.limits().words() })
        }
        Err(error) => Err(match error.kind() {
            io::ErrorKind::NotFound => ImageError::Missing { image: image() },
            io::ErrorKind::StorageFull => ImageError::Full { image: image(), place: std::env::temp_dir() },
            io::ErrorKind::PermissionDenied => ImageError::Read { image: image(), source: error },
            // An archive ends early, or is none.
            _ => ImageError::Unknown { image: image() },
        }),
    }
}

/// The contents of a tarball that is a root file system.
fn tarball(files: &Files<'_>) -> Result<Contents, ImageError> {
    let data = files.store.whole().ok_or_else(|| files.unknown())?;
    let digest = Digest::of(data).map_err(|source| files.read_error(source))?;
    Ok(Contents { id: digest.hex().to_owned(), layers: vec![], config: None })
}

#[cfg(test)]
mod tests;
