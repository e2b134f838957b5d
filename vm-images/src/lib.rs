//! Builds and boots guests.
//!
//! A guest is a kernel from a Debian package and one initramfs: no disk image, no distribution, no shell, no network.
//! It is built and booted without root. The modules, in the order in which they are used:
//!
//! - [`images`] lists the kernels by name, version and checksum (`images.toml`);
//! - [`fetch`] brings their packages into the [`cache`] with the system's package client;
//! - [`deb`] unpacks them, [`kernel`] takes the image out, [`modules`] puts kernel modules into loading order, [`elf`]
//!   finds the libraries a program needs;
//! - [`initramfs`] writes all of it as one archive, and [`outfit`] lists the contents of this product's guests;
//! - [`qemu`] boots it, and finds out whether the machine can use KVM;
//! - [`protocol`] has the messages over the virtio ports, and [`guest`] is PID 1 of the guest.
//!
//! This crate knows no drivers, cases or volumes: a guest runs any program.

pub mod cache;
pub mod deb;
mod descriptors;
pub mod elf;
pub mod fetch;
pub mod guest;
pub mod images;
pub mod initramfs;
pub mod kernel;
pub mod modules;
pub mod outfit;
pub mod protocol;
pub mod qemu;
pub mod root_disk;
mod unpack;
