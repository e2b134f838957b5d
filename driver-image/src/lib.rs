//! A driver's container image: reads it from an OCI image layout, an archive of `docker save` or a tarball of a root file
//! system, and unpacks it into a directory. Starts nothing and needs no network.
//!
//! An image is not trusted: no name and no link in it leads out of the directory, and it unpacks to a limited size.
//! Documents and layers are compared with their digests, which finds damage; a tarball has none.

mod budget;
mod compression;
mod digest;
mod error;
mod files;
mod headers;
mod image;
mod layer;
mod layout;
mod root;
mod saved;
mod store;

pub use budget::Limits;
pub use error::ImageError;
pub use image::{Image, Start};

/// The version of what an image unpacks to, for names of its unpacked files. A change of that raises it.
pub const UNPACKING: u32 = 1;
