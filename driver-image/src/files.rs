//! The documents and layers of an image by their names: read from the store, held to their digests, and errors that name
//! the image.

use std::io::{self, Read};
use std::path::Path;

use oci_spec::image::{Arch, ImageConfiguration, Os};
use serde::de::DeserializeOwned;

use crate::digest::Digest;
use crate::error::ImageError;
use crate::store::Store;

/// The parts of an image.
pub(crate) struct Contents {
    /// The digest that everything in it hangs on.
    pub(crate) id: String,
    /// From the lowest to the highest; none for a tarball, which is one itself.
    pub(crate) layers: Vec<Layer>,
    pub(crate) config: Option<ImageConfiguration>,
}

/// A layer by its name in the image, with the digest of the file or of its decompressed content.
pub(crate) struct Layer {
    pub(crate) name: String,
    pub(crate) of_blob: Option<Digest>,
    pub(crate) of_content: Option<Digest>,
}

/// The files of an image, with errors that name it.
pub(crate) struct Files<'a> {
    pub(crate) path: &'a Path,
    pub(crate) store: &'a Store,
}

impl<'a> Files<'a> {
    /// Reads a document and compares it with its digest, if one is known.
    pub(crate) fn document<T: DeserializeOwned>(
        &self,
        name: &str,
        expected: Option<&Digest>,
    ) -> Result<T, ImageError> {
        let bytes = self.bytes(name)?;
        if let Some(expected) = expected {
            let found = Digest::of(bytes.as_slice()).map_err(|source| self.read_error(source))?;
            if found != *expected {
                return Err(self.damaged(name, expected));
            }
        }
        serde_json::from_slice(&bytes).map_err(|error| self.not_understood(name, &error.to_string()))
    }

    pub(crate) fn digest(&self, name: &str) -> Result<Digest, ImageError> {
        Digest::of(self.bytes(name)?.as_slice()).map_err(|source| self.read_error(source))
    }

    fn bytes(&self, name: &str) -> Result<Vec<u8>, ImageError> {
        let found = self.store.document(name).map_err(|source| self.read_error(source))?;
        found.ok_or_else(|| self.no_blob(name))
    }

    pub(crate) fn blob(&self, name: &str) -> Result<Box<dyn Read + 'a>, ImageError> {
        let found = self.store.open(name).map_err(|source| self.read_error(source))?;
        found.ok_or_else(|| self.no_blob(name))
    }

    /// Refuses an image that is made for another machine.
    pub(crate) fn check_machine(&self, config: &ImageConfiguration) -> Result<(), ImageError> {
        match *config.os() == Os::Linux && *config.architecture() == Arch::default() {
            true => Ok(()),
            false => Err(self.other_machine(format!("{}/{}", config.os(), config.architecture()))),
        }
    }

    pub(crate) fn other_machine(&self, found: String) -> ImageError {
        ImageError::OtherMachine { image: self.path.to_owned(), found, machine: Arch::default().to_string() }
    }

    pub(crate) fn several(&self, count: usize) -> ImageError {
        ImageError::Several { image: self.path.to_owned(), count }
    }

    pub(crate) fn unknown(&self) -> ImageError {
        ImageError::Unknown { image: self.path.to_owned() }
    }

    pub(crate) fn not_understood(&self, name: &str, why: &str) -> ImageError {
        let source = io::Error::other(why.to_owned());
        ImageError::Document { image: self.path.to_owned(), name: name.to_owned(), source }
    }

    fn no_blob(&self, name: &str) -> ImageError {
        ImageError::NoBlob { image: self.path.to_owned(), name: name.to_owned() }
    }

    pub(crate) fn damaged(&self, name: &str, digest: &Digest) -> ImageError {
        ImageError::Damaged {
            image: self.path.to_owned(),
            name: name.to_owned(),
            digest: digest.hex().to_owned(),
        }
    }

    pub(crate) fn read_error(&self, source: io::Error) -> ImageError {
        ImageError::Read { image: self.path.to_owned(), source }
    }
}
