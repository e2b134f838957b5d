//! A driver's container image: reads it from an OCI image layout, an archive of `docker save` or a tarball of a root file
//! system, and unpacks it into a directory. Starts nothing and needs no network.
//!
//! An image is not trusted: each of its documents and layers is held to its digest, and no name and no link in it leads
//! out of the directory.

mod budget;
mod compression;
mod digest;
mod error;
mod files;
mod image;
mod layer;
mod layout;
mod root;
mod saved;
mod store;

pub use budget::Limits;
pub use error::ImageError;
pub use image::{Image, Start};
