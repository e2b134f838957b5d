//! The volume plugins, one module for each kind of volume; `plugin-api` has the traits that they implement.

mod atomic_writer;
mod config_map;
mod content;
pub mod csi;
pub(crate) mod downward_api;
pub mod empty_dir;
pub mod flex_volume;
pub mod host_path;
pub mod image;
pub mod local;
pub mod nfs;
mod projected;
pub mod registry;
mod secret;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
