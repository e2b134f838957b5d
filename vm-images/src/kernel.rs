//! A kernel taken out of its packages: the image that is booted, and its modules.

use std::io;
use std::path::{Path, PathBuf};

use crate::deb::{self, DebError};
use crate::modules::Modules;

/// The parts of a kernel that a guest needs.
#[derive(Debug, Default)]
pub struct KernelFiles {
    /// The compressed image, as the emulator takes it.
    pub image: Vec<u8>,
    pub modules: Modules,
    /// The output of `uname -r`.
    pub release: String,
}

/// An error while a kernel is taken out of its packages.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// A package could not be read.
    #[error(transparent)]
    Deb(#[from] DebError),
    /// There is no kernel image in them.
    #[error("there is no kernel image in {}", shown(packages))]
    NoImage { packages: Vec<PathBuf> },
}

fn shown(packages: &[PathBuf]) -> String {
    packages.iter().map(|path| format!("`{}`", path.display())).collect::<Vec<_>>().join(", ")
}

impl KernelFiles {
    /// Reads a kernel from the packages it comes in.
    pub fn from_packages(packages: &[PathBuf]) -> Result<Self, KernelError> {
        let mut kernel = Self::default();
        for package in packages {
            let wanted = |path: &str| image_release(path).is_some() || Modules::wants(path);
            deb::read(package, wanted, |member| {
                match image_release(&member.path) {
                    Some(release) => {
                        kernel.release = release.to_owned();
                        kernel.image = member.data;
                    }
                    None => kernel.modules.take(&member.path, member.data),
                }
                Ok::<_, io::Error>(())
            })?;
        }
        if kernel.image.is_empty() {
            return Err(KernelError::NoImage { packages: packages.to_owned() });
        }
        Ok(kernel)
    }
}

/// `boot/vmlinuz-RELEASE`, or, since 7.x, `usr/lib/modules/RELEASE/vmlinuz`.
fn image_release(path: &str) -> Option<&str> {
    path.strip_prefix("boot/vmlinuz-").or_else(|| {
        let dir = Path::new(path.strip_suffix("/vmlinuz")?);
        dir.file_name()?.to_str()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_image_is_found_in_its_old_and_its_new_place() {
        assert_eq!(image_release("boot/vmlinuz-6.1.0-56-cloud-amd64"), Some("6.1.0-56-cloud-amd64"));
        assert_eq!(image_release("usr/lib/modules/7.2.12/vmlinuz"), Some("7.2.12"));
        assert_eq!(image_release("boot/System.map-6.1"), None);
    }
}
