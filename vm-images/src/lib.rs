//! What a guest is made of, and how it is booted.
//!
//! A guest is a kernel from a Debian package and one initramfs: no disk image, no distribution, no shell, no
//! network, and no root, neither to build it nor to boot it. In the order in which they are used:
//!
//! - [`images`] knows the kernels by name, version and checksum (`images.toml`);
//! - [`fetch`] brings their packages into the [`cache`] with the system's package client;
//! - [`deb`] unpacks them, [`kernel`] takes the image out, [`modules`] puts kernel modules into loading order, [`elf`] finds the libraries a
//!   program needs;
//! - [`initramfs`] writes all of it as one archive, and [`outfit`] says what goes into the guests of this product;
//! - [`qemu`] boots it, and tells a machine that can use KVM from one that cannot;
//! - [`protocol`] is what both sides say over the virtio ports, and [`guest`] is PID 1 inside.
//!
//! This crate knows nothing of drivers, cases or volumes: a guest runs the programs it is told to run.

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
mod unpack;
