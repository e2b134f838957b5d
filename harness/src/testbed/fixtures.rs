//! The disks, the volume groups, the iSCSI targets and the export that a manifest asks for, there before `prepare` and
//! the driver, and gone after both.
//!
//! Makes image files beside the driver's directory, attaches loop devices, runs mkfs and LVM, mounts, and serves iSCSI
//! and NFS.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::Layout;
use crate::facts;
use crate::filesystem::{Filesystem, FilesystemError};
use crate::guard::{CloseError, Guard};
use crate::iscsi::{Image, Initiator, IscsiError, Target};
use crate::loop_device::{LoopDevice, LoopOptions};
use crate::manifest::{Disk, IscsiTarget, Manifest, Placeholders};
use crate::nfs_export::{NfsError, NfsExport};
use crate::volume_group::{GroupError, VolumeGroup};

/// A fixture that cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FixtureError {
    #[error("cannot make `{path}`")]
    Make {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot make the disk at `{path}`")]
    Disk {
        path: PathBuf,
        #[source]
        source: FilesystemError,
    },
    #[error("cannot wait for the disks and the export of the manifest")]
    Thread(#[source] tokio::task::JoinError),
    /// The machine has one NFS server, which would go on after a run that is killed.
    #[error("cannot export `{path}` by NFS on this machine, whose one NFS server is not a case's own")]
    NotInAGuest { path: PathBuf },
    /// The names of volume groups are the machine's, and cases beside this one have the same.
    #[error("cannot make the volume group `{name}` on this machine, where its name is not a case's own")]
    GroupNotInAGuest { name: String },
    #[error("cannot make the volume group `{name}`")]
    Group {
        name: String,
        #[source]
        source: GroupError,
    },
    /// Targets, and the sessions with them, are the machine's, and it may be an initiator already.
    #[error("cannot make the iSCSI target `{iqn}` on this machine, whose initiator is not a case's own")]
    TargetNotInAGuest { iqn: String },
    #[error("cannot make the iSCSI target `{iqn}`")]
    Target {
        iqn: String,
        #[source]
        source: IscsiError,
    },
    #[error("cannot start the initiator for the iSCSI targets")]
    Initiator(#[source] IscsiError),
    #[error("the disks have {wanted} MiB, and there is room for {room} MiB")]
    NoRoom { wanted: u64, room: u64 },
    #[error("cannot export `{path}` by NFS")]
    Export {
        path: PathBuf,
        #[source]
        source: NfsError,
    },
}

impl FixtureError {
    /// A hint for the user, in one line.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Disk { source: FilesystemError::Make { program, .. }, .. } => {
                Some(format!("is `{program}` installed? `volproof doctor` says what is missing"))
            }
            Self::Disk { source: FilesystemError::Device(_), .. } => {
                Some("disks need root and loop devices: `sudo`, or `--tier vm`".to_owned())
            }
            Self::Disk { source: FilesystemError::Mount(_), .. } => Some(
                "does the file system of this kernel have these `options`? `dmesg` may say more".to_owned(),
            ),
            Self::NotInAGuest { .. } => Some("`--tier vm` runs it in a guest, which has a server".to_owned()),
            Self::GroupNotInAGuest { .. } | Self::TargetNotInAGuest { .. } => {
                Some("`--tier vm` runs it in a guest".to_owned())
            }
            Self::Group { source: GroupError::Run { .. }, .. } => {
                Some("is `lvm` installed (package lvm2)? A guest has the one of this machine".to_owned())
            }
            Self::Target { source: IscsiError::Module { .. }, .. }
            | Self::Initiator(IscsiError::Module { .. }) => {
                Some("this kernel has no iSCSI: `--kernel 6.12` runs it on another".to_owned())
            }
            Self::Group { .. } | Self::Target { .. } | Self::Initiator(_) => {
                Some("`dmesg` may say more".to_owned())
            }
            Self::NoRoom { room, .. } => Some(format!("give the disks a `size`, {room} MiB in all at most")),
            Self::Make { .. } | Self::Thread(_) | Self::Export { .. } => None,
        }
    }
}

/// The fixtures of a testbed.
#[derive(Debug, Default)]
pub struct Fixtures {
    export: Option<NfsExport>,
    targets: Vec<Target>,
    /// The targets log out by it.
    initiator: Option<Initiator>,
    groups: Vec<VolumeGroup>,
    disks: Vec<Filesystem>,
}

impl Fixtures {
    /// Makes what the manifest asks for. A disk that was there before the power failed keeps its files.
    ///
    /// # Errors
    /// When something cannot be made; nothing of it stays.
    pub fn make(manifest: &Manifest, layout: &Layout, node: &str) -> Result<Self, FixtureError> {
        let placeholders = Placeholders::new(layout, node, false);
        let place = |path: &str| PathBuf::from(placeholders.fill(path));
        check_room(manifest, layout)?;
        let mut fixtures = Self::default();
        for (number, wanted) in manifest.disks.iter().enumerate() {
            fixtures.disks.push(disk(wanted, &image(layout, number), &place(&wanted.path))?);
        }
        for wanted in &manifest.volume_groups {
            let image = group_image(layout, &wanted.name);
            fixtures.groups.push(volume_group(&wanted.name, &image, wanted.bytes())?);
        }
        if !manifest.iscsi_targets.is_empty() {
            fixtures.serve_targets(&manifest.iscsi_targets, layout)?;
        }
        if let Some(path) = &manifest.nfs_export {
            fixtures.export = Some(export(place(path))?);
        }
        Ok(fixtures)
    }

    fn serve_targets(&mut self, targets: &[IscsiTarget], layout: &Layout) -> Result<(), FixtureError> {
        for (number, wanted) in targets.iter().enumerate() {
            self.targets.push(target(wanted, number, layout)?);
        }
        let log = targets_dir(layout).join("iscsid.log");
        self.initiator = Some(Initiator::start(&log).map_err(FixtureError::Initiator)?);
        Ok(())
    }

    /// The numbers (`st_dev`) of the file systems on its disks.
    pub fn devices(&self) -> Vec<u64> {
        self.disks.iter().filter_map(|disk| Some(fs::metadata(disk.path()).ok()?.dev())).collect()
    }

    /// Ends the sessions with its targets, as a reboot does.
    fn log_out(&self) -> Result<(), CloseError> {
        self.targets.iter().try_for_each(Target::log_out)
    }

    /// Ends the sessions with the targets of a testbed while it stands.
    pub(super) async fn log_out_of(held: &tokio::sync::Mutex<Self>) -> Result<(), CloseError> {
        let mut held = held.lock().await;
        let fixtures = std::mem::take(&mut *held);
        let ended = tokio::task::spawn_blocking(move || (fixtures.log_out(), fixtures)).await;
        let (done, fixtures) = ended.map_err(|error| CloseError::Os {
            what: "wait for the end of iSCSI sessions".to_owned(),
            source: io::Error::other(error),
        })?;
        *held = fixtures;
        done
    }

    /// Takes everything down.
    ///
    /// # Errors
    /// When the driver has left something on it; the first error.
    pub fn close(&mut self) -> Result<(), CloseError> {
        // An export may lie on a disk.
        let mut done = self.export.take().map_or(Ok(()), Guard::close);
        while let Some(target) = self.targets.pop() {
            done = done.and(target.close());
        }
        self.initiator = None;
        while let Some(group) = self.groups.pop() {
            done = done.and(group.close());
        }
        // A disk may be mounted on another.
        while let Some(disk) = self.disks.pop() {
            done = done.and(disk.close());
        }
        done
    }
}

impl Drop for Fixtures {
    fn drop(&mut self) {
        // The order of `close`, and not that of the fields.
        let _ = self.close();
    }
}

/// The image of the disk with this number.
fn image(layout: &Layout, number: usize) -> PathBuf {
    layout.state().join("disks").join(number.to_string())
}

/// The image of the disk of a volume group.
fn group_image(layout: &Layout, name: &str) -> PathBuf {
    layout.state().join("volume-groups").join(name)
}

/// The directory with the images of targets.
fn targets_dir(layout: &Layout) -> PathBuf {
    layout.state().join("iscsi-targets")
}

/// The images of the disks of a target.
fn unit_images<'a>(target: &'a IscsiTarget, layout: &Layout) -> impl Iterator<Item = PathBuf> + use<'a> {
    let directory = targets_dir(layout).join(&target.iqn);
    (1..=target.units).map(move |unit| directory.join(unit.to_string()))
}

/// The images are on the file system of the case's state. A driver that fills its disk must find the disk full, and not
/// that file system. An image from before the power failed has its room already.
fn check_room(manifest: &Manifest, layout: &Layout) -> Result<(), FixtureError> {
    let state = layout.state();
    let failed = |errno: nix::Error| FixtureError::Make { path: state.to_owned(), source: errno.into() };
    let found = nix::sys::statvfs::statvfs(state).map_err(failed)?;
    let room = (found.blocks_available() * found.fragment_size()) >> 20;
    let new = manifest.disks.iter().enumerate().filter(|(number, _)| !image(layout, *number).exists());
    let groups = manifest.volume_groups.iter().filter(|group| !group_image(layout, &group.name).exists());
    let units = manifest.iscsi_targets.iter().flat_map(|target| {
        unit_images(target, layout).filter(|image| !image.exists()).map(|_| target.bytes())
    });
    let new = new.map(|(_, disk)| disk.bytes()).chain(groups.map(|group| group.bytes())).chain(units);
    match new.fold(0, u64::saturating_add) >> 20 {
        wanted if wanted > room => Err(FixtureError::NoRoom { wanted, room }),
        _ => Ok(()),
    }
}

/// Opens the image of a disk, made and sized if it is missing. Says whether it is new.
fn open_image(image: &Path, bytes: u64) -> Result<(File, bool), FixtureError> {
    let open = || {
        image.parent().map_or(Ok(()), fs::create_dir_all)?;
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(image)?;
        let is_new = file.metadata()?.len() == 0;
        file.set_len(bytes)?;
        Ok((file, is_new))
    };
    open().map_err(|source| FixtureError::Make { path: image.to_owned(), source })
}

fn volume_group(name: &str, image: &Path, bytes: u64) -> Result<VolumeGroup, FixtureError> {
    if !facts::in_guest() {
        return Err(FixtureError::GroupNotInAGuest { name: name.to_owned() });
    }
    let (file, is_new) = open_image(image, bytes)?;
    let made = match is_new {
        true => VolumeGroup::create(name, file),
        false => VolumeGroup::activate(name, file),
    };
    made.map_err(|source| FixtureError::Group { name: name.to_owned(), source })
}

fn target(wanted: &IscsiTarget, number: usize, layout: &Layout) -> Result<Target, FixtureError> {
    let iqn = wanted.iqn.clone();
    if !facts::in_guest() {
        return Err(FixtureError::TargetNotInAGuest { iqn });
    }
    let image = |path: PathBuf| {
        let bytes = wanted.bytes();
        open_image(&path, bytes)?;
        Ok(Image { path, bytes })
    };
    let images: Vec<Image> = unit_images(wanted, layout).map(image).collect::<Result<_, FixtureError>>()?;
    Target::serve(&wanted.iqn, number, &images).map_err(|source| FixtureError::Target { iqn, source })
}

fn disk(wanted: &Disk, image: &Path, target: &Path) -> Result<Filesystem, FixtureError> {
    let made = fs::create_dir_all(target);
    made.map_err(|source| FixtureError::Make { path: target.to_owned(), source })?;
    let (file, is_new) = open_image(image, wanted.bytes())?;
    let made = || {
        let device = LoopDevice::over(file, &LoopOptions::default())?;
        if is_new {
            wanted.fs_type.make(&device.path())?;
        }
        Filesystem::mount(device, wanted.fs_type, target, &wanted.options.join(","))
    };
    made().map_err(|source| FixtureError::Disk { path: target.to_owned(), source })
}

fn export(path: PathBuf) -> Result<NfsExport, FixtureError> {
    if !facts::in_guest() {
        return Err(FixtureError::NotInAGuest { path });
    }
    NfsExport::start(&path, None).map_err(|source| FixtureError::Export { path, source })
}
