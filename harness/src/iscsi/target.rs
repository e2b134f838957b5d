//! A target with its disks, as a guard. Writes to configfs, runs `iscsiadm` when it is closed.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use super::{IscsiError, initiator, load};
use crate::configfs::Configfs;
use crate::guard::{self, CloseError, Guard};

const MODULES: [&str; 2] = ["target_core_file", "iscsi_target_mod"];

/// The directory of all targets, which stays.
const TARGETS: &str = "target/iscsi";

/// The address at which each target listens. The kernel lets targets share it.
const PORTAL: &str = "127.0.0.1:3260";

/// Any initiator may log in, without a password, and write.
const ATTRIBUTES: [(&str, &str); 4] = [
    ("authentication", "0"),
    ("generate_node_acls", "1"),
    ("cache_dynamic_acls", "1"),
    ("demo_mode_write_protect", "0"),
];

/// A target at 127.0.0.1:3260. When it is closed, the initiator of this machine is logged out of it; the images stay.
#[derive(Debug)]
pub struct Target {
    iqn: String,
    config: Configfs,
    /// Paths in configfs that the target is made of, in the order in which they were made.
    made: Vec<Made>,
}

#[derive(Debug)]
enum Made {
    Directory(String),
    Link(String),
    /// A group of portals that is enabled.
    Enabled(String),
}

/// An image with the size of the disk on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    pub path: PathBuf,
    pub bytes: u64,
}

impl Target {
    /// Serves images as the units 1, 2 and so on. `number` is another one for each target of the machine.
    ///
    /// # Errors
    /// When the kernel has no targets, or refuses this one; nothing of it stays.
    pub fn serve(iqn: &str, number: usize, images: &[Image]) -> Result<Self, IscsiError> {
        load(&MODULES)?;
        let config = Configfs::open().map_err(IscsiError::Configuration)?;
        let mut target = Self { iqn: iqn.to_owned(), config, made: Vec::new() };
        target.build(number, images)?;
        Ok(target)
    }

    /// Ends the sessions of this machine with it, as a reboot does.
    ///
    /// # Errors
    /// When one is left.
    pub fn log_out(&self) -> Result<(), CloseError> {
        initiator::log_out(&self.iqn)
    }

    fn build(&mut self, number: usize, images: &[Image]) -> Result<(), IscsiError> {
        // An error means that another target has made it, or else the next step fails, too.
        let _ = fs::create_dir(self.config.path(TARGETS));
        let (disks, name) = (format!("target/core/fileio_{number}"), format!("{TARGETS}/{}", self.iqn));
        let portals = format!("{name}/tpgt_1");
        for directory in [&disks, &name, &portals] {
            self.directory(directory)?;
        }
        for (key, value) in ATTRIBUTES {
            self.set(&format!("{portals}/attrib/{key}"), value)?;
        }
        for (unit, image) in (1_usize..).zip(images) {
            let disk = format!("{disks}/{unit}");
            self.directory(&disk)?;
            self.back(&disk, &format!("{number:08x}{unit:08x}"), image)?;
            let lun = format!("{portals}/lun/lun_{unit}");
            self.directory(&lun)?;
            self.link(&format!("{lun}/disk"), &disk)?;
        }
        self.directory(&format!("{portals}/np/{PORTAL}"))?;
        self.set(&format!("{portals}/enable"), "1")?;
        self.made.push(Made::Enabled(portals));
        Ok(())
    }

    /// Puts a disk over its image. Programs tell disks from each other by the serial number.
    fn back(&self, disk: &str, serial: &str, image: &Image) -> Result<(), IscsiError> {
        let Image { path, bytes } = image;
        // Buffered: like a disk with a cache, it has written only what the initiator has flushed.
        let parameters = format!("fd_dev_name={},fd_dev_size={bytes},fd_buffered_io=1", path.display());
        self.set(&format!("{disk}/control"), &parameters)?;
        self.set(&format!("{disk}/wwn/vpd_unit_serial"), serial)?;
        self.set(&format!("{disk}/enable"), "1")
    }

    fn directory(&mut self, path: &str) -> Result<(), IscsiError> {
        fs::create_dir(self.config.path(path)).map_err(refused("make", path))?;
        self.made.push(Made::Directory(path.to_owned()));
        Ok(())
    }

    fn link(&mut self, path: &str, to: &str) -> Result<(), IscsiError> {
        symlink(self.config.path(to), self.config.path(path)).map_err(refused("make", path))?;
        self.made.push(Made::Link(path.to_owned()));
        Ok(())
    }

    fn set(&self, path: &str, value: &str) -> Result<(), IscsiError> {
        fs::write(self.config.path(path), value).map_err(refused("set", path))
    }

    fn end(&mut self) -> Result<(), CloseError> {
        if self.made.is_empty() {
            return Ok(());
        }
        // Before the target is gone, of which a session would wait to come back for minutes.
        let logged_out = self.log_out();
        logged_out.and(self.take_down())
    }

    /// Undoes everything, from the last to the first. What cannot be undone keeps what it lies in: the first error.
    fn take_down(&mut self) -> Result<(), CloseError> {
        let mut done = Ok(());
        while let Some(made) = self.made.pop() {
            let (what, path, undone) = match made {
                // Ends the sessions, too, on this side.
                Made::Enabled(path) => {
                    let undone = fs::write(self.config.path(&path).join("enable"), "0");
                    ("disable", path, undone)
                }
                Made::Link(path) => {
                    let undone = fs::remove_file(self.config.path(&path));
                    ("remove", path, undone)
                }
                Made::Directory(path) => {
                    let undone = fs::remove_dir(self.config.path(&path));
                    ("remove", path, undone)
                }
            };
            let what = format!("{what} `{path}` of the iSCSI target");
            done = done.and(undone.map_err(|source| CloseError::Os { what, source }));
        }
        done
    }
}

impl Guard for Target {
    fn close(mut self) -> Result<(), CloseError> {
        self.end()
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let iqn = self.iqn.clone();
        guard::undo(format_args!("the iSCSI target `{iqn}`"), || self.end());
    }
}

fn refused(what: &'static str, path: &str) -> impl FnOnce(io::Error) -> IscsiError {
    let path = path.to_owned();
    move |source| IscsiError::Setting { what, path, source }
}
