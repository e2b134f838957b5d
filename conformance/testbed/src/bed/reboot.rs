//! Reboots the machine, and replaces the driver's container.
//!
//! A reboot ends processes, mounts, loop devices and sessions with iSCSI targets, and removes the files in `/run` and
//! `/tmp`. Disks stay: the node's directory, the driver's own, and what `prepare` of its manifest has made. A replaced
//! container ends the driver and removes its files in its own `/run` and `/tmp`; all mounts stay. No written data is lost,
//! since the unmounts flush it.

use std::fs;
use std::path::{Path, PathBuf};

use harness::loop_device::table::{self, BoundLoop};
use harness::observe;
use nix::mount::{MntFlags, umount2};

use super::{Bed, Result, StepError};

impl Bed {
    /// Replaces the driver's container: kills it, and starts it without the files that only its container had.
    pub(crate) async fn replace_driver(&self) -> Result {
        self.kill_driver().await;
        self.remove_new_files(&self.manifest().host_paths);
        self.start_driver().await.map_err(|error| StepError::of_testbed(&error))
    }

    /// Ends the machine and starts it again: containers, mounts and loop devices are gone, and node and driver start
    /// with the files on disk.
    pub(crate) async fn reboot(&self) -> Result {
        let pods: Vec<String> = self.containers.borrow().keys().cloned().collect();
        for pod in pods {
            self.end_container(&pod).await?;
        }
        self.node.kill().await;
        self.kill_driver().await;
        if let Some(error) = self.journal.act(|| self.unmount_all().err()) {
            return Err(error);
        }
        self.detach_loops()?;
        self.end_sessions().await.map_err(|error| StepError::ours(&error))?;
        self.remove_new_files(&[]);
        self.start_all().await
    }

    /// Removes the files that have come to `/run` and `/tmp`, except below these paths, which the driver has from the machine.
    fn remove_new_files(&self, kept: &[PathBuf]) {
        let mounts = observe::snapshot().unwrap_or_default();
        let is_kept = |path: &Path| {
            let is_opened = kept.iter().any(|kept| path.starts_with(kept) || kept.starts_with(path));
            is_opened || mounts.iter().any(|mount| mount.target.starts_with(path))
        };
        for path in self.prepared.new_files().iter().filter(|path| !is_kept(path)) {
            let removed = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
            // The driver's processes are gone, and no other process writes here: a path that stays is the kernel's.
            drop(removed);
        }
    }

    /// Starts a driver and a node of which both are dead.
    pub(super) async fn start_all(&self) -> Result {
        self.start_driver_unannounced().await.map_err(|error| StepError::of_testbed(&error))?;
        self.expect_registration();
        self.node.restart().await.map_err(|error| StepError::ours(&error))?;
        self.registered().await.map_err(|error| StepError::of_testbed(&error))
    }

    /// Unmounts all mounts below the node's root and the driver's directory, the latest first.
    fn unmount_all(&self) -> Result {
        let places = [self.layout.root().to_owned(), self.layout.driver_state()];
        let is_below = |mount: &observe::Mount| {
            !self.prepared.has_mount(mount)
                && places.iter().any(|place| mount.target.starts_with(place) && mount.target != *place)
        };
        // Repeated, because a mount may be below another one, and moved mounts are not in that order in the table.
        for _ in 0..places.len() {
            let mounts = observe::snapshot().map_err(|error| StepError::ours(&error))?;
            for mount in mounts.iter().rev().filter(|mount| is_below(mount)) {
                if umount2(&mount.target, MntFlags::empty()).is_err() {
                    let _ = umount2(&mount.target, MntFlags::MNT_DETACH);
                }
            }
        }
        Ok(())
    }

    /// Detaches the loop devices over images in the driver's directory, and not the disks of the machine. A program
    /// that `prepare` has started may stand in for a cloud, whose disks stay attached while the machine reboots; the
    /// node's locks on them go with the machine.
    fn detach_loops(&self) -> Result {
        let has_cloud = !self.manifest().per_case.prepare.is_empty();
        let disks = self.disks.loop_numbers();
        let loops = table::bound();
        let mut loops = table::lying_on(&loops, |bound| self.devices_of_driver.contains(&bound.device));
        let is_the_drivers = |bound: &BoundLoop| {
            !has_cloud || bound.over.is_some() || self.prepared.disks().contains(&bound.device)
        };
        loops.retain(|bound| !self.prepared.has_loop(bound) && is_the_drivers(bound));
        for bound in loops.iter().filter(|bound| !disks.contains(&bound.number)) {
            let failed = |why| StepError::Ours(vec![format!("loop{} stays attached: {why}", bound.number)]);
            table::detach(bound).map_err(failed)?;
        }
        self.made.before.borrow_mut().forget_loops(&loops);
        Ok(())
    }
}
