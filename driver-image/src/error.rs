//! Errors of images, each with a hint.

use std::io;
use std::path::PathBuf;

/// Why an image cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    #[error("there is no image `{image}`")]
    Missing { image: PathBuf },
    #[error("cannot read the image `{image}`")]
    Read {
        image: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(
        "`{image}` is no image that can be read: neither an OCI image layout, nor an archive of `docker save`, nor a \
         tarball of a root file system"
    )]
    Unknown { image: PathBuf },
    /// A directory is given, and it is none of an OCI image layout.
    #[error("the directory `{image}` is not an OCI image layout: it has no `index.json`")]
    NoLayout { image: PathBuf },
    #[error("the image `{image}` is for {found}, and this machine is {machine}")]
    OtherMachine {
        image: PathBuf,
        /// The platforms that it has.
        found: String,
        machine: String,
    },
    #[error("`{image}` contains {count} images, of which only one can be meant")]
    Several { image: PathBuf, count: usize },
    /// A document or a layer that the image names is not in it.
    #[error("the image `{image}` is not complete: `{name}` is not in it")]
    NoBlob { image: PathBuf, name: String },
    #[error("the image `{image}` is damaged: `{name}` does not have its digest {digest}")]
    Damaged { image: PathBuf, name: String, digest: String },
    #[error("cannot understand `{name}` of the image `{image}`")]
    Document {
        image: PathBuf,
        name: String,
        #[source]
        source: io::Error,
    },
    #[error("the image `{image}` contains the entry `{entry}`, which leaves its root")]
    Leaves { image: PathBuf, entry: String },
    #[error("the image `{image}` has more than {limit} unpacked, which is the limit")]
    TooLarge { image: PathBuf, limit: String },
    #[error("cannot unpack the image `{image}`: `{place}` is full")]
    Full { image: PathBuf, place: PathBuf },
    #[error("cannot unpack `{entry}` of the image `{image}`")]
    Entry {
        image: PathBuf,
        entry: String,
        #[source]
        source: io::Error,
    },
    /// The caller gave up.
    #[error("the image `{image}` is no longer wanted")]
    Unwanted { image: PathBuf },
}

impl ImageError {
    /// A hint for the user, in one line.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Missing { .. } => {
                "`docker save my-driver -o FILE` or `skopeo copy docker://my-driver oci:DIR` writes one"
            }
            Self::Unknown { .. } => "it may be compressed with gzip or zstd, and with nothing else",
            Self::NoLayout { .. } => {
                "an image that is unpacked already is a root: `root = \"DIR\"` in the manifest"
            }
            Self::OtherMachine { machine, .. } => {
                return Some(format!("build or pull it with `--platform linux/{machine}`"));
            }
            Self::Several { .. } => "save the driver's image alone",
            Self::NoBlob { .. } | Self::Damaged { .. } => "copy or save it again",
            Self::Leaves { .. } => {
                "build it again without this entry; nothing was written outside of its root"
            }
            Self::TooLarge { .. } => {
                "unpack it yourself, and name the directory: `root = \"DIR\"` in the manifest"
            }
            Self::Full { .. } => "make room there, or let TMPDIR name another directory",
            Self::Read { .. } | Self::Document { .. } | Self::Entry { .. } | Self::Unwanted { .. } => {
                return None;
            }
        };
        Some(hint.to_owned())
    }

    /// Whether the machine is the reason, and not the image.
    pub fn is_of_the_machine(&self) -> bool {
        matches!(self, Self::Full { .. })
    }
}
