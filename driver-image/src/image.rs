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
            layout::contents(&files, &budget)?
        } else if store.has(saved::MANIFEST) {
            saved::contents(&files)?
        } else {
            tarball(&files, &Budget::new(limits, is_unwanted))?
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
        // Each byte is read twice.
        let pass = || Budget::new(self.limits, is_unwanted);
        let (checking, budget) = (pass(), pass());
        let root = Root::open(into).map_err(|source| self.files().read_error(source))?;
        if self.contents.config.is_none() {
            let data = self.store.whole().ok_or_else(|| self.files().unknown())?;
            return self.unpack_layer(data, &root, into, &budget);
        }
        for layer in &self.contents.layers {
            self.check(layer, &checking)?;
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
            Err(error) => Err(match budget.ended(&self.path) {
                Some(ended) => ended,
                // A compressed layer that is damaged cannot be decompressed.
                None if is_of_the_data(&error) => files.damaged(&layer.name, expected),
                None => files.read_error(error),
            }),
            Ok(_) => Err(files.damaged(&layer.name, expected)),
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
            LayerError::Entry { entry, source } => match budget.ended(&self.path) {
                Some(ended) => ended,
                None if is_full(&source) => ImageError::Full { image, place: into.to_owned() },
                None => ImageError::Entry { image, entry, source },
            },
        })
    }

    fn files(&self) -> Files<'_> {
        Files { path: &self.path, store: &self.store }
    }
}

fn store(path: &Path, budget: &Budget<'_>) -> Result<Store, ImageError> {
    let image = || path.to_owned();
    if path.is_dir() {
        let store = Store::directory(path).map_err(|source| ImageError::Read { image: image(), source })?;
        return if store.has(layout::INDEX) {
            Ok(store)
        } else {
            Err(ImageError::NoLayout { image: image() })
        };
    }
    match Store::archive(path, budget) {
        Ok(store) if store.is_empty() => Err(ImageError::Unknown { image: image() }),
        Ok(store) => Ok(store),
        Err(error) => Err(match budget.ended(path) {
            Some(ended) => ended,
            None => not_opened(path, error),
        }),
    }
}

/// The error of a file that cannot be opened as an archive.
fn not_opened(path: &Path, error: io::Error) -> ImageError {
    let image = path.to_owned();
    match error.kind() {
        io::ErrorKind::NotFound => ImageError::Missing { image },
        _ if is_full(&error) => ImageError::Full { image, place: std::env::temp_dir() },
        // An archive ends early, or is none.
        _ if is_of_the_data(&error) => ImageError::Unknown { image },
        _ => ImageError::Read { image, source: error },
    }
}

/// Whether what was read is the reason of an error, and not the machine.
fn is_of_the_data(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidData, InvalidInput, Other, UnexpectedEof};
    // Decompression reports damaged data as invalid input, and the kernel means something else by that.
    let is_of_a_decoder = matches!(error.kind(), UnexpectedEof | InvalidData | InvalidInput | Other);
    is_of_a_decoder && error.raw_os_error().is_none()
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// The contents of a tarball that is a root file system.
fn tarball(files: &Files<'_>, budget: &Budget<'_>) -> Result<Contents, ImageError> {
    let data = files.store.whole().ok_or_else(|| files.unknown())?;
    let digest = Digest::of(budget.reader(data))
        .map_err(|source| budget.ended(files.path).unwrap_or_else(|| files.read_error(source)))?;
    Ok(Contents { id: digest.hex().to_owned(), layers: vec![], config: None })
}

#[cfg(test)]
mod tests;
